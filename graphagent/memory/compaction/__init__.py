"""Keeps long transcripts within a model's context window: compression strategies and the window itself."""
