"""DuckDB inside this process: the default engine."""
