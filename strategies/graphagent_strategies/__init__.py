"""Ready-made strategies, made of public names only: read them, use them, copy them."""
