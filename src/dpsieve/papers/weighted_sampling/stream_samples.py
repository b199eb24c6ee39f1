"""A ppswor sample of a stream in two passes and little memory, without counting every key.

In the first pass every item is selected with probability r, and a key is a candidate when one of its items is: a key
with w items with probability 1 - (1 - r)^w, which is 1 - e^(-tau w) for r = 1 - e^-tau. (Equivalently, the minimum of w
Exp(1) marks is below tau: Cohen, Kaplan 2008; Private Weighted Sampling, section 3.1.) The second pass counts the
candidates. r is slightly too large; once w is known, each key is kept with an exact coin, so that its probability is
the one that the scheme states as a floating-point number. So a channel with that scheme takes the sample.

Powers below one work in the same way: as w^power <= w for whole w, keys are candidates often enough, and thinned to
1 - e^(-tau w^power). Powers above one do not, and neither does priority sampling, in which some keys must be candidates
with certainty: count the keys first, and use `Sample`.

First passes merge, also over streams that share keys: each item tosses its own coin, wherever it is.
"""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flint import arb

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact import floor_words
from dpsieve.locks import OneThread
from dpsieve.randomness.coins import bernoulli, uniform_below
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import LazyUniform
from dpsieve.sampling.monotone import one_minus_exp
from dpsieve.sampling.sample import MARK, Sample
from dpsieve.sampling.schemes import Threshold
from dpsieve.types import Floats, Ints
from dpsieve.values.columns import Kind, check_kind, kind_of_type, plain_items

_HINT = "Pass a batch of the stream: a list or an Arrow array of texts, bytes or whole numbers."
_NEAR = 2.0**-30  # a coin that is nearer to its ratio is decided exactly; floats are right to 2^-48
_WORD = 2.0**64


@register("ppswor_of_stream")
class PpsworOfStream(Threshold):
    """ppswor times 1 - 2^-40: the probability to which `StreamSample` can thin its keys."""

    @staticmethod
    def saturate(rate: Floats) -> Floats:
        return one_minus_exp(rate) * (1 - 2.0**-40)  # a product with a constant is rounded monotonically


