"""Ledgers: one privacy budget on disk, and every spend from it, recorded before anything is drawn.

A ledger is a privacy filter (`ledger.rules` has the rules): queries, amounts and kinds of noise may depend on earlier
results, and all releases together are (epsilon, delta)-DP for the budget (epsilon, delta). Several spends cost less
than their sum. All spends share the neighbours and the privacy unit of the ledger. Proof and limits:
docs/background/composition.md#the-ledger, #limits.
"""

import os
import time
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Self, TypeAlias

from dpsieve import validate
from dpsieve.accounting.composition import convert_to_replacement
from dpsieve.accounting.spends import Approximate, Spend, checked_spends
from dpsieve.display import html_table
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue, LedgerError
from dpsieve.privacy.guarantee import Guarantee, shown
from dpsieve.privacy.ledger.chain import Chain, Entry, Remaining, checked_note
from dpsieve.privacy.ledger.rules import Cost
from dpsieve.privacy.ledger.store import LedgerFile
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.validate import Neighbours

_SHOWN = 10  # entries, in a notebook
_MOST_MEMBERS = 10_000


class Ledger:
    """A privacy budget in the file `path`: (epsilon, delta)-DP in total for one `unit`, under one neighbour relation.

    A missing file is created with this budget, readable by its owner only. `unit` is the privacy unit of all releases:
    a column or a list of columns, or a phrase that begins with 'one'; by default 'one row'. `neighbours` defaults to
    'add_remove'. If the file exists, arguments may be omitted, and those given must equal the stored ones. Opening
    verifies everything; a broken chain of hashes raises LedgerError.

    Concurrent processes cannot overspend: each waits for the others, up to `timeout` seconds. No file is kept open
    between calls, so a ledger may be shared by threads, inherited by a fork, and pickled (it is reopened by its path).
    A file with a second name, by a hard link or a mount of that file alone, is refused. `expect_head` is a `head` noted
    earlier; it must still be part of the chain. Limits: docs/background/composition.md#limits.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/budget.ledger", epsilon=1.0, delta=1e-6, unit="user_id")
    >>> ledger.spend(Guarantee(0.5, 5e-7, unit="user_id"), "searches of May").number
    1
    >>> print(ledger.remaining(delta=1e-7))
    (0.5, 1e-07)-differential privacy when one user_id is added or removed, by sums of epsilon and delta.
    >>> ledger.spend(Guarantee(0.75, 1e-7, unit="one user_id"))
    Traceback (most recent call last):
    ...
    dpsieve.errors.BudgetExceeded: ... At most epsilon 0.5 is left at delta 1e-07, by sums of epsilon and delta. ...
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
        unit: str | Sequence[str] | None = None,
        expect_head: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        hint = "Pass seconds to wait for other processes, such as timeout=30."
        timeout = validate.between("timeout", timeout, 0.0, 86400.0, hint=hint)
        given = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours, "unit": unit}
        given = {name: value for name, value in given.items() if value is not None}
        # A guarantee checks its fields; the defaults only complete it.
        checked = Guarantee(**{"epsilon": 0.0, "delta": 0.0, **given})  # type: ignore[arg-type]
        self._file = LedgerFile(_absolute(path), timeout)
        if not self._file.exists():
            if epsilon is None or delta is None or expect_head is not None:
                fix = (
                    "Check the path, or create it: dpsieve ledger create PATH --epsilon 4 --delta 1e-6 --unit user_id, "
                    "or Ledger(path, epsilon=4, delta=1e-6, unit='user_id')."
                )
                raise LedgerError(f"there is no ledger {self.path}. {fix}")
            self._file.create(checked)
        with self._file.reading() as rows:
            self._chain = rows.verified()
        for name in given:
            asked, stored = getattr(checked, name), getattr(self.budget, name)
            if asked != stored:
                fix = f"Leave {name} out, or use another path for another budget."
                what = f"{name}={asked!r} is not the {name}={stored!r} of the ledger {self.path}"
                raise InvalidValue(f"{what}. {fix}", argument=name)
        if expect_head is not None:
            self._check_holds(self._chain, expect_head)

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
        """The guarantee of all spends together."""
        return self._chain.budget

    @property
    def head(self) -> str:
        """The hash of the last entry. Noted elsewhere, it later detects truncated or rewritten entries."""
        return self._read().head

    def spend(self, mechanism: Mechanism | Guarantee | Spend, note: str = "") -> Entry:
        """Record a spend durably and return its entry; only then may the mechanism draw.

        A mechanism costs its `spends` or its guarantee, whichever is less under the rule that holds. It, or a
        `Guarantee`, must be for the ledger's unit and neighbours; in a ledger for 'replace', one for 'add_remove' is
        converted, with its curves. A spend (`Approximate`, `Gaussian`, `DiscreteLaplace`, `BoundedRange`,
        `ZeroConcentrated`, `Renyi`) has neither: its numbers must hold for those of the ledger.

        `note` is one line of at most 1,000 characters that states the purpose. It is stored as it is: it must not
        contain data. A spend that does not fit raises BudgetExceeded with what is left, and records nothing.
        """
        return self._spend(mechanism, note, keep=True)

    def batch(
        self, mechanisms: Sequence[Mechanism | Guarantee | Spend], note: str = "", *, delta: float | None = None
    ) -> Entry:
        """Record several spends, declared before any of them draws, as one entry; all of them fit or none does.

        As their amounts are fixed in advance, they count by the tighter `Composition` where that is less than their
        sum. `delta` is that of the composition; by default what the ledger has left for it, or half of that where half
        is enough. Afterwards the mechanisms may draw: run the jobs without `ledger=`, each once.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(f"{folder}/budget.ledger", epsilon=1.0, delta=1e-6)
        ...     print(ledger.batch([Guarantee(0.03)] * 65, "65 small counts").words())
        batch of 65: approximate: epsilon 0.994995, delta 1e-06
        """
        hint = "Pass a list of mechanisms, guarantees or spends, such as [Guarantee(0.1, 1e-9)] * 12."
        given: object = mechanisms
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InvalidType(f"mechanisms must be a list, not {type(given).__name__}. {hint}", argument="mechanisms")
        if not 1 <= len(mechanisms) <= _MOST_MEMBERS:
            raise InvalidValue(f"mechanisms must have 1 to {_MOST_MEMBERS:,} members. {hint}", argument="mechanisms")
        if delta is not None and validate.delta(delta) > self.budget.delta:
            fix = "Pass less, or leave it out."
            raise InvalidValue(
                f"delta={shown(delta)} is above the budget's delta={shown(self.budget.delta)}. {fix}", argument="delta"
            )
        costs, note = [self._cost(mechanism) for mechanism in mechanisms], checked_note(note)
        deadline = time.monotonic() + self._file.timeout
        while True:
            chain = self._read()
            cost = chain.batched(costs, delta)  # may take seconds, during which others may spend
            if cost is None:
                raise BudgetExceeded(chain.refusal(costs))
            entry = self._append(cost, note)
            if entry is not None:
                return entry
            if time.monotonic() >= deadline:
                fix = "It no longer fits as computed. Try again, or pass a longer timeout."
                raise LedgerError(f"others spent from {self.path} while the batch was computed. {fix}")

    def check(self, mechanism: Mechanism | Guarantee | Spend, note: str = "") -> None:
        """Raise what `spend` would raise now, and record nothing: a refusal before the work, not after it.

        This also finds a file or folder that cannot be written. Nothing is reserved: others may spend meanwhile.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger(f"{folder}/budget.ledger", epsilon=1.0, delta=1e-6)
        ...     ledger.check(Guarantee(1.0, 1e-6))
        ...     len(ledger)
        0
        """
        self._spend(mechanism, note, keep=False)

    def remaining(self, delta: float | None = None) -> Remaining | None:
        """Return the largest (epsilon, delta) of one more release that fits, or None where nothing is left.

        The result is a `Guarantee` with the `rule` that admits it. `delta` is that of the release; by default half of
        what the rules leave for deltas, and the budget's delta where nothing was spent. The epsilon is rounded down to
        six digits and fits until someone else spends. Less than a millionth of the budget's epsilon counts as nothing.
        Noise of a known kind may fit where this does not.
        """
        return self._read().remaining(None if delta is None else validate.delta(delta))

    def describe_left(self) -> str:
        """Return what is left for one more release, as text."""
        left = self.remaining()
        words = "nothing" if left is None else f"epsilon {left.epsilon:.6g}, delta {left.delta:.3g}"
        return f"{words}; the whole budget is epsilon {self.budget.epsilon:.6g}, delta {self.budget.delta:.3g}"

    def room_for(self, mechanism: Mechanism | Guarantee | Spend) -> int:
        """Return how many more spends like this one fit, one after the other, up to a million.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Ledger(f"{folder}/budget.ledger", epsilon=1.0, delta=1e-6).room_for(Guarantee(0.25, 1e-8))
        4
        """
        return self._read().room_for(self._cost(mechanism))

    def left_after_each(self) -> list[float]:
        """Return the epsilon of one more release before any entry and after each: `remaining()` at that time, or 0."""
        chain = self._read()
        before = Chain(chain.rules, chain.start)
        left = accumulate(chain.entries, lambda earlier, entry: earlier.plus([entry]), initial=before)
        return [0.0 if remaining is None else remaining.epsilon for remaining in (at.remaining(None) for at in left)]

    def spent(self) -> float:
        """Return the epsilon of all spends together at the budget's delta, at most the budget's.

        This is the cost if all amounts were fixed in advance (`Composition`). It is for display: the rules decide
        whether a spend fits. If amounts depended on results, the guarantee is the whole budget.
        """
        return self._read().spent()

    def history(self) -> list[Entry]:
        """Return all entries, oldest first, after verifying every one."""
        return list(self._read(from_start=True).entries)

    def verify(self, head: str | None = None) -> str:
        """Verify every entry and return the present `head`.

        A `head` noted earlier must be part of the chain: so a truncated or rewritten chain raises LedgerError too.
        """
        chain = self._read(from_start=True)
        if head is not None:
            self._check_holds(chain, head)
        return chain.head

    def __len__(self) -> int:
        return len(self._read().entries)

    def __bool__(self) -> bool:
        # An empty ledger must be truthy.
        return True

    def __repr__(self) -> str:
        numbers = f"epsilon={self.budget.epsilon!r}, delta={self.budget.delta!r}, entries={len(self._chain.entries)}"
        return f"Ledger({self.path.name!r}, {numbers})"

    def _repr_html_(self) -> str:
        """Return the budget, the remaining budget and the last entries, for a notebook."""
        entries, left = self.history(), self.remaining()
        available = "nothing"
        if left:
            available = f"one release of epsilon {left.epsilon:.6g}, delta {left.delta:.3g}, by {left.rule}"
        spent = f"epsilon {self.spent():.4g} at the budget's delta, entries: {len(entries):,}"
        summary = html_table([("budget", self.budget), ("spent", spent), ("left", available)])
        last = [(entry.number, entry.time, entry.words(), entry.note) for entry in entries[-_SHOWN:]]
        return f"<div>{summary}{html_table(last, ('number', 'time', 'spend', 'note')) if last else ''}</div>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no file stays open between calls."""

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Ledger.open, expect_head=self._chain.head, timeout=self._file.timeout), (str(self.path),)

    def _spend(self, mechanism: object, note: str, *, keep: bool) -> Entry:
        """Record a spend if it fits; without `keep` it is rolled back."""
        cost, note = self._cost(mechanism), checked_note(note)
        entry = self._append(cost, note, keep=keep)
        if entry is None:
            raise BudgetExceeded(self._chain.refusal([cost]))
        return entry

    def _append(self, cost: Cost, note: str, *, keep: bool = True) -> Entry | None:
        """Append an entry if it fits the present chain; else return None."""
        entry = None
        with self._file.writing(keep=keep) as rows:
            chain = rows.verified(self._chain)
            if chain.rule_with(cost):
                entry = chain.following(cost, note)
                rows.append(entry)
        self._chain = chain.plus([entry]) if entry is not None and keep else chain
        return entry

    def _read(self, *, from_start: bool = False) -> Chain:
        """Return the present chain; entries that were verified before are hashed again only `from_start`."""
        known = self._chain
        with self._file.reading() as rows:
            chain = rows.verified(None if from_start else known)
        self._check_holds(chain, known.head)
        self._chain = chain
        return chain

    def _check_holds(self, chain: Chain, head: object) -> None:
        if not chain.holds(validate.is_a(str, "Pass what ledger.head gave earlier.")(head, "head")):
            fix = "Entries were cut off or rewritten, or it is another ledger. Restore a trusted copy."
            raise LedgerError(f"the ledger {self.path} does not hold the head that was noted. {fix}")

    def _cost(self, mechanism: object) -> Cost:
        if isinstance(mechanism, Spend):
            return Cost(mechanism)
        guarantee = mechanism.guarantee if isinstance(mechanism, Mechanism) else mechanism
        if not isinstance(guarantee, Guarantee):
            fix = "Pass a mechanism, a Guarantee, or a spend such as Approximate(0.1, 1e-9)."
            raise InvalidType(
                f"mechanism must be what is spent, not {type(mechanism).__name__}. {fix}", argument="mechanism"
            )
        if guarantee.unit != self.budget.unit:
            what = f"the guarantee is for {guarantee.unit!r}, the ledger for {self.budget.unit!r}"
            fix = "Name the same unit, or keep another ledger for that one."
            raise InvalidValue(f"{what}. {fix}", argument="mechanism")
        if guarantee.neighbours == "replace" and self.budget.neighbours != "replace":
            fix = (
                "Pass neighbours='add_remove' where the job takes it, or create a ledger with neighbours='replace', "
                "which takes guarantees of both kinds: dpsieve ledger create PATH --neighbours replace."
            )
            what = "this job protects against replacing a unit, and the ledger against adding or removing one"
            raise InvalidValue(f"{what}. {fix}", argument="mechanism")
        curves = checked_spends(mechanism.spends()) if isinstance(mechanism, Mechanism) else ()
        if guarantee.neighbours != self.budget.neighbours:
            if curves == (Approximate(guarantee.epsilon, guarantee.delta),):
                curves = ()
            if curves:
                curves = convert_to_replacement(curves, tuple(sorted(self._chain.rules.orders)))
            guarantee = guarantee.for_replacement()
        spend = Approximate(guarantee.epsilon, guarantee.delta)
        return Cost(spend, () if curves == (spend,) else curves)


def _absolute(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(
            f"path must be a path, not {type(path).__name__}. Pass one such as 'budget.ledger'.", argument="path"
        )
    hint = "Pass a file name such as 'budget.ledger'."
    name = validate.no_address("path", validate.text("path", os.fspath(path), hint=hint), hint=hint)
    try:
        return Path(os.path.realpath(name))
    except OSError as error:  # the working folder is gone
        raise LedgerError(f"the path {name!r} cannot be resolved ({error.strerror}). Pass an absolute path.") from None


AnyLedger: TypeAlias = Ledger | str | os.PathLike[str] | None
"""A ledger to be charged, its path, or None where nothing is charged."""
