"""Privacy curves: what a mechanism costs at every epsilon."""
