"""The one way in and out: a plan is read, charged and finished, in this order.

    arguments -> Request -> Plan -> Plan.read -> ledger -> Plan.finish -> Publication

Every job, sketch, sparse vector, collection and channel publishes through `run` or, where it draws in several steps,
through `charge`. So warnings, ledger entries, logs and errors after a charge are the same for all of them. A wrong
argument, a file that cannot be read, code that cannot be loaded or a mechanism that cannot be certified costs no
budget, and nothing is drawn that was not paid for.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dpsieve.display import log, timed
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Guarantee, warn_of_large_delta
from dpsieve.privacy.ledger import AnyLedger, Ledger
from dpsieve.privacy.ledger.chain import utc_now
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.publication import Publication
from dpsieve.randomness.source import Source, resolve

Data = TypeVar("Data")
Published = TypeVar("Published", bound=Publication)
Cost = Mechanism | Guarantee


@dataclass(frozen=True)
class Plan(Generic[Data, Published]):
    """A job made from public numbers.

    Attributes:
        cost: what the ledger is charged. It must hold for every mechanism that `finish` may choose privately.
        read: returns the true data, bounded per unit, given a source for the salt. What it returns may be a context
            manager, which is left after `finish`.
        finish: draws from true data that is paid for, and returns the publication.
        rehearse: does with invented data what `finish` does; it runs before the charge, given the true data for its
            types and a source.
        check: raises what `read` would raise about columns, from the schema alone; None without a table.
        describe: returns what the job would do, for a preview.
        final_cost: returns the cost, given true data, where it depends on a public number of it: the number of rows
            under 'replace'.
    """

    cost: Cost
    read: Callable[[Source], Data]
    finish: Callable[[Data, Source], Published]
    rehearse: Callable[[Data, Source], object]
    check: Callable[[], None] | None = None
    describe: Callable[[], Any] | None = None
    final_cost: Callable[[Data], Cost] | None = None


def run(
    plan: Plan[Any, Published], *, ledger: AnyLedger = None, note: str = "", source: Source | None = None,
    notes: Mapping[str, str] = {},
) -> Published:  # fmt: skip
    """Read, charge and finish a plan, and return its publication with further notes and the number of the entry."""
    randomness, book = resolve(source), open_ledger(ledger, note)
    if book is not None:
        book.check(plan.cost, note)  # refuse before the work, not after it
    with ExitStack() as stack:
        data = plan.read(randomness)
        if hasattr(data, "__exit__"):
            stack.enter_context(data)
        cost = plan.cost if plan.final_cost is None else plan.final_cost(data)
        with charge(cost, book, note, lambda: plan.rehearse(data, resolve(None))) as entry:
            publication = plan.finish(data, randomness).charged_as(entry, note, utc_now()[:10]).with_notes(**notes)
            if book is not None:
                with suppress(DpsieveError):  # what is paid for is returned
                    publication = publication.with_notes(left=book.describe_left())
            log.info("mechanism: %s", publication.mechanism.last.name)
    return publication


def open_ledger(ledger: AnyLedger, note: str = "") -> Ledger | None:
    """Return the ledger to be charged, or None; a note without a ledger is refused."""
    if ledger is None and note:
        raise InvalidValue("note is kept in a ledger. Pass a ledger too, or leave the note out.", argument="note")
    if ledger is None or isinstance(ledger, Ledger):
        return ledger
    if not isinstance(ledger, str | os.PathLike):
        raise InvalidType(f"ledger must be a Ledger or its path, not {type(ledger).__name__}.", argument="ledger")
    return Ledger.open(ledger)


class charge:  # noqa: N801 - it reads like a function: with charge(...) as entry
    """Charge a ledger, durably, for what is drawn in a `with` block, which gets the number of the entry.

    Without a ledger nothing is written, and the number is None. Errors in the block report the charge.

    Args:
        cost: a mechanism, or a promise.
        ledger: a ledger or its path, or None.
        note: what it is for.
        rehearse: runs before the charge; see `Plan`.
    """

    def __init__(self, cost: Cost, ledger: AnyLedger, note: str, rehearse: Callable[[], object]) -> None:
        self._cost, self._ledger, self._note, self._rehearse = cost, open_ledger(ledger, note), note, rehearse
        self._entry: int | None = None

    def __enter__(self) -> int | None:
        promise = self._cost if isinstance(self._cost, Guarantee) else self._cost.guarantee
        warn_of_large_delta(promise.delta)
        if self._ledger is None:
            return None
        with timed("rehearse", whole=True):
            self._rehearse()
        before = len(self._ledger)
        try:
            self._entry = self._ledger.spend(self._cost, self._note).number
            log.info("ledger: charged as entry %d", self._entry)
        except BaseException as error:  # an interrupt may come after the entry is durable
            if self._entry is None and not isinstance(error, Exception) and len(self._ledger) > before:
                error.add_note("The ledger may have been charged: see its history.")
            report_charge(error, self._entry)
            raise
        return self._entry

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            report_charge(error, self._entry)


def report_charge(error: BaseException, entry: int | None) -> None:
    """Add to an error, once, that a ledger was charged before it; nothing where there is no entry.

    Errors of this project get a longer message, others a note: all keep their type.
    """
    if entry is None:
        return
    words = describe_charge(entry)
    if words in str(error) or words in getattr(error, "__notes__", ()):
        return
    if isinstance(error, DpsieveError):
        error.args = (f"{error} {words}", *error.args[1:])
    else:
        error.add_note(words)


def describe_charge(entry: int) -> str:
    """Return that an entry stays in its ledger."""
    return f"The ledger was charged before this: entry {entry} stays spent."
