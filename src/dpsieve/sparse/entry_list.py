"""Lists of large entries: keys whose value with noise reaches a threshold, and these noisy values."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve import validate
from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, upper
from dpsieve.privacy.certificate import Certificate
from dpsieve.randomness.coins import draw_binomial
from dpsieve.randomness.picks import draw_distinct
from dpsieve.randomness.source import Source
from dpsieve.sparse.digests import AnyDimension, Dimension, check_dimension
from dpsieve.sparse.embedding import Errors, Flag, Relation, VectorRelation
from dpsieve.sparse.grid_noise import MOST_VALUE, GridMechanism, GridNoise, NoiseEpsilon, clamp, flip_coins
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, is_between, is_positive

_MOST_FALSE = 2.0**24
_ENOUGH = "Pass what entry_list computes, or more."
_THRESHOLD = "Pass a value above 0 and at most 2^40."


@register("entry_list")
@dataclass(frozen=True)
class EntryList(GridMechanism):
    """The entries that reach the threshold t with noise X (`grid_noise`); entries that are not listed count as 0.

    Neighbouring vectors are those of `neighbours`, see `VectorMechanism`. Values are clamped to 2^40; where `signed` is
    False, also to 0 from below.

    With delta = 0 (Cormode, Procopiuc, Srivastava and Tran 2012): every one of the d = `dimension` entries gets noise,
    zeros too, and is listed if x_i + X_i >= t; where `signed`, if |x_i + X_i| >= t. The list is epsilon-private for any
    t. d must be a number, as zeros are listed too.

    With delta > 0 (Korolova, Kenthapadi, Mishra and Ntoulas 2009): only entries other than 0 get noise, and one is
    listed if it reaches t on its own side of 0. A real value |x_i| < 1 is first made its sign, with probability |x_i|,
    or else 0, which is not listed. With q = P[1 + X >= t] the list is (epsilon, q)-private for both relations, and
    no better: an entry of value 1, that the neighbour does not have, is listed with probability q.
    Proof: docs/background/vectors.md#proof-lists-of-large-entries.

    Attributes:
        dimension: the number of indices, or the kind of keys (see `digests`).
        threshold: t, a whole number of steps of the grid of the noise.
    """

    epsilon: NoiseEpsilon
    delta: Delta
    neighbours: VectorRelation
    dimension: AnyDimension
    threshold: Annotated[float, is_positive(_THRESHOLD), is_between(0.0, MOST_VALUE, _THRESHOLD)]
    signed: Flag = False
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.threshold
        if not (limit * 2.0**self.noise.digits).is_integer():
            step = 2.0**-self.noise.digits
            raise _refuse(f"threshold={limit!r} is not a multiple of {step}, the step of values. {_ENOUGH}")
        if self.delta == 0 and isinstance(self.dimension, str):
            hint = "Pass the number of indices as dimension, or a delta such as 1e-8."
            why = "delta=0 lists false entries too, which cannot be drawn from all possible keys"
            raise InvalidValue(f"{why}. {hint}", argument="delta")
        if self.delta == 0 and self.false_entries > _MOST_FALSE:
            raise _refuse(f"threshold={limit:g} lists more than 2^24 entries falsely. Pass a larger threshold.")
        if self.delta and (limit < 1 or upper(self._shown) > self.delta):
            raise _refuse(f"threshold={limit:g} shows rare entries more often than delta. {_ENOUGH}")

    @property
    def false_entries(self) -> float:
        """Expected number of false entries for the zero vector."""
        return 0.0 if isinstance(self.dimension, str) or self.delta else self.dimension * float(upper(self._lifted))

    def certify(self) -> Certificate:
        covers = "noise on all entries, of which the large ones are listed"
        if self.delta:
            covers = "noise on entries that are not 0, and the probability that one of value 1 is listed"
        return self.noise.certificate(self.guarantee, covers, upper(self._shown) if self.delta else 0.0)

    def spends(self) -> tuple[Spend, ...]:
        return (Approximate(self.epsilon, self.delta),) if self.delta else self.noise.spends()

    def draw(self, keys: pa.Array, values: Any, source: Source) -> tuple[pa.Array, Floats]:
        """Return the keys of the listed entries, sorted, and their noisy values.

        Args:
            keys: of the entries, distinct, from `digests.read_items`.
            values: of the entries: int64 where `neighbours` is 'one_entry', else float64.
            source: of randomness.
        """
        real = clamp(values, -MOST_VALUE if self.signed else 0.0)
        if self.delta:
            reached, steps = self._own_side(real, source)
            keys = keys.filter(pa.array(reached))
        else:
            noisy = self.noise.add_noise(self.noise.steps(real, source), source)
            reached = (np.abs(noisy) if self.signed else noisy) >= self._least
            indices, steps = self._with_false(keys.to_numpy(zero_copy_only=False), reached, noisy[reached], source)
            keys = pa.array(indices)
        order = pc.array_sort_indices(keys)
        return keys.take(order), self.noise.values(steps[order.to_numpy()])

    def listed(self, value: float) -> tuple[float, Errors]:
        """Return the probability that an entry of this value is listed, and the distribution of its error if it is."""
        clamped = float(np.clip(value, -MOST_VALUE if self.signed else 0.0, MOST_VALUE))
        sides = list(self._sides(clamped))
        share = math.fsum(part for part, _ in sides)
        if not share:
            return 0.0, Errors.of(np.zeros(1), np.ones(1))
        values = np.concatenate([errors.values for _, errors in sides]) + (clamped - value)
        return share, Errors.of(values, np.concatenate([part / share * errors.masses for part, errors in sides]))

    def errors(self, value: float) -> Errors:
        """Return the distribution of the error for an entry of this value, where an unlisted one counts as 0."""
        share, errors = self.listed(value)
        return errors.mix(Errors.of(np.array([-float(value)]), np.ones(1)), share)

    def possible(self, values: Floats) -> bool:
        """Return whether values are on the grid and reach the threshold."""
        steps = values * 2.0**self.noise.digits
        reached = np.abs(values) if self.signed else values
        return bool((np.isfinite(values) & (np.rint(steps) == steps) & (reached >= self.threshold)).all())

    @property
    def _least(self) -> int:
        return int(self.threshold * 2.0**self.noise.digits)

    def _shown(self) -> Ball:
        """Enclose P[1 + X >= t]."""
        return self.noise.tail(self._least - (1 << self.noise.digits))

    def _lifted(self) -> Ball:
        """Enclose the probability that noise lifts a zero to the threshold."""
        return self.noise.tail(self._least) * (2 if self.signed else 1)

    def _own_side(self, values: Any, source: Source) -> tuple[Any, Ints]:
        """Return which entries are listed with delta > 0, and the steps of those."""
        size, sign = np.abs(values), np.sign(values).astype(np.int64)
        there = size >= 1
        if self.neighbours == "l1":
            small = np.flatnonzero(~there)
            there[small] = flip_coins(size[small], source)
        noisy = self.noise.add_noise(self.noise.steps(np.maximum(size, 1), source), source)
        reached = there & (noisy >= self._least)
        return reached, (sign * noisy)[reached]

    def _with_false(self, indices: Any, kept: Any, steps: Ints, source: Source) -> tuple[Any, Ints]:
        """Return the listed indices and their steps, with those of zeros that noise lifted."""
        total = int(self.dimension)
        count = draw_binomial(total - len(indices), self._lifted, source)
        places = draw_distinct(count, total, np.sort(indices), source)
        lifted = self._least + self.noise.draw_excess(count, source)
        if self.signed:
            lifted = np.where(source.words(count) >> np.uint64(63), lifted, -lifted)
        return np.concatenate([indices[kept], places]), np.concatenate([steps, lifted])

    def _sides(self, value: float) -> Iterator[tuple[float, Errors]]:
        """Return the probability to be listed above 0, and below, each with the errors given that."""
        for sign in (1, -1) if self.signed else (1,):
            own, weight = sign * value, 1.0
            if self.delta and own < 1:
                weight, own = max(own, 0.0), 1.0
            share = weight * sum(part * self.noise.share_from(self._least - at) for at, part in self.noise.spread(own))
            if share:
                errors = self.noise.errors(own, self._least)
                yield share, Errors.of(sign * (errors.values + own) - value, errors.masses)


def _refuse(why: str) -> InvalidValue:
    return InvalidValue(why, argument="threshold")


def entry_list(
    epsilon: float,
    delta: float = 0.0,
    *,
    neighbours: Relation,
    dimension: Dimension,
    threshold: float | None = None,
    false_entries: float = 1.0,
    signed: bool = False,
    unit: str = "",
) -> EntryList:
    """Return the list of large entries with this threshold, rounded up to a step, or the best one for its budget.

    With delta > 0 that is the least private threshold; with delta = 0 the least at which at most `false_entries` zeros
    are expected to be listed (1/(2 dimension) gives 2 ln(dimension)/epsilon, as in Aumueller, Lebeda and Pagh 2022).

    >>> entry_list(1.0, 1e-8, neighbours="one_entry", dimension="text").threshold
    20.0
    """
    noise = GridNoise(epsilon, neighbours)
    delta, dimension, ones = validate.delta(delta), check_dimension(dimension), 1 << noise.digits
    if threshold is not None:
        given = validate.between("threshold", threshold, 0.0, MOST_VALUE, hint="Pass a value above 0, at most 2^40.")
        steps = math.ceil(given * ones)
    elif delta:
        steps = ones + noise.tail_at_most(delta)
    else:
        hint = "Pass how many zeros may be listed in the mean, such as false_entries=1.0."
        mean = validate.between("false_entries", false_entries, 1e-30, _MOST_FALSE, hint=hint)
        trials = (2 if signed else 1) * (dimension if isinstance(dimension, int) else 1)
        steps = max(1, noise.tail_at_most(min(mean / trials, 1.0)))
    return EntryList(noise.epsilon, delta, noise.neighbours, dimension, steps / ones, signed, unit)
