"""Compiled loops inside DuckDB."""
