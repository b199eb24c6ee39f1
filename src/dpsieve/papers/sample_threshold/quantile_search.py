"""One quantile by interactive search over splits, simulated in one process (Bharadwaj and Cormode 2022, Lemma 8).

In each round every client states on which side of a split its value is: a sample-and-threshold histogram of two
buckets. It bounds the share of values below the split (`federated.server.bands`; a bucket below the threshold had at
most threshold - 1 reports). If that share is surely below phi, or surely not, one side is ruled out. Otherwise the
split is undecided, and later rounds approach the undecided splits from both sides. `federated.Quantiles` answers every
quantile from one collection.

Privacy: L rounds compose, charged by the exact pairs of their rows without pruning, as every client is asked in every
round; with 'cohorts', each client answers in one round and the whole costs one histogram (`federated.plans.levels`).
Lemma 8 charges L epsilon and L delta.

Coverage: coins of later rounds are independent of earlier ones, so with 'rounds' each of L rounds may miss with
probability 1/L of what is allowed. With 'cohorts' a later cohort is what earlier ones left over; there the bounds hold
for all 3^(i-1) splits that round i can have, each with its part of that.
"""

from typing import Any, NamedTuple, Unpack

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.federated.plans.levels import LevelOptions, LevelPlan, level_plan
from dpsieve.federated.server.bands import largest_share, smallest_share
from dpsieve.federated.server.distribution import check_confidence
from dpsieve.federated.server.simulated_clients import read_numbers
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import coins
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source, resolve

_MOST_ROUNDS = 50


class FoundQuantile(NamedTuple):
    """A quantile, an interval that contains it, and the plan of all rounds."""

    value: float
    low: float
    high: float
    plan: LevelPlan

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all rounds together."""
        return self.plan.guarantee


def search_quantile(
    values: Any,
    phi: float,
    bounds: tuple[float, float],
    *,
    epsilon: float,
    delta: float,
    rounds: int = 10,
    confidence: float = 0.95,
    source: Source | None = None,
    **options: Unpack[LevelOptions],
) -> FoundQuantile:
    """Return inf{q : a share phi of the values is at most q}, from one simulated client per value.

    Args:
        values: one number per client; NaN for a client without one.
        phi: which quantile.
        bounds: the interval that is searched. It must not come from the data.
        epsilon, delta: the budget of all rounds together.
        rounds: the number of splits; the answer is no closer than 2^-rounds of the interval.
        confidence: the probability that the interval contains the quantile.
        source: randomness for tests.
        options: protocol ('rounds' or 'cohorts'), coin, threshold, neighbours and unit, as in `federated.level_plan`.

    >>> found = search_quantile(np.linspace(0.0, 1.0, 100_001) ** 2, 0.5, (0.0, 1.0), epsilon=1.0, delta=1e-6)
    >>> found.low < 0.25 < found.high, found.guarantee.epsilon
    (True, 1.0)
    """
    phi = max(validate.between("phi", phi, 0.0, 1.0, hint="Pass a share such as phi=0.5."), 1e-300)
    hint = "Pass two finite numbers, the lower one first, such as bounds=(0.0, 100.0)."
    start, stop = (validate.real("bounds", end, hint=hint) for end in bounds)
    if not 0 < stop - start < np.inf:
        raise InvalidValue(f"bounds must increase. {hint}")
    if options.get("protocol", "rounds") not in ("rounds", "cohorts"):
        raise InvalidValue("protocol is not known. Choose 'rounds' or 'cohorts'.")
    rounds = validate.whole("rounds", rounds, low=1, high=_MOST_ROUNDS, hint="Pass how many, such as rounds=10.")
    missed, numbers, source = 1 - check_confidence(confidence, "confidence"), read_numbers(values), resolve(source)
    numbers = numbers[~np.isnan(numbers)]
    plan = level_plan(epsilon, delta, rounds, **options)
    cohorts = plan.protocol == "cohorts"
    levels = uniform_integers(len(numbers), rounds, source) + 1 if cohorts else None
    undecided: tuple[float, float] | None = None
    shares = {start: 0.0, stop: 1.0}
    for level in range(1, rounds + 1):
        split = _next_split(start, stop, undecided)
        asked = numbers if levels is None else numbers[levels == level]
        sides = asked[coins(len(asked), plan.coin, source=source)] < split
        below, above = (int(n) if n >= plan.threshold else 0 for n in (sides.sum(), (~sides).sum()))
        if below + above == 0:
            break
        miss, hidden = missed / (2 * rounds * (3.0 ** (level - 1) if cohorts else 1.0)), plan.threshold - 1
        if largest_share(below or hidden, above, miss) < phi:
            start = split
        elif smallest_share(below, above or hidden, miss) >= phi:
            stop = split
        else:
            first, last = undecided or (split, split)
            undecided = (min(first, split), max(last, split))
        if undecided is not None and not start < undecided[0] <= undecided[1] < stop:
            undecided = None  # rounds that contradict each other, which is rare
        shares[split] = below / (below + above)
    at = sorted(shares)
    value = float(np.interp(phi, np.maximum.accumulate([shares[split] for split in at]), at))
    return FoundQuantile(min(max(value, start), stop), start, stop, plan)


def _next_split(start: float, stop: float, undecided: tuple[float, float] | None) -> float:
    """Return the middle of the widest part that is neither ruled out nor between undecided splits."""
    if undecided is not None:
        left, right = (start, undecided[0]), (undecided[1], stop)
        start, stop = left if left[1] - left[0] >= right[1] - right[0] else right
    return start + (stop - start) / 2
