"""Agents declared as typed strategy graphs, with memory that can be trusted."""
