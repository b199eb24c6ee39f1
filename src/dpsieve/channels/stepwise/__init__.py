"""Channels with a sampling scheme: each row is made from the previous one."""
