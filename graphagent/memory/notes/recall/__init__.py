"""Notes found by a question, or listed."""
