"""User values as Arrow columns; errors never quote a value."""
