"""Draws that stop a test where they come before the charge, or right after it."""


def crashing(real, ledger, source):
    """Return a draw that must not use `source` before the ledger is charged, and is interrupted after that.

    A rehearsal before the charge draws from a source of its own.
    """

    def draw(*arguments, **options):
        if not any(value is source for value in (*arguments, *options.values())):
            return real(*arguments, **options)
        assert len(ledger.history()) == 1
        raise KeyboardInterrupt

    return draw
