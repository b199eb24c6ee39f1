"""A ppswor sample of a stream in two passes and little memory, without counting every key.

In the first pass every item tosses a coin, and a key is found when one of its items wins: of a key with w items, with
probability 1 - (1 - r)^w, which is 1 - e^(-tau w) for r = 1 - e^-tau. (So falls the least of w exponential marks under
tau: Cohen, Kaplan 2008; Private Weighted Sampling, section 3.1.) The second pass counts the keys that were found. r is
taken a little too large; once w is known, each key is thinned, with an exact coin, to the probability that the
scheme states as a floating-point number. So a channel with that scheme takes the sample as `already_sampled`.
"""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flint import arb

from dpsieve.errors import InvalidValue
from dpsieve.locks import OneThread
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import LazyUniform
from dpsieve.sampling.samples import decide
from dpsieve.sampling.schemes import PpsworOfStream
from dpsieve.types import Ints
from dpsieve.values.items import Kind, check_kind, kind_of_type, plain_items

_HINT = "Pass a batch of the stream: a list or an Arrow array of texts, bytes or whole numbers."
_CLEAR = 2**64 - 2**30  # a word below this keeps a key whose ratio is above 1 - 2^-35


class StreamSample:
    """Finds keys in a first pass, counts them in a second. What it holds is true: not to be published.

    Its memory grows with the number of keys found, about the sum of 1 - e^(-tau w) over all keys. Neighbours of a
    release made from it: one item of the stream is added or removed. It is for one thread at a time: a second one that
    uses it meanwhile gets an error.

    Args:
        tau: the sampling rate; a key of 1/tau items is found with probability 0.63.
        source: randomness for tests.

    >>> sample = StreamSample(tau=50.0)  # finds nearly every key
    >>> sample.find(["tea", "milk", "tea"])
    >>> sample.count(["tea", "milk"])
    >>> sample.count(["tea"])
    >>> keys, frequencies = sample.finish()
    >>> dict(zip(keys.to_pylist(), frequencies.tolist()))
    {'milk': 1, 'tea': 2}
    """

    def __init__(self, tau: float, *, source: Source | None = None) -> None:
        self.scheme = PpsworOfStream(tau)
        self._source = resolve(source)
        self._rate = min(1.0, float(-np.expm1(-self.scheme.tau)) * (1 + 2.0**-49))
        self._passed = [0, 0]
        self._kind: Kind | None = None
        self._alone = OneThread("this sample")
        self._found: pa.Array | None = None
        self._counts: Ints | None = None

    def __repr__(self) -> str:
        return f"<StreamSample by {self.scheme!r}>"

    def find(self, items: Any) -> None:
        """Take a batch of the first pass. Nulls are no items."""
        batch = plain_items(items, "items", _HINT)
        with self._alone:
            if self._counts is not None:
                raise InvalidValue("the second pass has begun. Find all keys first, then count them.")
            if not self._passes(batch, 0):
                return
            won = decide(np.full(len(batch), self._rate), self._source)
            fresh = pc.unique(batch.take(pa.array(won)))
            self._found = fresh if self._found is None else pc.unique(pa.concat_arrays([self._found, fresh]))

    def count(self, items: Any) -> None:
        """Take a batch of the second pass, over the same stream."""
        batch = plain_items(items, "items", _HINT)
        with self._alone:
            if self._counts is None:
                self._counts = np.zeros(0 if self._found is None else len(self._found), np.int64)
            if not self._passes(batch, 1) or self._found is None:
                return
            places = pc.index_in(batch, value_set=self._found).drop_null()
            self._counts += np.bincount(places.to_numpy(), minlength=len(self._counts))

    def finish(self) -> tuple[pa.Array, Ints]:
        """Return the sampled keys, sorted, and their true frequencies, for `already_sampled=True`. Never publish them.

        Call it once: it thins the sample.
        """
        with self._alone:
            if self._counts is None:
                raise InvalidValue("the second pass is missing. Pass the whole stream to count() once more.")
            if self._passed[0] != self._passed[1]:
                raise InvalidValue("the second pass has another length than the first. Pass the same stream twice.")
            found, counts = self._found, self._counts
            self._found, self._counts = None, None
            if found is None:
                return pa.array([], pa.string()), counts
            if len(counts) and not counts.all():
                raise InvalidValue("the second pass lacks keys of the first. Pass the same stream twice.")
            kept = self._thinned(counts)
            found, counts = found.take(pa.array(kept)), counts[kept]
            order = pc.sort_indices(found)
            return found.take(order), counts[order.to_numpy()]

    def _passes(self, batch: pa.Array, which: int) -> bool:
        """Note the items of a batch in the first or the second pass; return whether there are any."""
        if len(batch):
            check_kind("items", kind_of_type(batch.type), self._kind)
            self._kind = kind_of_type(batch.type)
        self._passed[which] += len(batch)
        return len(batch) > 0

    def _thinned(self, counts: Ints) -> Ints:
        """Return the keys to keep, each with probability (what the scheme says) / (1 - (1 - r)^w), exactly."""
        words, said = self._source.words(len(counts)), self.scheme.inclusion(counts)
        keep = words < np.uint64(_CLEAR)
        for k in np.flatnonzero(~keep):
            uniform = LazyUniform(self._source, int(words[k]), 64)
            keep[k] = uniform.below(partial(_ratio, float(said[k]), self._rate, int(counts[k])))
        return np.flatnonzero(keep)


def _ratio(said: float, rate: float, count: int) -> arb:
    return arb(said) / (1 - (1 - arb(rate)) ** count)
