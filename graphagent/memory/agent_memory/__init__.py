"""Facts for an agent: the feature that shows them to its model, learns them, and has the tool that searches them."""
