"""Databases over ADBC: bounded and counted there, in SQL; only the bounded counts come here, as Arrow batches."""
