"""Which parallel loops run in lanes of vectors, and how long that takes, roughly."""
