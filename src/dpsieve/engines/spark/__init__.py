"""Spark: data is bounded, counted and drawn from in its executors."""
