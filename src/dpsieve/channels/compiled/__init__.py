"""Hot loops, compiled by numba on first use and cached; imported only where a channel has a sampling scheme."""
