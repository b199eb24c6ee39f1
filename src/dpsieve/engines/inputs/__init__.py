"""The kinds of data that users pass.

- A path, a glob, a folder or a list of files: see `inputs.files`. An empty text file adds nothing; when all are
  empty there are no columns, and that is an error. An empty Parquet file is a broken one.
- A pandas or Polars frame, a Polars LazyFrame; an Arrow table, record batch, reader or dataset; anything else that
  exports an Arrow stream. A reader or stream can be read once: one that was read here before, or whose stream was
  released, is refused. One that was read to its end elsewhere cannot be distinguished from one without rows.
- A DuckDB relation, or a pair (connection, name of a table or view). These run on the user's own connection, with its
  settings, memory and temporary folder, and report progress only if its progress bar is on.
- `files(data, format=..., header=...)`: files whose names do not show their format, CSV without a header line, and
  standard input or another open file.

Only the columns that are used are converted. `values.columns` describes the conversion of pandas columns.
"""
