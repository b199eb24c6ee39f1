"""How much discovery misses at most, and how much every private mechanism misses at least.

Dick, Joseph and Raman, 'Missing Mass for Differentially Private Domain Discovery' (2026), with explicit constants in
place of O and Omega. The upper bounds hold for the weighted Gaussian mechanism (Algorithm 1), followed by Gumbel
peeling of keys (Algorithm 3) or of units (Algorithm 4), with probability at least 1 - beta. They share one step:

**Missed keys are rare.** With probability 1 - beta, every key that the mechanism misses is held by at most tau units
(`missed_frequency`). W_i are the keys of unit i, D the most keys that a unit keeps, q = min(max |W_i|, D), p = min(1, D
/ max |W_i|), M the number of keys, N(x) the number of units that hold x, n(x) those that keep x, T the threshold:

1. Each unit that holds x keeps it with probability p or more, independently. By Chernoff n(x) < p N(x)/2 has
   probability at most exp(-p N(x)/8), at most beta/(2M) if N(x) >= tau_2 = 8 ln(2M/beta)/p. So with probability
   1 - beta/2 all keys of N(x) >= tau_2 have n(x) >= p N(x)/2 (Lemma C.3).
2. Gaussian noise of scale sigma, also discrete, is below -t with probability at most exp(-t^2/(2 sigma^2)). So with
   probability 1 - beta/2 a kept key that is missed has weight at most T_0 = T + sigma sqrt(2 ln(2M/beta)) (Lemma C.4).
3. A unit that keeps x gives it a weight of 1/sqrt(q) or more, so n(x) <= sqrt(q) T_0 for a missed key. Therefore
   N(x) <= max(2 sqrt(q) T_0 / p, tau_2) = tau. If p = 1, then n(x) = N(x): step 1 is not needed, step 2 may use all of
   beta, and tau = sqrt(q) (T + sigma sqrt(2 ln(M/beta))).

Step 1 covers keys that no unit kept, so Lemmas C.2 and C.5 are not needed. `tail_mass` turns tau into a missing mass.
What differs from the text: the proof of Theorem 3.3 (C.2.2) has (r_0 - 1)^(1-s) <= r_0^(1-s), which is reversed; it
takes keys of N(x) <= tau to have ranks above r_0, which need not be; and it uses a^x + b^x <= (9 max)^x, which fails
for x < 1. The integral in `tail_mass` corrects the first two (s/(s-1) in place of 1/(s-1)); the third is not needed, as
one tau covers all missed keys. If the two terms are added as in the text, a factor 2^(1/s) corrects it. With both
factors the printed constant is a bound, and never smaller than ours. Weights in fixed point are smaller by at most
2^-bits, which raises tau by that factor times sqrt(q).
"""

import math
from dataclasses import dataclass

import numpy as np

from dpsieve import validate
from dpsieve.channels.unknown_keys import optimal
from dpsieve.papers.missing_mass.measures import tail_mass
from dpsieve.types import Ints


@dataclass(frozen=True)
class Setting:
    """What the upper bounds of the weighted Gaussian mechanism depend on.

    `entries`, `keys` and `largest_set` are true numbers of the data: use guesses that are public, or public data.

    Attributes:
        entries: N, the number of pairs of a unit and a key.
        keys: M, the number of keys, or anything larger, such as N.
        largest_set: max |W_i|, the largest number of keys of a unit.
        sigma: scale of the noise, where a unit's weights have norm 1.
        threshold: T, on the same scale.
        max_keys: the number of keys that a unit keeps.

    >>> Setting(entries=10**6, keys=10**5, largest_set=50, sigma=3.9, threshold=20.0, max_keys=100).max_keys
    100
    """

    entries: int
    keys: int
    largest_set: int
    sigma: float
    threshold: float
    max_keys: int

    def __post_init__(self) -> None:
        for name in ("entries", "keys", "largest_set", "max_keys"):
            validate.whole(name, getattr(self, name), low=1, hint="Pass a number of 1 or more.")
        for name in ("sigma", "threshold"):
            validate.positive(name, getattr(self, name), hint="Pass the number that the mechanism uses.")


