"""The kinds of data that users pass: files, streams, frames, and relations of DuckDB.

See docs/background/tables.md#data.
"""
