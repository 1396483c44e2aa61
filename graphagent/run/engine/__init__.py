"""Executing a compiled strategy: frames, forks, policies, budgets, callbacks, child runs, and recording what happens."""
