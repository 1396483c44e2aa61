"""Notes as a feature of an agent."""
