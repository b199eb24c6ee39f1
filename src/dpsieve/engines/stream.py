"""CSV that comes from standard input, or from another open file."""

import os
from pathlib import Path
from typing import IO, Any

from dpsieve.engines.text import Header, parsed_header
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData

_CHUNK = 1 << 20


class CsvStream:
    r"""A stream of CSV, binary or text, that is read once.

    The header is read when the columns are asked for. The rest goes to a file in the private folder of the count, which
    is removed with it, so that streams larger than memory work and errors have line numbers.

    >>> import io
    >>> from dpsieve.engines import CsvStream, DuckDB
    >>> DuckDB().columns(CsvStream(io.StringIO("user,query\n")))
    [('user', 'VARCHAR'), ('query', 'VARCHAR')]
    """

    def __init__(self, stream: IO[bytes] | IO[str], name: str = "standard input") -> None:
        if not hasattr(stream, "readline") or not hasattr(stream, "read"):
            raise InvalidType(f"stream must be an open file, not {type(stream).__name__}. Pass sys.stdin.buffer.")
        self.name = name
        self._stream: Any = stream
        self._first: bytes | None = None
        self._spent = False

    def header(self) -> Header | None:
        """Return the first line; None when the stream is empty."""
        if self._first is None:
            self._first = self._bytes(self._stream.readline)
        return parsed_header(self._first, self.name)

    def spool(self, folder: Path) -> Path:
        """Write the whole stream to a file in `folder` and return its path."""
        if self._spent:
            raise InvalidValue(f"data: {self.name} was read already. Save it to a file to read it twice.")
        self._spent = True
        self.header()
        path = folder / "stream.csv"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(self._first or b"")
            # One read of the system at a time, so that a signal is heard between them.
            while chunk := self._bytes(getattr(self._stream, "read1", self._stream.read)):
                file.write(chunk)
        return path

    def _bytes(self, read: Any) -> bytes:
        try:
            got: bytes | str = read(_CHUNK)
        except (OSError, ValueError):
            got = b""
            failed = True
        else:
            failed = False
        if failed:
            raise UnreadableData(f"{self.name} cannot be read. Pass an open file of bytes, or of text in UTF-8.")
        return got.encode("utf-8", "surrogateescape") if isinstance(got, str) else bytes(got)