def missed_frequency(setting: Setting, beta: float) -> float:
    """Return tau: with probability 1 - beta no key that more than tau units hold is missed.

    tau = sqrt(q) (T + sigma sqrt(2 ln(M/beta))) if units keep all their keys, else
    tau = max(2 sqrt(q) (T + sigma sqrt(2 ln(2M/beta))), 8 ln(2M/beta)) / p; see the head of this module.

    >>> round(missed_frequency(Setting(10**6, 10**5, 50, 3.9, 20.0, 100), beta=0.05), 1)
    290.0
    """
    beta = _probability(beta)
    root = math.sqrt(min(setting.largest_set, setting.max_keys))
    if setting.largest_set <= setting.max_keys:
        return root * (setting.threshold + setting.sigma * math.sqrt(2 * math.log(setting.keys / beta)))
    log = math.log(2 * setting.keys / beta)
    highest = setting.threshold + setting.sigma * math.sqrt(2 * log)
    return max(2 * root * highest, 8 * log) * setting.largest_set / setting.max_keys


def largest_missing_bound(setting: Setting, beta: float) -> float:
    """Return a bound on the missing mass of order infinity, for any data: tau / N (Theorem 3.6).

    At most 8/(p N) max(ln(3N/beta), sqrt(q) (T + sigma sqrt(2 ln(6N/beta)))), the constant of appendix C.2.3.

    >>> round(largest_missing_bound(Setting(10**6, 10**5, 50, 3.9, 20.0, 100), beta=0.05), 6)
    0.00029
    """
    return min(1.0, missed_frequency(setting, beta) / setting.entries)


def mass_bound(setting: Setting, c: float, s: float, beta: float) -> float:
    """Return a bound on the missing mass of (c, s)-Zipfian data, s > 1 (Theorem 3.3 and Corollary 3.4, corrected).

    s/(s-1) c^(1/s) (tau/N)^((s-1)/s): all missed keys are held by at most tau units, and `tail_mass` bounds what such
    keys hold together.

    >>> round(mass_bound(Setting(10**6, 10**5, 50, 3.9, 20.0, 100), c=1.0, s=2.0, beta=0.05), 4)
    0.0341
    """
    _zipfian(c, s)
    return min(1.0, tail_mass(c, s, largest_missing_bound(setting, beta)))


def top_k_bound(setting: Setting, k: int, scale: float, beta: float) -> float:
    """Return a bound on the top-k missing mass of discovery, then peeling with Gumbel noise (Theorem 4.3).

    k (tau + g) / N, with tau for beta/2 and g = scale (ln L + ln ln L), L = 4M/beta. Proof: of the k most frequent
    keys, those that were not discovered lose at most tau each. Peeling takes y instead of x only if N(x) - N(y) <= Z_y
    - Z_x, and at most k keys are exchanged. Of M draws of Gumbel noise, one is above scale ln L with probability at
    most M/L = beta/4, and one is below -scale ln ln L with probability at most M exp(-ln L) = beta/4. (Lemma 4.2 uses 2
    ln L.)

    Args:
        setting: the data and the weighted Gaussian mechanism.
        k: how many keys are published.
        scale: lambda, the scale of the Gumbel noise; counts are over all keys of a unit.
        beta: the probability with which the bound may fail.

    >>> round(top_k_bound(Setting(10**6, 10**5, 50, 3.9, 20.0, 100), k=10, scale=20.0, beta=0.05), 4)
    0.0067
    """
    k = validate.whole("k", k, low=1, hint="Pass how many keys are wanted, such as k=10.")
    lost = missed_frequency(setting, beta / 2) + _gumbel_spread(setting.keys, scale, beta)
    return min(1.0, k * lost / setting.entries)


