"""Mechanisms with counts whose guarantee is a formula."""
