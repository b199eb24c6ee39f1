"""Compiled loops over entries and cells."""
