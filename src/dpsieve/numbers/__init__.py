"""Private sums, means and quantiles."""
