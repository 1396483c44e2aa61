"""Notes in a store, and the index by which they are found."""
