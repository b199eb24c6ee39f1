"""Sample-and-threshold: binomial rows."""
