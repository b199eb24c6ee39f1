"""Channels without sampling: each subtracts one random lag from every frequency."""
