"""A known universe of keys: a range of integers, or a list; and the release over it, with pure privacy."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidValue
from dpsieve.publication.draw import release_of
from dpsieve.publication.release import Release
from dpsieve.randomness.source import resolve
from dpsieve.sketches.releasing import Terms, notes_of, paid
from dpsieve.sketches.summed import MOST_KEYS, summed_sketch
from dpsieve.values.items import kind_of_type, plain_items

if TYPE_CHECKING:
    from dpsieve.sketches.merged import MergedSketch

_HINT = "Pass a range of integers such as range(10**9), or the list or Arrow array of all keys that can occur."


class Universe:
    """The keys that can occur, by their places 0, 1, 2, ..."""

    def __init__(self, keys: Any) -> None:
        self._range = keys if isinstance(keys, range) else None
        if self._range is None:
            self._array = plain_items(keys, "universe", _HINT)
            if len(pc.unique(self._array)) != len(self._array):
                raise InvalidValue(f"universe holds a key more than once. {_HINT}")
        elif not all(-(2**63) <= end < 2**63 for end in (keys.start, keys.stop)):
            raise InvalidValue(f"universe holds integers of more than 64 bits. {_HINT}")
        elif abs(keys.stop - keys.start) // abs(keys.step) > MOST_KEYS:
            raise InvalidValue(f"universe holds more than 10^12 keys. {_HINT}")
        if not len(self):
            raise InvalidValue(f"universe is empty. {_HINT}")

    def __len__(self) -> int:
        return len(self._array) if self._range is None else len(self._range)

    def places(self, keys: pa.Array) -> NDArray[np.int64]:
        """Return the place of each key, -1 for keys that are not in the universe, such as those of another kind."""
        kind = pa.int64() if self._range is not None else self._array.type
        if not len(keys) or kind_of_type(keys.type) != kind_of_type(kind):
            return np.full(len(keys), -1, np.int64)
        if self._range is None:
            found = pc.fill_null(pc.index_in(keys.cast(kind), value_set=self._array), -1)
            return np.asarray(found.to_numpy(), dtype=np.int64)
        span = self._range
        return np.array([span.index(k) if k in span else -1 for k in keys.to_pylist()], dtype=np.int64)

    def take(self, places: NDArray[np.int64]) -> pa.Array:
        """Return the keys at these places."""
        if self._range is None:
            return self._array.take(pa.array(places))
        return pa.array([self._range[place] for place in places.tolist()], pa.int64())


def released_over(
    universe: Any,
    sketch: "MergedSketch",
    epsilon: float,
    delta: float,
    *,
    false_keys: float,
    items_per_unit: int,
    terms: Terms,
) -> Release:
    """Release a sum of post-processed sketches over a known universe; keys outside of it are left out."""
    if delta != 0:
        raise InvalidValue("with a universe the release is purely private. Leave out delta, or the universe.")
    every, values, sources = Universe(universe), sketch.summed, max(1, sketch.sources)
    keys = values["key"].combine_chunks()
    places = every.places(keys)
    mechanism = summed_sketch(epsilon, 0.0, sketch.counters, sources, len(every), false_keys, items_per_unit)
    source = resolve(terms.source)
    certificate = paid(mechanism, terms)
    inside = np.flatnonzero(places >= 0)
    made, tokens = mechanism.draw(values["value"].to_numpy()[inside], sketch.items, source)
    zeros, more = mechanism.draw_zeros(places[inside], source)
    shown = np.flatnonzero(tokens)
    found, every_token = np.concatenate([places[inside[shown]], zeros]), np.concatenate([tokens[shown], more])
    # Of equal tokens the first place of the universe wins: whether a key was held must not decide.
    most = np.lexsort((found, -every_token))[: sketch.counters * sources]
    release = release_of(made, certificate, every.take(found[most]), every_token[most], source=source)
    why = f"pure privacy over {len(every):,} known keys, of which about {false_keys:g} that do not occur come out"
    release.notes.update(notes_of(mechanism, made, why))
    return release
