"""`graphagent runs`."""
