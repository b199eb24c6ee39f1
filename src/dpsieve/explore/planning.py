"""What a mechanism would do, from public numbers alone: which keys appear, how exact counts are, what a goal needs.

Every number is read off the mechanism that the job would use.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpsieve.channels.channel import ReportedCounts, Target, frequency_at
from dpsieve.discovery.find_then_count import FindThenMeasure
from dpsieve.estimation.estimators import Estimator
from dpsieve.exact.balls import first_whole
from dpsieve.jobs.preview import Preview, check_plan, describe_request
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.table_request import TableRequest
from dpsieve.noise.key_totals import KeyTotals
from dpsieve.noise.totals import GRID, Total, columns_of, table_names
from dpsieve.types import Floats, Ints

EPSILONS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # fmt: skip # noqa: E501
_POINTS = 140  # of a curve
_FAR = 30  # times the frequency that is surely reported: errors are shown up to there
_DIGITS = 3  # of a chosen epsilon


class PublishedCount(Estimator):
    """The count of the published table: the likeliest frequency; a key that does not appear counts as 0."""

    kind = "published count"

    def values(self, parts: Ints) -> Floats:
        """Return the count of each token."""
        return self.channel.rows.likeliest(parts)[0].astype(np.float64)


@dataclass(frozen=True, eq=False)
class Reach:
    """What a mechanism for counts reports, and how exactly.

    Attributes:
        name: of the mechanism.
        channel: what one key goes through.
        preview: what the job would say.
    """

    name: str
    channel: Any
    preview: Preview

    def frequency_at(self, share: float) -> int | None:
        """Return the lowest frequency that is reported with this probability; None if there is none."""
        return frequency_at(self.channel, share)

    @cached_property
    def half(self) -> int | None:
        """The frequency that is reported half of the time."""
        return self.frequency_at(0.5)

    @property
    def half_width(self) -> int:
        """Half of the widest 95 % interval of the count of a common key."""
        return (self.preview.width or 0) // 2

    @cached_property
    def surely(self) -> int:
        """The frequency that is reported with probability 99 %."""
        return self.frequency_at(0.99) or 10**6

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability that a key of each frequency is reported."""
        return np.asarray(self.channel.reporting_probability(frequencies))

    def squared_errors(self, frequencies: Ints) -> Floats:
        """Return the mean square error of the published count of a key of each frequency."""
        return PublishedCount(self.channel, Target(None)).mse(frequencies)

    @cached_property
    def _curve(self) -> tuple[Ints, Floats]:
        return self._reported(np.linspace(1, max(10, 1.12 * self.surely), _POINTS))

    @cached_property
    def _errors(self) -> tuple[Ints, Floats]:
        return self._missed(np.geomspace(1, _FAR * self.surely, _POINTS // 2))

    def curve(self, end: int | None = None) -> tuple[Ints, Floats]:
        """Return frequencies, up to `end` if that is farther, and the probability that a key of each is reported."""
        return _longer(self._curve, end, self._reported)

    def errors(self, end: int | None = None) -> tuple[Ints, Floats]:
        """Return frequencies, and the root mean square error of the count of a key of each, as a share of it."""
        return _longer(self._errors, end, self._missed)

    def _reported(self, near: Floats) -> tuple[Ints, Floats]:
        frequencies = np.unique(near.round().astype(np.int64))
        return frequencies, self.reported(frequencies)

    def _missed(self, near: Floats) -> tuple[Ints, Floats]:
        frequencies = np.unique(near.round().astype(np.int64))
        return frequencies, np.sqrt(self.squared_errors(frequencies)) / frequencies

    def expected(self, law: "Law") -> tuple[float, float]:
        """Return the expected number of keys, and the expected share of pairs of a unit and a key that they hold."""
        shares = self.reported(law.frequencies) * law.keys
        return float(shares.sum()), float((shares * law.frequencies).sum() / (law.keys * law.frequencies).sum())


def _longer(curve: tuple[Ints, Floats], end: int | None, more: Callable[[Floats], Any]) -> tuple[Ints, Floats]:
    last = int(curve[0][-1])
    if end is None or end <= last:
        return curve
    beyond = more(np.geomspace(last + 1, end, 8))
    return np.append(curve[0], beyond[0]), np.append(curve[1], beyond[1])


class TotalsReach(Reach):
    """The same of a mechanism with totals: one noise and a threshold, or selection of keys, then noise."""

    channel: KeyTotals | FindThenMeasure

    def frequency_at(self, share: float) -> int | None:
        return first_whole(lambda n: bool(self.reported(np.array([n]))[0] >= share), 1, 10**12)

    @property
    def half_width(self) -> int:
        return math.floor(float(self._noise.half_width_of(np.zeros(1), np.ones(1))[0]) / GRID)

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability that a key of each frequency is reported, whose units hold as many keys as allowed."""
        if isinstance(self.channel, KeyTotals):
            return self.channel.reporting_probability(frequencies)
        selector: Any = self.channel.selector
        weight = selector.weight.of_keys(min(self.channel.contribution.keys, selector.max_keys))[-1]
        return np.asarray(selector.table.probability(frequencies * weight - selector.floor))

    def squared_errors(self, frequencies: Ints) -> Floats:
        if isinstance(self.channel, KeyTotals):
            lowered = frequencies.astype(np.float64) - self.channel.shift
            published = np.where(lowered > 0, self._squares_above(self.channel.threshold / GRID - lowered), 0.0)
        else:
            published = self.reported(frequencies) * 2 * self._squares_above(np.zeros(1))
        return published + (1 - self.reported(frequencies)) * frequencies.astype(np.float64) ** 2

    def intervals(self, frequencies: Ints) -> list[tuple[Total, Floats]]:
        """Return half of the 95 % intervals of each total of keys of these frequencies, NaN where a mean is empty.

        The values of the units are in the middle of the bounds, on average.
        """
        totals, sums = self.channel.totals, np.zeros((len(self.channel.totals), len(frequencies)), np.int64)
        columns = columns_of(
            totals, (), GRID * frequencies, sums, self._noise.half_width_of, np.zeros(len(frequencies), bool)
        )
        ends = [[columns[name].to_numpy(zero_copy_only=False) for name in names[1:]] for names in table_names(totals)]
        return [(total, (high - low) / 2) for total, (low, high) in zip(totals, ends, strict=True)]

    @property
    def _noise(self) -> Any:
        return self.channel.reader({})

    def _squares_above(self, least: Floats) -> Floats:
        """Return E[round(Z)^2; Z >= t] of the noise Z of a count: the sum over j of (2 j - 1) P[Z >= max(j - 1/2, t)].

        Noise is symmetric, so for t < 0 it is the whole second moment without what lies above -t.
        """
        far = 10 * float(self._noise.half_width_of(np.zeros(1), np.ones(1))[0]) / GRID + 2
        at = np.linspace(0, far, 600)
        tail = np.log([max(self._noise.noise_beyond(0.0, 1.0, GRID * z) / 2, 1e-300) for z in at])
        j = np.arange(1, math.ceil(far))
        above = np.append(np.cumsum(((2 * j - 1) * np.exp(np.interp(j - 0.5, at, tail)))[::-1])[::-1], 0.0)
        t = np.minimum(np.abs(least), far)
        first = np.floor(t + 0.5)
        squares = first**2 * np.exp(np.interp(t, at, tail)) + above[np.minimum(first.astype(np.int64), len(j))]
        return np.asarray(np.where(least < 0, 2 * above[0] - squares, squares))


Bounds = tuple[tuple[str, tuple[float, float]], ...]


@lru_cache(maxsize=4096)
def reach(
    epsilon: float, delta: float, max_keys_per_unit: int, method: str, privacy_unit: str, key: str,
    min_units: int = 1, sums: Bounds = (), means: Bounds = (), rest: bool = False,
) -> Reach:  # fmt: skip
    """Return what a release would do with these arguments."""
    asked: Any = {"epsilon": epsilon, "delta": delta, "max_keys_per_unit": max_keys_per_unit, "method": method}
    asked |= {"min_units": min_units, "sums": dict(sums) or None, "means": dict(means) or None, "rest": rest}
    request = TableRequest.of({"key": key, "privacy_unit": privacy_unit, **asked})
    plan = plan_release(request, None)
    preview = describe_request(check_plan(plan), request)
    mechanism: Any = plan.cost
    kind = Reach if isinstance(mechanism.last, ReportedCounts) else TotalsReach
    return kind(preview.mechanism, mechanism.last, preview)


@dataclass(frozen=True, eq=False)
class Law:
    """How many keys have each frequency.

    Attributes:
        frequencies: whole numbers, increasing.
        keys: how many keys have each.
    """

    frequencies: Ints
    keys: Ints

    @classmethod
    def of(cls, frequencies: Ints) -> "Law":
        """Return the law of these frequencies; zeros are left out."""
        return cls(*np.unique(frequencies[frequencies > 0], return_counts=True))

    @property
    def total(self) -> int:
        """The number of keys."""
        return int(self.keys.sum())

    @cached_property
    def by_rank(self) -> tuple[Ints, Ints]:
        """Ranks, the most common key first, and the frequency of each."""
        ranks = np.unique(np.geomspace(1, max(self.total, 1), _POINTS).round().astype(np.int64))
        return ranks, self.frequencies[::-1][np.searchsorted(np.cumsum(self.keys[::-1]), ranks)]


@lru_cache(maxsize=16)
def zipf(units: int, distinct_keys: int, keys_of_a_unit: int, exponent: float, max_keys_per_unit: int) -> Law:
    """Return the law where the key of rank r has a share of all pairs near r^-exponent, after bounding.

    A unit adds the smaller of its keys and the bound; no key has more than all units.

    >>> zipf(1000, 4, 1, 1.0, 1).frequencies.tolist()
    [120, 160, 240, 480]
    """
    weights = np.arange(1, distinct_keys + 1, dtype=np.float64) ** -exponent
    pairs = units * min(keys_of_a_unit, max_keys_per_unit)
    return Law.of(np.minimum(pairs * weights / weights.sum(), units).round().astype(np.int64))


def least_epsilon(
    holds: Callable[[float], bool], near: Callable[[float], Callable[[float], bool]] | None = None
) -> float | None:
    """Return the least epsilon of three digits at which a goal holds; None if it holds at no stop of the slider.

    Goals are taken to be easier at a larger epsilon; the one that is returned was tried. Between two stops, what `near`
    returns for the upper one may stand for `holds`.

    >>> least_epsilon(lambda epsilon: epsilon >= 0.8765)
    0.877
    """
    stop = first_whole(lambda i: holds(EPSILONS[i]), 0, len(EPSILONS), step=len(EPSILONS) // 2)
    if stop == len(EPSILONS):
        return None
    most = EPSILONS[stop]
    if stop == 0:
        return most
    unit = 10.0 ** (math.floor(math.log10(EPSILONS[stop - 1])) - _DIGITS + 1)
    low, high = round(EPSILONS[stop - 1] / unit), round(most / unit)
    close = holds if near is None else near(most)

    def epsilon(steps: int) -> float:
        return float(f"{steps * unit:.{_DIGITS}g}")

    best = epsilon(first_whole(lambda steps: close(epsilon(steps)), low + 1, high, step=(high - low) // 2))
    return best if holds(best) else most


_MAKING = threading.Lock()  # tables are made in the background one at a time, of however many pages


class Ahead:
    """Makes the tables of neighbouring stops of sliders in the background, the nearest first, until asked again."""

    def __init__(self) -> None:
        self._wanted: Sequence[Callable[[], object]] = ()
        self._changed, self._due, self._is_running = threading.Condition(), 0.0, False

    def prepare(self, wanted: Sequence[Callable[[], object]], after: float = 0.0) -> None:
        """Replace what is to be made, once so many seconds have passed; with nothing, stop."""
        with self._changed:
            self._wanted, self._due = wanted, time.monotonic() + after
            self._changed.notify()
            if wanted and not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="explorer-ahead", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._wanted and (left := self._due - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._wanted:
                    self._is_running = False
                    return
                make, *self._wanted = self._wanted
            with _MAKING, contextlib.suppress(Exception):  # whoever moves the slider there gets the error
                make()