class StreamSample:
    """Finds keys in a first pass, counts them in a second. It holds true data: not to be published.

    Its memory grows with the number of keys found, about the sum of 1 - e^(-tau w) over all keys. Neighbours of a
    release made from it: one item of the stream is added or removed. It is for one thread at a time: concurrent use
    raises an error.

    Args:
        tau: the sampling rate; a key of 1/tau items is found with probability 0.63.
        power: items of a key count as w^power, from 0.001 to 1, or 0 (distinct sampling). Memory is that of power 1.
        source: randomness for tests.

    >>> sample = StreamSample(tau=50.0)  # finds nearly every key
    >>> sample.find(["tea", "milk", "tea"])
    >>> sample.count(["tea", "milk"])
    >>> sample.count(["tea"])
    >>> keys, frequencies = sample.finish()
    >>> dict(zip(keys.to_pylist(), frequencies.tolist()))
    {'milk': 1, 'tea': 2}
    """

    def __init__(self, tau: float, power: float = 1.0, *, source: Source | None = None) -> None:
        hint = "Pass a power of at most 1, or count the keys and use dpsieve.Sample."
        self.scheme = PpsworOfStream(tau, validate.between("power", power, 0.0, 1.0, hint=hint))
        self._source = resolve(source)
        self._rate = min(1.0, float(-np.expm1(-self.scheme.tau)) * (1 + 2.0**-49))
        self._passed = [0, 0]
        self._kind: Kind | None = None
        self._alone = OneThread("this sample")
        self._candidates: pa.Array | None = None
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
            selected = np.flatnonzero(bernoulli(np.full(len(batch), self._rate), self._source))
            fresh = pc.unique(batch.take(pa.array(selected)))
            self._candidates = (
                fresh if self._candidates is None else pc.unique(pa.concat_arrays([self._candidates, fresh]))
            )

    def count(self, items: Any) -> None:
        """Take a batch of the second pass, over the same stream."""
        batch = plain_items(items, "items", _HINT)
        with self._alone:
            if self._counts is None:
                self._counts = np.zeros(0 if self._candidates is None else len(self._candidates), np.int64)
            if not self._passes(batch, 1) or self._candidates is None:
                return
            places = pc.index_in(batch, value_set=self._candidates).drop_null()
            self._counts += np.bincount(places.to_numpy(), minlength=len(self._counts))

    def merge(self, other: "StreamSample") -> "StreamSample":
        """Return the first pass over both streams, which may share keys; the second pass is over both, too."""
        if not isinstance(other, StreamSample) or other.scheme != self.scheme:
            raise InvalidValue("other is no sample of a stream with the same tau and power. Make both alike.")
        if other is self:
            raise InvalidValue("other is this sample itself, whose items must not count twice. Merge another one.")
        with self._alone, other._alone:
            if self._counts is not None or other._counts is not None:
                raise InvalidValue("the second pass has begun. Merge samples after their first pass.")
            if other._kind is not None:
                check_kind("other", other._kind, self._kind)
            merged = StreamSample(self.scheme.tau, self.scheme.power, source=self._source)
            merged._kind, merged._passed[0] = self._kind or other._kind, self._passed[0] + other._passed[0]
            candidates = [part._candidates for part in (self, other) if part._candidates is not None]
            merged._candidates = pc.unique(pa.concat_arrays(candidates)) if candidates else None
            return merged

    def sample(self) -> Sample:
        """Return what `finish` does as a `Sample`, for `Channel.release`, estimates and bytes. Call it once.

        It has fresh random numbers that fit, so it cannot be merged with another sample.
        """
        keys, counts = self.finish()
        limits = floor_words(self.scheme.inclusion(counts))
        mark = self._source.words(MARK // 8).tobytes()
        return Sample(keys, counts, self.scheme, *uniform_below(*limits, self._source), mark)

    def finish(self) -> tuple[pa.Array, Ints]:
        """Return the sampled keys, sorted, and their true frequencies, for `already_sampled=True`. Never publish them.

        Call it once: it thins the sample.
        """
        with self._alone:
            if self._counts is None:
                raise InvalidValue("the second pass is missing. Pass the whole stream to count() once more.")
            if self._passed[0] != self._passed[1]:
                raise InvalidValue("the second pass has another length than the first. Pass the same stream twice.")
            candidates, counts = self._candidates, self._counts
            self._candidates, self._counts = None, None
            if candidates is None:
                return pa.array([], pa.string()), counts
            if len(counts) and not counts.all():
                raise InvalidValue("the second pass lacks keys of the first. Pass the same stream twice.")
            kept = self._thinned(counts)
            keys, counts = candidates.take(pa.array(kept)), counts[kept]
            order = pc.sort_indices(keys)
            return keys.take(order), counts[order.to_numpy()]

    def _passes(self, batch: pa.Array, which: int) -> bool:
        """Note the items of a batch in the first or the second pass; return whether there are any."""
        if len(batch):
            check_kind("items", kind_of_type(batch.type), self._kind)
            self._kind = kind_of_type(batch.type)
        self._passed[which] += len(batch)
        return len(batch) > 0

    def _thinned(self, counts: Ints) -> Ints:
        """Return the keys to keep, each with probability (that of the scheme) / (1 - (1 - r)^w), exactly."""
        words, said = self._source.words(len(counts)), self.scheme.inclusion(counts)
        with np.errstate(divide="ignore"):
            ratio = said / -np.expm1(counts * np.log1p(-self._rate))
        places = words.astype(np.float64) / _WORD
        keep = places < ratio
        for k in np.flatnonzero(np.abs(places - ratio) <= _NEAR):
            uniform = LazyUniform(self._source, int(words[k]), 64)
            keep[k] = uniform.below(partial(_ratio, float(said[k]), self._rate, int(counts[k])))
        return np.flatnonzero(keep)


def _ratio(said: float, rate: float, count: int) -> arb:
    return arb(said) / (1 - (1 - arb(rate)) ** count)
