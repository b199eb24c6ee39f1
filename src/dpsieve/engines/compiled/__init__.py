"""Loops over rows that numba compiles."""
