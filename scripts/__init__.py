"""What is run by hand, or by `make`, to keep the repository as it should be."""
