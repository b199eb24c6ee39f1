"""Private sparse vectors with random access."""
