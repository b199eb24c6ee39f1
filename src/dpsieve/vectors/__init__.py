"""Sparse vectors with random access: a small private structure that answers for any index, present or not."""