def hits_bound(setting: Setting, k: int, scale: float, best: float, beta: float) -> float:
    """Return how many units k keys of discovery, then peeling of units, reach at least (Theorem 4.5).

    (1 - (1 - 1/k)^k) (best - k (tau + g)), where 1 - (1 - 1/k)^k > 1 - 1/e, `best` is what the best k keys reach (or
    any k keys), tau is for beta/2, and g is as in `top_k_bound` with k M draws. Proof: leaving out keys that at most
    tau units hold costs k tau (Lemma C.8). By submodularity a round closes 1/k of the gap to the best set, less the
    noise g, so the gap after k rounds is at most (1 - 1/k)^k best + g (1 + (1 - 1/k) + ... + (1 - 1/k)^(k-1)) (Lemma
    C.7).

    >>> round(hits_bound(Setting(10**6, 10**5, 50, 3.9, 20.0, 100), k=10, scale=8.0, best=90_000, beta=0.05))
    55608
    """
    k = validate.whole("k", k, low=1, hint="Pass how many keys are wanted, such as k=10.")
    lost = missed_frequency(setting, beta / 2) + _gumbel_spread(k * setting.keys, scale, beta)
    return max(0.0, (1 - (1 - 1 / k) ** k) * (best - k * lost))


def largest_set_bound(entries: int, c: float, s: float) -> float:
    """Return a bound on the number of keys of a unit in (c, s)-Zipfian data of N pairs: (c N)^(1/s) (Lemma 3.1).

    >>> largest_set_bound(10**6, 1.0, 2.0)
    1000.0
    """
    return float((c * entries) ** (1 / s))


def hidden_frequency(epsilon: float, delta: float) -> float:
    """Return b: no private mechanism publishes a key of at most b units with a probability above 1/2 (Lemma D.1).

    b = ln(1 + (e^epsilon - 1)/(2 delta))/epsilon, for mechanisms that publish only keys that occur: a key of one unit
    shows with probability at most delta, and each further unit allows at most e^epsilon times as much plus delta.

    >>> round(hidden_frequency(1.0, 1e-5), 2)
    11.36
    """
    epsilon, delta = validate.positive_epsilon(epsilon), _probability(delta, "delta")
    return float(np.logaddexp(0.0, epsilon + math.log(-math.expm1(-epsilon)) - math.log(2 * delta)) / epsilon)


def least_missing_mass(counts: Ints, epsilon: float, delta: float) -> float:
    """Return the least expected missing mass of any private mechanism on data with these counts; not to be published.

    The sum of N(x) (1 - pi(N(x))) over N, where pi(b) is the largest probability with which a private mechanism that
    publishes only keys that occur may publish a key of b units: pi(0) = 0, pi(b) = min(e^epsilon pi(b-1) + delta, 1 -
    e^-epsilon (1 - pi(b-1) - delta)). It is at least what Lemma D.1 gives, and the optimal channel meets it where every
    unit holds one key.

    >>> round(least_missing_mass(np.array([1000, 10, 5, 1]), 1.0, 1e-5), 4)
    0.0145
    """
    counts = np.asarray(counts, np.int64)
    reported = optimal(epsilon, delta).reporting_probability(counts)
    return float((counts * (1 - reported)).sum() / max(counts.sum(), 1))


def hard_zipf_counts(entries: int, c: float, s: float) -> Ints:
    """Return counts of (c, s)-Zipfian data with N = `entries` pairs and the heaviest tail: hard for every mechanism.

    The r-th largest is floor(c N / r^s), cut at a height where the sum is N. (Theorem 3.5 takes c N / r^s in all ranks,
    which no data has: the sum would exceed N. The cut leaves the tail as it is.)

    >>> hard_zipf_counts(20, 1.0, 1.5).tolist()
    [6, 6, 3, 2, 1, 1, 1]
    """
    _zipfian(c, s)
    entries = validate.whole("entries", entries, low=1, hint="Pass how many pairs the data has.")
    last = min(entries, math.floor((c * entries) ** (1 / s)) + 1)
    allowed = np.floor(c * entries / np.arange(1, last + 1) ** s).astype(np.int64)
    allowed = allowed[allowed > 0]
    low, high = 0, entries
    while low < high:
        height = (low + high + 1) // 2
        low, high = (height, high) if np.minimum(allowed, height).sum() <= entries else (low, height - 1)
    counts = np.minimum(allowed, low)
    counts[: entries - counts.sum()] += 1  # ranks in which more is allowed come first, and are more than these
    return counts


