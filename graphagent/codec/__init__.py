"""Python values as JSON data and back, without loss: used by memory and runs, and of no use to a program by itself."""
