"""Private sums, quantiles and means of numbers and vectors."""
