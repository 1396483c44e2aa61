"""The tasks as other engines do them, each the way its own documentation does. Needs what requirements.txt names."""
