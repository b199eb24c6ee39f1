"""Releases of several streams, made private before anyone merges them: for an aggregator who is not trusted.

Each source releases its own sketch (`MisraGries.release`) with the same settings, and the aggregator adds the published
tables up. That is post-processing. Neighbours are add/remove of one item of one stream, or of a unit with at most m
items in any of them: the others' releases stay as they are, and m steps of one item each cost what they cost in one
stream. So the whole has the guarantee of one release, and nothing more is spent.

What it costs is accuracy (Section 3.7 of the thesis): the noises of all sources add up, and each of them withholds what
is below its own threshold t. In a source with noisy loss g = gamma - Y, a key that was published as c + X + Y has a
true frequency of at least c and at most (c + X + Y) + g - X. A key that was not published has at most (t - 1) + g - X,
or, where the sketch did not hold it, gamma = g + Y. So with bounds on all X + Y, on all -X, and on Y, which hold
together with probability 0.95 over all sources, the sums of these are intervals for the sums.

A token encodes the sum T of the published counters and the number p of sources that published it, as
T (sources + 1) + p.
The count adds the loss of these sources, at p / sources of the noisy loss of all: what they have lost on average.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.noise.known_keys import laplace_deviation
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Counting, Drawn, Outcome, Reader, check_tokens, only_number
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import resolve

from dpsieve.sketches.laplace_noise import (  # isort: skip
    MISSED, MOST_LOST, NoisySketch, SketchReading, any_above, find_threshold, read_estimates,
)  # fmt: skip
from dpsieve.types import Floats, Ints

MOST_RELEASES = 10_000
_LARGEST = 1 << 48  # sums of counts, so that a token has 64 bits


@register("misra_gries_releases")
@dataclass(frozen=True, repr=False)
class SummedReleases(Counting):
    """The sum of published releases of several streams, from public numbers alone.

    Attributes:
        epsilon, delta, counters, items_per_unit: the settings that all releases share.
        sources: how many streams were released.
        unit: the protected unit, as text; it follows from items_per_unit.

    >>> print(SummedReleases(1.0, 1e-8, 1024, sources=10).guarantee)
    (1, 1e-08)-differential privacy when one item is added or removed.
    """

    epsilon: float
    delta: float
    counters: int
    items_per_unit: int = 1
    sources: int = 1
    unit: str | None = None

    def __post_init__(self) -> None:
        one = NoisySketch(
            self.epsilon, self.delta, self.counters, items_per_unit=self.items_per_unit, unit=self.unit or ""
        )
        hint = f"Pass how many streams were released, {MOST_RELEASES:,} at most."
        sources = validate.whole("sources", self.sources, low=1, high=MOST_RELEASES, hint=hint)
        shared = {"epsilon": one.epsilon, "delta": one.delta, "counters": one.counters, "unit": one.unit}
        validate.store(self, **shared, items_per_unit=one.items_per_unit, sources=sources)

    def __repr__(self) -> str:
        return f"<{self.sources:,} releases of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @cached_property
    def each(self) -> NoisySketch:
        """What every source used."""
        return NoisySketch(self.epsilon, self.delta, self.counters, items_per_unit=self.items_per_unit)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one unit: that of one release."""
        return self.each.guarantee

    @property
    def threshold(self) -> int:
        """What a count must reach in one source."""
        return self.each.threshold

    @property
    def most_keys(self) -> int:
        """The most keys that the releases may have together."""
        return self.counters * self.sources

    def certify(self) -> Certificate:
        """Return the certificate of one release: each item is in one stream."""
        each = self.each.certify()
        covers = f"{self.sources:,} streams that share no item, each released by {each.parts[-1].covers}"
        return formula(self.guarantee, each.worst, each.parts[-1].method, covers)

    def reader(self, drawn: Drawn) -> "ReleasesReader":
        """Return what reads sums, given the sum of all noisy numbers of decrements, `lost`."""
        return ReleasesReader(self, only_number(drawn, "lost", -MOST_LOST, MOST_LOST))

    @property
    def resolution(self) -> int:
        """The tokens per unit of frequency."""
        return self.sources + 1

    def possible(self, tokens: Ints) -> bool:
        """Return whether all tokens encode sums that their number of sources can have published."""
        total, shown = self.parts(tokens)
        return bool(((total <= _LARGEST) & (shown >= 1) & (total >= shown * self.threshold)).all())

    def token(self, total: Ints, shown: Ints) -> Ints:
        """Return the token of a sum of counts that `shown` sources have published."""
        return total * self.resolution + shown

    def parts(self, tokens: ArrayLike) -> tuple[Ints, Ints]:
        """Return the sums of counts, and by how many sources."""
        total, shown = np.divmod(check_tokens(tokens), self.resolution)
        return total, shown

    @cached_property
    def margins(self) -> tuple[int, int]:
        """Bounds in every source: on all X_i + Y from above, and on all -X_i; Y exceeds the second by less than t."""
        keys, half, scale = self.counters, MISSED / 2 / self.sources, self.each.scale
        below = find_threshold(lambda t: any_above(t, {0: keys}, scale), half) - 1
        return below, find_threshold(lambda t: (keys + 1) * self.each._tail(t), half) - 1


