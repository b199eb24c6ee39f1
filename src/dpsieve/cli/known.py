"""A public list of keys from a file."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dpsieve.errors import InvalidValue, UnreadableData


def read_known(path: Path, key: list[str]) -> pa.Table:
    """Read Parquet or CSV (.csv, .tsv) with the key columns, or, from any other file, one key a line.

    In text files keys are text; the engine turns them into the types of the data. Empty lines are no keys.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pq.read_table(path)
        if kind in (".csv", ".tsv"):
            parse = pyarrow.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")
            types = pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(key, pa.string()), strings_can_be_null=True, null_values=[""]
            )
            return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=types)
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        kind = type(error).__name__
        raise UnreadableData(
            f"--known-keys {str(path)!r} cannot be read ({kind}). Pass a text, CSV or Parquet file."
        ) from None
    if len(key) > 1:
        raise InvalidValue("--known-keys for several key columns must be a CSV or Parquet file that has these columns.")
    return pa.table({key[0]: [text for line in lines if (text := line.removesuffix("\r"))]})
