"""`graphagent notes`."""
