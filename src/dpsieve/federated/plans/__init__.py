"""Which rate, threshold and number of clients to use, from exact tails. Plans hold public numbers alone."""
