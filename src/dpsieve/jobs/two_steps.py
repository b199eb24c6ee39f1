"""Counts in two steps: part of the budget finds the keys, the rest counts them; see `discovery.find_then_count`."""

from dpsieve.accounting.stages import steepest
from dpsieve.channels.budget import check_budget
from dpsieve.discovery.find_then_count import CANDIDATES, FindThenCount, find_then_count
from dpsieve.discovery.median_keys import TypicalSize, median_first
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.jobs.bounds import SHARE_FOR_KEPT, TOO_FEW
from dpsieve.jobs.request import MANY, ReleaseRequest
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source

TWO_STEPS = "keys are found first, and what is left of the budget counts them without a threshold"


def in_two_steps(request: ReleaseRequest, typical: int = 1) -> Composed:
    """Return what units go through, if they typically hold this number of keys."""
    check_budget(request.epsilon, request.delta)
    size, most = _size(request), steepest(request.epsilon, request.delta)
    try:
        made = _after(request, request.epsilon, typical)
    except InvalidValue:
        if typical == 1:
            raise
        made = _after(request, request.epsilon, 1)  # the median is paid for: take what serves every budget
    if made.steepness > most:
        made = _after(request, remaining(request.epsilon, size.epsilon), 1)
    return Composed(request.epsilon, request.delta, (Use(size), Use(made)))


def count_found(request: ReleaseRequest, held: Pairs, source: Source) -> Release:
    """Find keys, and count them, on data that is paid for."""
    whole = in_two_steps(request, _size(request).draw(held.sizes, source))
    size, counting = whole.uses
    assert isinstance(counting.mechanism, FindThenCount)
    found = counting.mechanism.find(held, source)
    done = Composed(whole.epsilon, whole.delta, (size, Use(found.mechanism)))
    words = _words(request, found.mechanism.keys)
    words += TOO_FEW if request.tell_kept and found.kept is None else ""
    notes = Notes(words, TWO_STEPS, kept=found.kept)
    return release_of(done, found.keys, found.tokens, source=source, notes=notes)


def before_counting(request: ReleaseRequest, made: Composed) -> str:
    """Return what would be done, in words."""
    counting = made.uses[-1].mechanism
    assert isinstance(counting, FindThenCount)
    noise = f"counts get noise of standard deviation {counting.sigma:.3g} times the root of that number"
    if request.chooses_bound:
        return f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} of the keys that are found, chosen privately; {noise}"
    return f"{_words(request, counting.keys)}; {noise}"


def _size(request: ReleaseRequest) -> TypicalSize:
    return median_first(request.epsilon, _seen(request), unit=request.unit)


def _seen(request: ReleaseRequest) -> int:
    """Return how many keys of a unit the search for keys sees."""
    return MANY if request.chooses_bound else request.contribution.keys


def _after(request: ReleaseRequest, epsilon: float, typical: int) -> FindThenCount:
    return find_then_count(
        epsilon,
        _size(request).delta_left(request.epsilon, request.delta),
        _seen(request),
        keys=None if request.chooses_bound else request.contribution.keys,
        kept_epsilon=request.epsilon * SHARE_FOR_KEPT if request.tell_kept else 0.0,
        typical_keys=typical,
        unit=request.unit,
    )


def _words(request: ReleaseRequest, keys: int) -> str:
    which = f"at most {keys:,} of the published keys, those found most common first, once each"
    return f"{which}, chosen privately" if request.chooses_bound else which
