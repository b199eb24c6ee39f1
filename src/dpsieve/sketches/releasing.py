"""Releases of sketches: check, certify, charge, draw, in this order."""

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidValue
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import PrivateSketch
from dpsieve.sketches.sketch import Table
from dpsieve.sketches.summed_noise import MOST_KEYS, SummedSketch
from dpsieve.types import Ints
from dpsieve.values.columns import kind_of_type, plain_items

_UNIVERSE = "Pass a range of integers such as range(10**9), or the list or Arrow array of all keys that can occur."


def release_table(
    mechanism: PrivateSketch,
    table: Table,
    lost: int,
    reason: str,
    *,
    ledger: AnyLedger,
    note: str,
    source: Source | None,
) -> Release:
    """Return the keys whose noisy counters reach the threshold; `lost` bounds how much the counters are too low."""
    from dpsieve.jobs.run import Plan, run

    def finish(table: Table, source: Source) -> Release:
        outcome = mechanism.draw(table.values, lost, source)
        shown = np.flatnonzero(outcome.tokens)
        keys, notes = table.keys.take(pa.array(shown)), Notes(reason=reason)
        shown_outcome = replace(outcome, tokens=outcome.tokens[shown])
        return release_of(mechanism, keys, shown_outcome, source=source, notes=notes)

    def rehearse(table: Table, source: Source) -> None:
        mechanism.draw(np.ones(1, table.values.dtype), 1, source)

    mechanism.certify()
    return run(Plan(mechanism, lambda _: table, finish, rehearse), ledger=ledger, note=note, source=source)


def release_over(
    universe: "Universe",
    mechanism: SummedSketch,
    table: Table,
    lost: int,
    *,
    ledger: AnyLedger,
    note: str,
    source: Source | None,
) -> Release:
    """Release the values of keys of a known universe; keys outside of it are ignored."""
    from dpsieve.jobs.run import Plan, run

    places = universe.places(table.keys)
    mechanism.certify()
    reason = f"pure privacy over {len(universe):,} known keys, of which about"
    reason += f" {mechanism.false_keys:g} that do not occur come out"

    def draw(values: Ints, places: Ints, lost: int, source: Source) -> Release:
        outcome = mechanism.draw(values, lost, source)
        zeros, more = mechanism.draw_zeros(places, source)
        shown = np.flatnonzero(outcome.tokens)
        published, tokens = np.concatenate([places[shown], zeros]), np.concatenate([outcome.tokens[shown], more])
        # Of equal tokens the first place of the universe wins: ties must not depend on whether the sketch held the key.
        most = np.lexsort((published, -tokens))[: mechanism.most_keys]
        keys, notes = universe.take(published[most]), Notes(reason=reason)
        return release_of(mechanism, keys, replace(outcome, tokens=tokens[most]), source=source, notes=notes)

    def finish(inside: Ints, source: Source) -> Release:
        return draw(table.values[inside], places[inside], lost, source)

    def rehearse(_: Ints, source: Source) -> None:
        draw(np.ones(1, table.values.dtype), np.zeros(1, np.int64), 1, source)

    plan = Plan(mechanism, lambda _: np.flatnonzero(places >= 0), finish, rehearse)
    return run(plan, ledger=ledger, note=note, source=source)


class Universe:
    """The keys that can occur, by their places 0, 1, 2, ...: a range of integers, or a list."""

    def __init__(self, keys: Any) -> None:
        self._range = keys if isinstance(keys, range) else None
        if self._range is None:
            self._array = plain_items(keys, "universe", _UNIVERSE)
            if len(pc.unique(self._array)) != len(self._array):
                _refuse("holds a key more than once")
        elif not all(-(2**63) <= end < 2**63 for end in (keys.start, keys.stop)):
            _refuse("holds integers of more than 64 bits")
        elif abs(keys.stop - keys.start) // abs(keys.step) > MOST_KEYS:
            _refuse("holds more than 10^12 keys")
        if not len(self):
            _refuse("is empty")

    def __len__(self) -> int:
        return len(self._array) if self._range is None else len(self._range)

    def places(self, keys: pa.Array) -> Ints:
        """Return the place of each key, -1 for keys outside the universe, such as those of another kind."""
        kind = pa.int64() if self._range is not None else self._array.type
        if not len(keys) or kind_of_type(keys.type) != kind_of_type(kind):
            return np.full(len(keys), -1, np.int64)
        if self._range is None:
            places = pc.fill_null(pc.index_in(keys.cast(kind), value_set=self._array), -1)
            return np.asarray(places.to_numpy(), dtype=np.int64)
        span, integers = self._range, keys.to_numpy()
        # Differences modulo 2^64 are exact: both ends fit 64 bits.
        behind = (integers.view(np.uint64) - _word(span.start)) * _word(1 if span.step > 0 else -1)
        inside = (integers >= min(span[0], span[-1])) & (integers <= max(span[0], span[-1]))
        places, remainder = np.divmod(behind, np.uint64(min(abs(span.step), 2**64 - 1)))
        return np.where(inside & (remainder == 0), places, _word(-1)).view(np.int64)

    def take(self, places: Ints) -> pa.Array:
        """Return the keys at these places."""
        if self._range is None:
            return self._array.take(pa.array(places))
        return pa.array((places.astype(np.uint64) * _word(self._range.step) + _word(self._range.start)).view(np.int64))


def _refuse(why: str) -> NoReturn:
    raise InvalidValue(f"universe {why}. {_UNIVERSE}", argument="universe")


def _word(number: int) -> np.uint64:
    return np.uint64(number % 2**64)
