"""Exact arithmetic: balls, searches that round to the safe side, 128-bit words, binomial tails."""
