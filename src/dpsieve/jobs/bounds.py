"""How many keys a unit may add: chosen privately, and what such a bound keeps, from one histogram of keys per unit."""

from dataclasses import replace

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.optimal_channels import optimal
from dpsieve.errors import InvalidValue
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.keys_per_unit import KeysPerUnit, Sizes
from dpsieve.noise.report_tables import rough_half
from dpsieve.privacy.composed import Composed, Use
from dpsieve.publication.release import Release

CANDIDATES = (1, 2, 3, 5, 10, 20, 50, 100, 200)
REHEARSED = (1, 10)  # candidates that use all code that others use
CAUTION, SURE = 2.0, 5.0  # deviations of noise: taken off, and needed at least
TOO_FEW = "; too few units to tell which share of their keys that keeps"
_FEW, _LITTLE = 10, 0.5  # released keys, and a share of pairs
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


def told_of_rarer_keys(made: Release, request: ReleaseRequest) -> Release:
    """Return the release; if few keys came out, its notes say what would report rarer ones, from public numbers."""
    last = made.mechanism.uses[-1] if isinstance(made.mechanism, Composed) else Use(made.mechanism)
    bound = last.times if last.times > 1 else getattr(last.mechanism, "max_keys", 1)
    if len(made) >= _FEW or (request.chooses_bound and bound not in CANDIDATES):
        return made
    fixed = replace(request, max_keys_per_unit=bound, tell_kept=False) if request.chooses_bound else request
    each = last.mechanism
    try:
        rarer = for_rarer_keys(fixed, frequency_at(each, 0.5) if isinstance(each, ReportedCounts) else None)
    except InvalidValue:  # a hint is no reason to lose what is paid for
        return made
    if made.notes.kept is not None and made.notes.kept.high < _LITTLE:
        rarer += f"; a larger max_keys_per_unit than {bound} would keep more pairs" if rarer else ""
    return replace(made, notes=replace(made.notes, rarer=rarer))


def for_rarer_keys(request: ReleaseRequest, half: float | None = None) -> str:
    """Return, from public numbers alone, how rare a reported key may be, and what would make that rarer, in words.

    `half` is the frequency that is reported half of the time, where that is known exactly.
    """
    if request.two_steps:
        return "goal='keys' finds rarer keys"
    other = request.known_keys is not None or request.scheme is not None or request.sample_size is not None
    if other or request.mechanism != "auto" or request.chooses_bound:
        return ""
    epsilon, delta, keys, rows = request.epsilon, request.delta, request.contribution.keys, request.contribution.rows
    changes = {f"max_keys_per_unit={keys // 2}": (epsilon, delta, keys // 2)} if keys > 1 else {}
    changes |= {f"epsilon={2 * epsilon:g}": (2 * epsilon, delta, keys)} if epsilon <= 5 else {}
    changes |= {f"delta={10 * delta:g}": (epsilon, 10 * delta, keys)} if delta <= 1e-6 else {}
    found = [f"{half_of(*numbers) * rows:,.0f} with {name}" for name, numbers in changes.items()]
    half = half or half_of(epsilon, delta, keys) * rows
    return f"half of the keys of frequency {half:,.0f} are reported; {', '.join(found)}"


def halves(epsilon: float, delta: float) -> dict[int, float]:
    """Return `half_of` for each candidate."""
    return {keys: half_of(epsilon, delta, keys) for keys in CANDIDATES}


def with_bound(request: ReleaseRequest, sizes: Sizes, epsilon: float) -> ReleaseRequest:
    """Return the request with the bound that finds most keys, if bounding thins all keys alike.

    The score of m is the number of pairs of a unit and a key that it keeps, over the frequency h(m) that is reported
    half of the time: keys as frequent as h(m) T / (pairs kept), of all T pairs, come out half of the time, so the
    largest score reaches the rarest keys, whatever their distribution. From the pairs two deviations of their noise are
    taken off, and a bound whose pairs are within five of them is not taken: noise alone leads to one key.
    """
    if not request.chooses_bound:
        return request
    half = halves(epsilon, request.delta)
    seen = [bound for bound in CANDIDATES if sizes.pairs(bound) > SURE * sizes.deviation(bound)] or [1]
    best = max(seen, key=lambda bound: (sizes.pairs(bound) - CAUTION * sizes.deviation(bound)) / half[bound])
    return replace(request, max_keys_per_unit=best)


def before_choice(request: ReleaseRequest, epsilon: float) -> str:
    """Return what may be chosen, in words."""
    half = halves(epsilon, request.delta)
    some = ", ".join(f"{half[m]:,.0f} with at most {m}" for m in (1, 10, 100))
    cost = f"for {SHARE_FOR_BOUND:.0%} of epsilon".replace("%", " %")
    span = f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} keys, chosen privately {cost}"
    return f"{span}; a key is reported half of the time at the frequency {some}"
