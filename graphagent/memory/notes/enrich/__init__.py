"""What a model does for notes."""
