"""Hot loops, compiled by numba on first use and cached; imported with the first item that a sketch counts."""
