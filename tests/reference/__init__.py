"""A slow, obvious implementation of the whole search, and tests that compare the real one with it."""