@dataclass(frozen=True)
class ReleasesReader(Reader):
    """Reads sums of published counters, given the sum of the noisy numbers of decrements of all sources."""

    mechanism: SummedReleases
    lost: int

    def read(self, tokens: ArrayLike) -> SketchReading:
        """Return sums of counts, and intervals for the true frequencies over all streams.

        All of them hold at once with probability 0.95.
        """
        mechanism, (total, shown) = self.mechanism, self.mechanism.parts(tokens)
        below, above = mechanism.margins
        low = np.maximum(total - shown * below, shown)
        silent = (mechanism.sources - shown) * (mechanism.threshold - 1)
        high = np.maximum(total + self.lost + mechanism.sources * above + silent, low)
        return read_estimates(self.terms(tokens, None), low, high, total.astype(np.float64))

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the sums of noisy counters plus what their sources may have lost, or g of that."""
        total, shown = self.mechanism.parts(tokens)
        sums = total + self._average_loss(shown)
        return sums if g is None else np.asarray(g(np.maximum(sums, 0)), dtype=np.float64)

    def errors(self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None) -> tuple[float, float]:
        """Return no bias, and an upper bound on the variance of the noise; with a g, about what one deviation makes.

        A source shares one noise among its keys; that it cancels in part is not counted. Nor is what was withheld.
        """
        total, shown = self.mechanism.parts(tokens)
        deviation = laplace_deviation(self.mechanism.each.scale)
        slopes = np.abs(weights)
        if g is not None:
            step, sums = deviation * np.sqrt(2.0 * shown), total + self._average_loss(shown)
            up, down = (np.asarray(g(np.maximum(sums + sign * step, 0)), dtype=np.float64) for sign in (1, -1))
            slopes = np.abs(weights * (up - down)) / (2 * step)
        alone, together = slopes @ (slopes * shown), (slopes @ np.sqrt(shown)) ** 2
        return 0.0, float(deviation**2 * (alone + together))

    def _average_loss(self, shown: Ints) -> Floats:
        return np.asarray(max(self.lost, 0) * (shown / self.mechanism.sources))


def merge_releases(*releases: Release) -> Release:
    """Add up releases of several streams that share no item, for an aggregator who sees nothing else.

    Each is from `MisraGries.release(epsilon, delta)` with the same settings, or from this function. The guarantee is
    that of one of them, and no ledger is charged: the sources have paid. The intervals are for the true frequencies
    over all streams, and hold together with probability 0.95; the count of a key adds the average loss of the sources
    that published it to the sum of their counters. `aggregation_errors` returns what this costs beside a trusted
    aggregator, who merges the sketches themselves.

    >>> from dpsieve import MisraGries
    >>> first, second = MisraGries(10), MisraGries(10)
    >>> first.update(["tea"] * 500)
    >>> second.update(["tea"] * 300)
    >>> merged = merge_releases(first.release(1.0, 1e-8), second.release(1.0, 1e-8))
    >>> merged.table["key"].to_pylist(), str(merged.guarantee)
    (['tea'], '(1, 1e-08)-differential privacy when one item is added or removed.')
    """
    if not releases:
        raise InvalidValue("there are no releases to merge. Pass one or more.")
    parts = [_summed(release) for release in releases]
    if len({id(release) for release in releases}) < len(releases):
        raise InvalidValue("a release would be merged with itself. Pass releases of streams that share no item.")
    if len({(p.epsilon, p.delta, p.counters, p.items_per_unit) for p in parts}) > 1:
        raise InvalidValue("releases differ in their settings. Release all streams with the same epsilon and counters.")
    kinds = {release.table["key"].type for release in releases if len(release)}
    if len(kinds) > 1:
        raise InvalidType("releases hold different kinds of keys. Merge releases of the same kind.")
    mechanism = replace(parts[0], sources=sum(p.sources for p in parts))
    drawn = {"lost": sum(int(release.drawn["lost"]) for release in releases)}
    tables = []
    for release, part in zip(releases, parts, strict=True):
        tokens = cast(Ints, release.tokens)
        is_sum = isinstance(release.mechanism, SummedReleases)
        total, shown = part.parts(tokens) if is_sum else (tokens, np.ones_like(tokens))
        if len(release):
            tables.append(pa.table({"key": release.table["key"], "total": total, "shown": shown}))
    keys, tokens = releases[0].table["key"], np.empty(0, np.int64)
    if tables:
        sums = pa.concat_tables(tables).group_by("key").aggregate([("total", "sum"), ("shown", "sum")])
        keys, tokens = sums["key"], mechanism.token(sums["total_sum"].to_numpy(), sums["shown_sum"].to_numpy())
    notes = Notes(reason=f"{mechanism.sources:,} releases added up, for an aggregator who is not trusted")
    merged = release_of(mechanism, keys.combine_chunks(), Outcome(tokens, drawn), source=resolve(None), notes=notes)
    return replace(merged, unsafe_to_publish=any(release.unsafe_to_publish for release in releases))


def _summed(release: Release) -> SummedReleases:
    """Return one release as a sum of one."""
    mechanism = release.mechanism if isinstance(release, Release) else None
    if isinstance(mechanism, SummedReleases):
        return mechanism
    if type(mechanism) is not NoisySketch:
        raise InvalidType("releases to merge are from MisraGries.release(epsilon, delta), without a universe.")
    return SummedReleases(mechanism.epsilon, mechanism.delta, mechanism.counters, mechanism.items_per_unit)
