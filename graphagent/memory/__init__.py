"""What an agent remembers: facts (what is true) and steps (what happened in a run)."""
