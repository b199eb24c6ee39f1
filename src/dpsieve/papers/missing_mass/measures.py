"""How much of the data a published set of keys misses, and how quickly frequencies fall.

Every function here looks at true data: what it returns is for experiments and public data, and must not be published
about sensitive data. `counts` says for each key how many units hold it. `chosen` is either a mask over the keys, as
selectors return it, or the numbers of keys, which must be in order of choice where the order matters.

Definitions 2.2, 3.1 and 4.1 and appendix F.2 of Dick, Joseph and Raman, 'Missing Mass for Differentially Private Domain
Discovery' (2026).
"""

import math

import numpy as np

from dpsieve import validate
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.types import Bools, Floats, Ints


def missing_mass(counts: Ints, chosen: Bools | Ints, order: float = 1) -> float:
    """Return the l_p norm, p = `order`, of the shares N(x)/N of the keys x that were not chosen; not to be published.

    N(x) is the count of x and N the sum of all counts. Order 1 is the missing mass, order infinity the largest share
    that is missing, and order 0 the number of missing keys; keys that no unit holds are never missing.

    >>> missing_mass(np.array([6, 3, 1]), np.array([True, False, False]))
    0.4
    >>> missing_mass(np.array([6, 3, 1]), np.array([0]), order=math.inf)
    0.3
    """
    if not order >= 0:
        raise InvalidValue(
            "order must be 0 or more. Pass order=1 for the mass, 0 for the keys, math.inf for the largest."
        )
    missed = np.array(counts)
    missed[chosen] = 0
    missed = missed[missed > 0]
    if order == 0 or not missed.size:
        return float(missed.size)
    if order == 1:
        return float(missed.sum() / np.sum(counts))
    return float(np.linalg.norm(missed / np.sum(counts), order))


def top_k_missing_mass(counts: Ints, chosen: Bools | Ints, k: int) -> float:
    """Return the share of pairs that the `k` most frequent keys hold beyond the chosen keys; not to be published.

    The sum of the k largest counts, less the counts of the chosen keys, over the sum of all counts (Definition 4.1). At
    most k keys may be chosen.

    >>> top_k_missing_mass(np.array([6, 3, 1]), np.array([0, 2]), k=2)
    0.2
    """
    picked = _chosen_counts(counts, chosen, k)
    return float((_largest(counts, k).sum() - picked.sum()) / max(np.sum(counts), 1))


def top_k_l1_loss(counts: Ints, chosen: Ints, k: int) -> int:
    """Return how far the counts of the chosen keys, in their order, are from the k largest; not to be published.

    The sum over places i up to k of |N_(i) - N(x_i)|, where N_(i) is the i-th largest count and N(x_i) is the count of
    the key in place i, or 0 beyond the last chosen key. (In appendix F.2 the second sum must start one place later, or
    the last chosen place counts twice.)

    >>> top_k_l1_loss(np.array([6, 3, 1]), np.array([1, 0]), k=3)
    7
    """
    picked, best = _chosen_counts(counts, chosen, k), _largest(counts, k)
    return int(np.abs(best[: len(picked)] - picked).sum() + best[len(picked) :].sum())


def hits(pairs: Pairs, chosen: Bools | Ints) -> int:
    """Return how many units hold at least one chosen key; not to be published.

    >>> hits(Pairs.of(["ab", "bc", "d"]), np.array([1]))
    2
    """
    mask = np.zeros(pairs.keys.num_rows, bool)
    mask[chosen] = True
    before = np.append(0, np.cumsum(mask[pairs.key_numbers]))
    return int((np.diff(before[pairs.starts]) > 0).sum())


def missed_units(pairs: Pairs, chosen: Bools | Ints) -> int:
    """Return how many units hold no chosen key; not to be published. The measure of Figures 3 and 13.

    >>> missed_units(Pairs.of(["ab", "bc", "d"]), np.array([1]))
    1
    """
    return len(pairs.sizes) - hits(pairs, chosen)


def zipf_constant(counts: Ints, s: float) -> float:
    """Return the smallest C >= 1 for which the data is (C, s)-Zipfian; not to be published.

    That is, the r-th largest count is at most C N / r^s for every r, where N is the sum of counts (Definition 3.1).

    >>> zipf_constant(np.array([4, 4, 2]), s=1)
    1.0
    >>> zipf_constant(np.array([4, 4, 2]), s=2)
    1.8
    """
    s = validate.between("s", s, 0.0, 50.0, hint="Pass the exponent of the Zipf law, such as s=1.5.")
    return _constant(_falling(counts), s)


def zipf_fit(counts: Ints, frequency: float = 32) -> tuple[float, float]:
    """Return (C, s), s > 1, for which the data is (C, s)-Zipfian; not to be published.

    Many pairs fit. This one, of s = 1.05, 1.10, ..., 8, bounds best the share of pairs in keys that at most `frequency`
    units hold: it makes s/(s-1) C^(1/s) (frequency/N)^((s-1)/s) least, on which Theorem 3.3 rests (`mass_bound`). So
    `frequency` should be about the largest that a mechanism misses.

    >>> [round(x, 3) for x in zipf_fit(10**6 // np.arange(1, 1000) ** 2)]
    [1.211, 2.1]
    """
    frequency = validate.positive("frequency", frequency, hint="Pass a frequency that is often missed, such as 32.")
    falling = _falling(counts)
    fits = [(_constant(falling, s), s) for s in (1 + np.arange(1, 141) / 20).tolist()]
    share = frequency / max(falling.sum(), 1)
    return min(fits, key=lambda fit: tail_mass(fit[0], fit[1], share))


def tail_mass(c: float, s: float, share: float) -> float:
    """Return the most that keys of at most a share `share` of the pairs hold together in (c, s)-Zipfian data, s > 1.

    The r-th largest share is at most min(share, c r^-s), which falls in r. So the sum over r >= 1 is at most its
    integral from 0 on: with r_0 = (c/share)^(1/s), r_0 share + c r_0^(1-s)/(s-1) = s/(s-1) c^(1/s) share^((s-1)/s).

    >>> round(tail_mass(1.0, 2.0, 0.0001), 4)
    0.02
    """
    return s / (s - 1) * math.exp((math.log(c) + (s - 1) * math.log(share)) / s)


def _constant(falling: Floats, s: float) -> float:
    rising = np.arange(1, len(falling) + 1) ** s
    return float(max(1.0, (falling * rising).max(initial=0) / max(falling.sum(), 1)))


def _falling(counts: Ints) -> Floats:
    present = np.asarray(counts, np.float64)
    return -np.sort(-present[present > 0])


def _largest(counts: Ints, k: int) -> Ints:
    validate.whole("k", k, low=1, hint="Pass how many keys are wanted, such as k=10.")
    falling: Ints = -np.sort(-np.asarray(counts, np.int64))[:k]
    return falling


def _chosen_counts(counts: Ints, chosen: Bools | Ints, k: int) -> Ints:
    picked: Ints = np.asarray(counts, np.int64)[chosen]
    if len(picked) > k:
        raise InvalidValue(f"More than k={k} keys are chosen. Pass at most k of them, best first.")
    return picked