def least_zipf_missing_mass(entries: int, c: float, s: float, epsilon: float, delta: float) -> float:
    """Return an expected missing mass that every private mechanism has on some (c, s)-Zipfian data (Theorem 3.5).

    (c^(1/s)/(s-1) N^(-(s-1)/s) (b^((s-1)/s) - s) - b/N) / 2, at most 1/2, with b = `hidden_frequency`. Proof, on
    `hard_zipf_counts`: keys of at most b units are missed with probability 1/2 or more. If the cut is below floor(b),
    all keys are such. Else these keys are the ranks from R = ceil((cN/b)^(1/s)) on, where floor(cN/r^s) counts the j >=
    1 with r <= (cN/j)^(1/s). So they hold at least the sum over j = 1..floor(b) of (cN/j)^(1/s) - (cN/b)^(1/s) - 1
    pairs, and the sum of j^(-1/s) is at least s/(s-1) (b^((s-1)/s) - 1). Together: (cN)^(1/s) (b^((s-1)/s) - s)/(s-1) -
    b pairs.

    >>> round(least_zipf_missing_mass(10**6, 1.0, 2.0, 0.1, 1e-5), 5)
    0.00359
    """
    _zipfian(c, s)
    hidden = hidden_frequency(epsilon, delta)
    pairs: float = (c * entries) ** (1 / s) * (hidden ** ((s - 1) / s) - s) / (s - 1) - hidden
    return min(0.5, max(0.0, pairs / (2 * entries)))


def least_top_k_missing_mass(k: int, entries: int, epsilon: float, delta: float) -> float:
    """Return an expected top-k missing mass that every private mechanism has on some data of N pairs (Corollary 4.4).

    With b = floor(`hidden_frequency`): 1/2 if N <= k b (k keys of at most b units), else (k - 1) b / (2 N): k - 1 keys
    of b units, and one that has the rest. (The text has k b / (2 N), which holds only for N = k b.)

    >>> least_top_k_missing_mass(10, 10**6, 1.0, 1e-5)
    4.95e-05
    """
    hidden = math.floor(hidden_frequency(epsilon, delta))
    return min(0.5, hidden) if entries <= k * hidden else (k - 1) * hidden / (2 * entries)


def least_missed_hits(k: int, epsilon: float, delta: float) -> float:
    """Return how many units every private mechanism misses, of those that the best k keys reach, on some data.

    k floor(b) / 2, with b = `hidden_frequency`: k keys, each of b other units (Corollary 4.6, whose sign is reversed in
    the text: expected hits are at most, not at least, the best less this number).

    >>> least_missed_hits(10, 1.0, 1e-5)
    55.0
    """
    return k * math.floor(hidden_frequency(epsilon, delta)) / 2


def _gumbel_spread(draws: int, scale: float, beta: float) -> float:
    """Return what the range of Gumbel draws exceeds with probability at most beta/2."""
    scale = validate.positive("scale", scale, hint="Pass the scale of the Gumbel noise.")
    log = math.log(4 * draws / _probability(beta))
    return scale * (log + math.log(log))


def _probability(value: float, name: str = "beta") -> float:
    return validate.positive(name, validate.delta(value, name), hint=f"Pass a probability such as {name}=0.05.")


def _zipfian(c: float, s: float) -> None:
    hint = "Take both from zipf_fit."
    validate.between("c", c, 1.0, 1e300, hint=hint)
    validate.positive("s - 1", validate.real("s", s, hint=hint) - 1, hint=hint)
