"""The journal of a run in a store: its header, its claim, its entries as bytes, and what is read from them."""
