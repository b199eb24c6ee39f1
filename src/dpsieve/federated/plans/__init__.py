"""Plans: the rate, the threshold and the number of clients, from exact tails. They hold public numbers only."""
