"""A ledger: one privacy budget on disk, and every spend from it, written down before anything is drawn.

A new spend is written only if the composition of all spends, old and new, is still (epsilon, delta)-DP for the budget
(epsilon, delta), by the upper bounds of `dpsieve.privacy.composition`. So many spends cost less than their sum. All
spends are about the same neighbours and the same privacy unit, those of the ledger.

What is not promised:

1. Amounts that react to results. Which questions are asked may depend on earlier results; how much is spent on them,
   and with which kind of noise, must not. For amounts that do, a rule of this form ("natural filter") can be exceeded,
   by a factor that is poly-logarithmic at worst (Regehr et al. 2026, arXiv:2602.15815). A budget with delta = 0 is
   exempt: there epsilons are just added, which holds for any choice (Rogers, Roth, Ullman and Vadhan, NeurIPS 2016).
2. A file that was deleted, replaced by an older copy, cut at its end or rewritten as a whole. Note `head` elsewhere and
   pass it to `verify` or as `expect_head`: then these show.
3. Network file systems, where locks may not work.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import ROUND_DOWN, Context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dpsieve import validate
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue, LedgerError
from dpsieve.privacy.composition import Composition
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger_store import Chain, Entry, LedgerFile
from dpsieve.privacy.losses import either
from dpsieve.privacy.spends import Approximate, Spend
from dpsieve.validate import Neighbours

_LONGEST_NOTE = 1000
_MOST_RUNS = 10**6
# Less than this share of the budget's epsilon counts as nothing left.
_SHARE = 1e-6


class Ledger:
    """A privacy budget in the file `path`: (epsilon, delta)-DP in total for one `unit`, under one neighbour relation.

    If there is no file, it is created with this budget, readable by its owner alone; `neighbours` is 'add_remove' and
    `unit` is 'one user' unless given. If there is one, the arguments may be left out, and those given must be the
    stored ones. Everything is verified on opening; a broken chain of hashes raises LedgerError.

    Together all spends are (epsilon, delta)-DP: at the budget's epsilon their composed delta is at most the budget's
    (Kairouz, Oh and Viswanath, ICML 2015, and `Composition`). Ten processes at once cannot overspend: each waits for
    the others, up to `timeout` seconds. No file is kept open between calls, so a ledger may be shared by threads,
    inherited by a fork, and pickled (it is then opened again by its path).

    `expect_head` is a `head` noted earlier; it must still be part of the chain. See the limits at the top of the module.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/budget.ledger", epsilon=1.0, delta=1e-6, unit="one user_id")
    >>> ledger.spend(Guarantee(0.5, 5e-7, unit="one user_id"), "searches of May").number
    1
    >>> print(ledger.remaining(delta=1e-7))
    (0.500001, 1e-07)-differential privacy when one user_id is added or removed.
    >>> ledger.spend(Guarantee(0.75, 1e-7, unit="one user_id"))
    Traceback (most recent call last):
    ...
    dpsieve.errors.BudgetExceeded: ... At most epsilon=0.500001 is left at delta=1e-07. Spend less.
    >>> ledger
    Ledger('budget.ledger', epsilon=1.0, delta=1e-06, entries=1)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighbours: Neighbours | None = None,
        unit: str | None = None,
        expect_head: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        hint = "Pass seconds to wait for other processes, such as timeout=30."
        timeout = validate.between("timeout", timeout, 0.0, 86400.0, hint=hint)
        given = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours, "unit": unit}
        given = {name: value for name, value in given.items() if value is not None}
        # A guarantee checks its fields; those left out stand in for the check alone.
        checked = Guarantee(**{"epsilon": 0.0, "delta": 0.0, "unit": "one user", **given})  # type: ignore[arg-type]
        self._file = LedgerFile(_absolute(path), timeout)
        if not self._file.exists():
            if epsilon is None or delta is None or expect_head is not None:
                fix = "Check the path, or create the ledger with Ledger(path, epsilon=1.0, delta=1e-6)."
                raise LedgerError(f"there is no ledger {self.path}. {fix}")
            self._file.create(checked)
        self._chain = self._read(None)
        for name in given:
            asked, stored = getattr(checked, name), getattr(self.budget, name)
            if asked != stored:
                fix = f"Leave {name} out, or use another path for another budget."
                raise InvalidValue(f"{name}={asked!r} is not the {name}={stored!r} of the ledger {self.path}. {fix}")
        if expect_head is not None:
            self._check_head(expect_head)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, expect_head: str | None = None, timeout: float = 30.0) -> Self:
        """Open a ledger that exists; never creates one."""
        return cls(path, expect_head=expect_head, timeout=timeout)

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._file.path

    @property
    def budget(self) -> Guarantee:
        """What all spends together may promise, to whom."""
        return self._chain.budget

    @property
    def head(self) -> str:
        """The hash of the last entry. Noted elsewhere, it proves later that nothing before it was changed or cut off."""
        self._chain = self._read(self._chain)
        return self._chain.head

    def spend(self, guarantee: Guarantee | Spend, note: str = "") -> Entry:
        """Write down a spend, durably, and return its entry; only then may the mechanism draw.

        A `Guarantee` must be for the ledger's unit and neighbours; one for 'add_remove' is converted by
        `for_replacement` where the ledger is for 'replace'. A spend (`Approximate`, `Gaussian`, `DiscreteLaplace`,
        `ZeroConcentrated`) names neither: its numbers must be right for those of the ledger.

        `note` is one line of at most 1,000 characters that says what the spend was for. It is stored as it is: put no
        data in it. A spend that does not fit raises BudgetExceeded, says what is left, and writes nothing.
        """
        spend = self._as_spend(guarantee)
        note = _checked_note(note)
        with self._file.writing() as rows:
            chain = rows.verified(self._chain)
            entry = chain.following(spend, note)
            fits = _fits(chain, spend)
            if fits:
                rows.append(entry)
        self._chain = chain.plus([entry]) if fits else chain
        if not fits:
            raise BudgetExceeded(_refusal(chain, spend))
        return entry

    def remaining(self, delta: float | None = None) -> Guarantee | None:
        """Return the largest (epsilon, delta) of one more release that fits, or None where nothing is left.

        `delta` is that of the release. Left out, it is half of what the spends so far leave of the budget's delta at the
        budget's epsilon, and of an untouched ledger the whole. The epsilon is at most the budget's, rounded down to six
        digits, and sure to fit until someone else spends. Less than a millionth of the budget's epsilon is nothing.
        """
        if delta is not None:
            delta = validate.delta(delta)
        self._chain = self._read(self._chain)
        return _remaining(self._chain, delta)

    def spent(self) -> float:
        """Return the epsilon of all spends together, at the budget's delta: an upper bound, 0 for an untouched ledger."""
        self._chain = self._read(self._chain)
        # Every spend was checked to leave delta(budget.epsilon) within the budget, so its epsilon is a bound too.
        return min(_composition(self._chain).epsilon(self.budget.delta), self.budget.epsilon)

    def history(self) -> list[Entry]:
        """Return all entries, the oldest first, after verifying every one."""
        self._chain = self._read(None)
        return list(self._chain.entries)

    def verify(self, head: str | None = None) -> str:
        """Read and verify every entry anew, and return the present `head`.

        With a `head` noted earlier, that hash must be part of the chain: so entries that were cut off the end, or a
        chain that was rewritten as a whole, raise LedgerError too.
        """
        self._chain = self._read(None, self._chain)
        if head is not None:
            self._check_head(head)
        return self._chain.head

    def __len__(self) -> int:
        self._chain = self._read(self._chain)
        return len(self._chain.entries)

    def __bool__(self) -> bool:
        # An untouched ledger is still a ledger.
        return True

    def __repr__(self) -> str:
        numbers = f"epsilon={self.budget.epsilon!r}, delta={self.budget.delta!r}, entries={len(self._chain.entries)}"
        return f"Ledger({self.path.name!r}, {numbers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no file is open between calls."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (str(self.path), self._chain.head, self._file.timeout)
