"""Loops over tables and incidences that numba compiles."""
