"""Servers: count reports, ask level by level, and release counts that reach the threshold."""
