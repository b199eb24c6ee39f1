"""The number of keys that a unit may add: chosen privately from a histogram of keys per unit.

The same histogram gives the coverage: the share of (unit, key) pairs that the bound keeps.
"""

from collections.abc import Callable

from dpsieve.errors import InvalidValue
from dpsieve.jobs.mechanisms import half_reported
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.keys_per_unit import Coverage, KeysPerUnit, Sizes

CANDIDATES = (1, 2, 3, 5, 10, 20, 50, 100, 200)
REHEARSED = (1, 10)  # candidates that use all code that others use
CAUTION, SURE = 2.0, 5.0  # standard deviations of noise: subtracted, and needed at least
TOO_FEW = "; too few units to report coverage"
SHARE_FOR_BOUND, SHARE_FOR_COVERAGE = 0.02, 0.01  # of epsilon
_FEW_KEYS, _LOW_COVERAGE = 10, 0.5


def histogram_for(request: ReleaseRequest) -> KeysPerUnit | None:
    """Return the histogram of keys per unit that a request pays for; None if it needs none."""
    if request.chooses_bound:
        return KeysPerUnit(request.epsilon * SHARE_FOR_BOUND, unit=request.unit)
    if request.report_coverage:
        return KeysPerUnit(request.epsilon * SHARE_FOR_COVERAGE, request.contribution.keys, unit=request.unit)
    return None


def choose_bound(sizes: Sizes, epsilon: float, delta: float) -> int:
    """Return the bound that finds most keys, if bounding thins all keys alike.

    The score of m is the number of (unit, key) pairs that it keeps, over the frequency h(m) that is reported half of
    the time: keys as frequent as h(m) T / (pairs kept), of all T pairs, are reported half of the time, so the largest
    score reaches the rarest keys, whatever their distribution. Two standard deviations of their noise are subtracted
    from the pairs, and a bound whose pairs are within five of them is not taken: noise alone leads to one key.
    """
    seen = [bound for bound in CANDIDATES if sizes.pairs(bound) > SURE * sizes.deviation(bound)] or [1]
    halves = {bound: half_reported(epsilon, delta, bound) for bound in seen}
    return max(seen, key=lambda bound: (sizes.pairs(bound) - CAUTION * sizes.deviation(bound)) / halves[bound])


def describe_choice(epsilon: float, delta: float) -> str:
    """Return the words for a bound that is still to be chosen."""
    some = ", ".join(f"{half_reported(epsilon, delta, m):,.0f} with at most {m}" for m in (1, 10, 100))
    cost = f"for {SHARE_FOR_BOUND:.0%} of epsilon".replace("%", " %")
    span = f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} keys, chosen privately {cost}"
    return f"{span}; a key is reported half of the time at the frequency {some}"


def rarer_keys(request: ReleaseRequest, keys: int, half: float | None = None) -> str:
    """Return how rare a reported key may be, and what would report rarer ones, from public numbers.

    `half` is the frequency that is reported half of the time, where that is known exactly.
    """
    if request.two_steps:
        return "goal='keys' finds rarer keys"
    other = request.known_keys is not None or request.scheme is not None or request.sample_size is not None
    if other or request.method != "auto":
        return ""
    epsilon, delta, rows = request.epsilon, request.delta, request.max_rows_per_key
    changes = {f"max_keys_per_unit={keys // 2}": (epsilon, delta, keys // 2)} if keys > 1 else {}
    changes |= {f"epsilon={2 * epsilon:g}": (2 * epsilon, delta, keys)} if epsilon <= 5 else {}
    changes |= {f"delta={10 * delta:g}": (epsilon, 10 * delta, keys)} if delta <= 1e-6 else {}
    options = [f"{half_reported(*numbers) * rows:,.0f} with {name}" for name, numbers in changes.items()]
    half = half or half_reported(epsilon, delta, keys) * rows
    return f"half of the keys of frequency {half:,.0f} are reported; {', '.join(options)}"


def hint_for(
    reported: int,
    coverage: Coverage | None,
    request: ReleaseRequest,
    keys: int,
    half: Callable[[], float | None] = lambda: None,
) -> str:
    """Return, where few keys are reported, what would report rarer ones; empty otherwise. `half` as in `rarer_keys`."""
    if reported >= _FEW_KEYS:
        return ""
    try:
        hint = rarer_keys(request, keys, half())
    except InvalidValue:  # never fail a paid release because of a hint
        return ""
    if hint and coverage is not None and coverage.high < _LOW_COVERAGE:
        hint += f"; a larger max_keys_per_unit than {keys} would keep more pairs"
    return hint
