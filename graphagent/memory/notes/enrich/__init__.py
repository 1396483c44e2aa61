"""The work of a model for notes."""
