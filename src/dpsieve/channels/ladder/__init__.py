"""Rows of the optimal channel for small sampling rates: a ladder of masses and two places a row."""
