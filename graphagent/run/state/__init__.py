"""A run as plain data: the entries that change it, its state, its frames, its questions and what it spent.

Nothing here knows a store, a model, a strategy or a context. The same functions change the state of a run that is being
executed and of one that is read from its journal.
"""
