"""How many keys a unit may add: chosen privately, and what such a bound keeps, from one histogram of keys per unit."""

import math
from dataclasses import replace

from dpsieve.channels import frequency_at
from dpsieve.channels.keys_per_unit import MOST, Kept, KeysPerUnit, Sizes
from dpsieve.channels.makers import optimal
from dpsieve.channels.reporting.coin_choice import rough_half
from dpsieve.jobs.request import ReleaseRequest

CANDIDATES = (1, 2, 3, 5, 10, 20, 50, 100, 200)
SHARE_FOR_BOUND, SHARE_FOR_KEPT = 0.02, 0.01  # of epsilon


def histogram_for(request: ReleaseRequest) -> KeysPerUnit | None:
    """Return the mechanism that a request pays for knowing how many keys units hold; None if it does not ask for it."""
    if request.chooses_bound:
        return KeysPerUnit(request.epsilon * SHARE_FOR_BOUND, unit=request.unit)
    if request.tell_kept:
        return KeysPerUnit(request.epsilon * SHARE_FOR_KEPT, request.contribution.keys, unit=request.unit)
    return None


def half_of(epsilon: float, delta: float, keys: int) -> float:
    """Return nearly the frequency that the best channel reports half of the time, for units of so many keys."""
    return float(frequency_at(optimal(epsilon, delta), 0.5) or 1e12) if keys == 1 else rough_half(epsilon, delta, keys)


def for_rarer_keys(request: ReleaseRequest) -> str:
    """Return, from public numbers alone, how rare a reported key may be, and what would make that rarer, in words."""
    other = request.known_keys is not None or request.scheme is not None or request.sample_size is not None
    if other or request.mechanism != "auto" or request.chooses_bound:
        return ""
    epsilon, delta, keys, rows = request.epsilon, request.delta, request.contribution.keys, request.contribution.rows
    changes = {f"max_keys_per_unit={keys // 2}": (epsilon, delta, keys // 2)} if keys > 1 else {}
    changes |= {f"epsilon={2 * epsilon:g}": (2 * epsilon, delta, keys)} if epsilon <= 5 else {}
    changes |= {f"delta={10 * delta:g}": (epsilon, 10 * delta, keys)} if delta <= 1e-6 else {}
    found = [f"{half_of(*numbers) * rows:,.0f} with {name}" for name, numbers in changes.items()]
    return f"half of the keys of frequency {half_of(epsilon, delta, keys) * rows:,.0f} are reported; {', '.join(found)}"


def halves(epsilon: float, delta: float) -> dict[int, float]:
    """Return `half_of` for each candidate."""
    return {keys: half_of(epsilon, delta, keys) for keys in CANDIDATES}


def with_bound(request: ReleaseRequest, sizes: Sizes, epsilon: float) -> ReleaseRequest:
    """Return the request with the bound that finds most keys, if bounding thins all keys alike.

    The score of m is the number of pairs of a unit and a key that it keeps, over the frequency h(m) that is reported
    half of the time: keys as frequent as h(m) T / (pairs kept), of all T pairs, come out half of the time, so the
    largest score reaches the rarest keys, whatever their distribution. From the pairs one deviation of their noise is
    taken off, so that noise alone leads to few keys.
    """
    if not request.chooses_bound:
        return request
    half = halves(epsilon, request.delta)
    best = max(CANDIDATES, key=lambda bound: (sizes.pairs(bound) - sizes.deviation(bound)) / half[bound])
    return replace(request, max_keys_per_unit=best)


def before_choice(request: ReleaseRequest, epsilon: float) -> str:
    """Return what may be chosen, in words."""
    half = halves(epsilon, request.delta)
    some = ", ".join(f"{half[m]:,.0f} with at most {m}" for m in (1, 10, 100))
    cost = f"for {SHARE_FOR_BOUND:.0%} of epsilon".replace("%", " %")
    span = f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} keys, chosen privately {cost}"
    return f"{span}; a key is reported half of the time at the frequency {some}"


def in_words(request: ReleaseRequest, kept: Kept, chosen: bool) -> str:
    """Return what a unit's rows are cut to, and what that keeps."""
    how = f"{request.contribution}{', chosen privately' if chosen else ''}"
    low, high = math.floor(100 * kept.low), math.ceil(100 * kept.high)
    if high - low > 60:
        return f"{how}; too few units to tell which share of their keys that keeps"
    which = f"{low} to {high} % of all pairs of a unit and a key (about {100 * kept.share:.0f} %)"
    return f"{how}: {which}, of at most {MOST:,} keys a unit"
