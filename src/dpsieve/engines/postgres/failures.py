"""What errors of a database mean, and the fix.

Drivers quote addresses, passwords and rows in their messages. So nothing of a message is passed on: the code of its
error, or well-known words in it, choose one of the texts below. They are raised outside of the `except` block, so that
the first exception is not kept as context.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from dpsieve.engines.answers import translate_errors
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData

_T = TypeVar("_T")

_ENCODED = "In a URL, other characters than letters and digits are percent-encoded: a space is %20, an @ is %40."
_CONNECTING = {
    "password authentication failed": "it refuses the user or the password",
    "no password supplied": "it wants a password: write it to a password file, or to PGPASSWORD",
    "pg_hba.conf": "it accepts no such user from here, or not without encryption",
    "could not translate host name": "there is no host of that name",
    "Connection refused": "connection refused: check host and port",
    "No such file or directory": "there is no server at that socket",
    "timeout": "it does not answer in time",
    "too many": "it has too many connections",
    "starting up": "it is starting up",
    "SSL": "it cannot agree on encryption",
    "certificate": "it cannot agree on encryption",
    "does not exist": "it has no such user or database",
}
# By the first characters of SQLSTATE; the longest that fits counts.
_STATES = {
    "42501": "may not be read with these rights. Ask for SELECT on it",
    "42704": "lost a setting of its session on the way. Connect without a pool that shares sessions between statements",
    "42883": "has a unit of a type without a hash, such as json: cast it to text in a view. Or it is a view with a "
    "function that finds others along the search path: ALTER FUNCTION ... SET search_path",
    "42P01": "is a view with a function that finds tables along the search path, which has only the server's own "
    "schemas here: ALTER FUNCTION ... SET search_path",
    "53": "needs more memory or disk than the server has. Ask for more, or bound units to fewer keys",
    "54": "is too large for the server. Name fewer columns",
    "57014": "takes longer than the server allows, or was cancelled. Raise its statement_timeout",
    "57": "lost its server, which is shutting down. Try again later",
    "08": "lost the connection to its server. Try again",
    "25006": "needs a temporary table for known_keys, which this server refuses. Leave them out, or read a primary one",
    "40": "was changed at the same time. Try again",
    "22": "holds a value that the server cannot compute with. Check that a query that reads the whole table works",
}


def connect_safely(connect: Callable[[], _T]) -> _T:
    """Return a connection, or raise without quoting the driver."""
    words, kind = "", ""
    try:
        return connect()
    except ModuleNotFoundError as error:
        missing = error.name or ""
    except Exception as error:
        missing, words, kind = "", str(error), type(error).__name__
    if missing:
        name = missing.replace("_", "-")
        raise InvalidValue(f"data is a database, and {name} is not installed. Run pip install 'dpsieve[postgres]'.")
    why = next((reason for word, reason in _CONNECTING.items() if word in words), f"the driver says {kind}")
    raise UnreadableData(f"data: the database cannot be used: {why}. Check its URL. {_ENCODED}")


def guard(act: Callable[[], _T], table: str) -> _T:
    """Return the result of a step that reads a table, or raise without quoting the server."""
    return translate_errors(act, lambda error: _explain(error, table))


def _explain(error: Any, table: str) -> DpsieveError:
    state = str(getattr(error, "sqlstate", None) or "")
    for known in sorted(_STATES, key=len, reverse=True):
        if state.startswith(known):
            kind = InvalidType if known == "42883" else UnreadableData
            return kind(f"table={table!r} {_STATES[known]}.")
    if isinstance(error, MemoryError):
        return InvalidValue(f"table={table!r} has more keys than fit into memory here. Use a larger machine.")
    if isinstance(error, OSError) or "closed the connection" in str(error) or "terminating connection" in str(error):
        return UnreadableData(f"table={table!r}: the connection was lost, and nothing was used. Try again.")
    code = f"SQLSTATE {state}" if state.isalnum() else type(error).__name__
    return UnreadableData(f"table={table!r} cannot be read ({code}). Check that a query of its first rows works.")
