"""The transcript of a run: its steps, the messages that a model is sent for them, and their stored form."""
