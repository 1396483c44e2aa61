"""The steps of a transcript, the messages that a model receives for them, and their stored form."""
