"""The exceptions of dpsieve: one family, each also the builtin that a caller would expect.

    DpsieveError
    |-- InvalidValue      (ValueError)    an argument outside its range
    |-- InvalidType       (TypeError)     an argument of the wrong kind
    |-- NotCertified      (ValueError)    a table of probabilities that breaks its promise
    |-- BudgetExceeded    (ValueError)    a spend that the budget cannot pay
    |-- UnreadableData    (OSError)       a file, stream or frame that cannot be read
    |-- LedgerError       (OSError)       a ledger file that cannot be trusted or used
    |-- CorruptRelease    (OSError)       a saved release that is damaged
    `-- RandomnessError   (RuntimeError)  a random stream that must not be used any more

and one warning, PrivacyWarning (UserWarning).

A message names the argument, its value where that is harmless, and the fix. No message ever holds data. `argument` is
the name again, where there is one, so that a front end can spell it in its own way.
"""


class DpsieveError(Exception):
    """Any error that dpsieve raises on purpose; `argument` is the name of the argument it is about, or None."""

    def __init__(self, *message: object, argument: str | None = None) -> None:
        super().__init__(*message)
        self.argument = argument


class InvalidValue(DpsieveError, ValueError):
    """An argument has the right type and a value that cannot be used.

    Nothing was read or spent, unless the message states a charge. Change the argument as the message says.
    """


class InvalidType(DpsieveError, TypeError):
    """An argument has a type that cannot be used.

    Nothing was read or spent. Pass what the message names, such as a list instead of a text.
    """


class NotCertified(DpsieveError, ValueError):
    """A table of probabilities breaks its promise.

    The usual causes are a channel of your own whose rows are too far apart, and a changed file. Nothing was drawn.
    """


class BudgetExceeded(DpsieveError, ValueError):
    """A spend is larger than what the privacy budget has left.

    Nothing was drawn, and the ledger is as it was. Ask for a smaller epsilon or delta; the message says what fits.
    """


class CorruptRelease(DpsieveError, OSError):
    """A saved release is missing, changed or from another version.

    Restore the folder from a copy. Whoever needs the numbers alone can read `release.parquet`, without any guarantee.
    """


class LedgerError(DpsieveError, OSError):
    """A ledger file cannot be trusted or used.

    Nothing was charged. Restore the file from a copy with the same head, or free its disk, lock or permissions.
    """


class UnreadableData(DpsieveError, OSError):
    """Data cannot be read; the message names the file and line where known, never their content.

    Nothing was charged, unless the message says so. Fix or leave out what it names, and run again.
    """


class RandomnessError(DpsieveError, RuntimeError):
    """A random stream cannot be used: it would repeat numbers that were drawn elsewhere.

    Make a new source in this process; never copy one between processes.
    """


class PrivacyWarning(UserWarning):
    """A valid request with weak protection.

    The release continues. Read the sentence, and change the request if that is not what you mean.
    """


def not_unicode(name: str) -> InvalidValue:
    """Return the error for text with bytes that are not UTF-8, or with lone surrogates, which no encoding can carry."""
    fix = "Pass bytes, or replace what is wrong first, such as by text.encode(errors='replace').decode()."
    return InvalidValue(
        f"{name} holds text that is not Unicode: bytes that are not UTF-8, or lone surrogates. {fix}", argument=name
    )


def too_large(name: str) -> InvalidValue:
    """Return the error for a whole number that Arrow cannot hold."""
    fix = "Pass such numbers as text."
    return InvalidValue(f"{name} holds a whole number that does not fit 64 bits with a sign. {fix}", argument=name)
