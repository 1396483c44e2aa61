"""Facts: typed values under a concept, a subject and a scope, and the providers that store them."""
