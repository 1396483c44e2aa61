"""Runs in a store: begun, claimed, resumed, read, forked, executed again, exported, pruned."""
