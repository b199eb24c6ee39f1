"""Which selector: by name, or from the number of keys that a unit typically holds."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dpsieve.channels.budget import SMALLEST_DELTA, SMALLEST_EPSILON
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidValue

# For each name: the module and the name of its maker, and whether that takes the typical number of keys.
_MAKERS = {
    "greedy": ("discovery.greedy", "greedy", False),
    "one_key": ("discovery.greedy", "one_key", False),
    "policy_gaussian": ("papers.missing_mass.policies", "policy_gaussian", False),
    "policy_greedy": ("papers.missing_mass.policies", "policy_greedy", False),
    "renyi": ("discovery.renyi", "renyi_selection", True),
    "renyi_two_rounds": ("discovery.renyi_two_rounds", "two_rounds", True),
    "repeated_rounds": ("papers.missing_mass.repeated_rounds", "repeated_rounds", False),
    "weighted_gaussian": ("discovery.weighted_gaussian", "weighted_gaussian", False),
}
MECHANISMS = ("auto", *_MAKERS)
_FEW, _MANY = 2, 16


def best_for(typical_keys: int) -> tuple[str, str]:
    """Return the name of a selector for units that typically hold this number of keys, and the reason in words.

    From experiments on eight data sets: with one key a unit, greedy selection with the optimal channel finds most; with
    some, two rounds of Renyi selection; with many, where a first round tells little for its price, one round.

    >>> best_for(9)
    ('renyi_two_rounds', 'units typically hold 9 keys')
    """
    name = "greedy" if typical_keys < _FEW else "renyi_two_rounds" if typical_keys < _MANY else "renyi"
    return name, f"units typically hold {typical_keys:,} {'key' if typical_keys == 1 else 'keys'}"


def make_selector(
    name: str,
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: int | None,
    unit: str,
    **options: Any,
) -> Selector:
    """Return the selector of this name; `typical_keys`, a public number, shapes those that can use it."""
    if not isinstance(name, str) or name not in _MAKERS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(MECHANISMS)}.")
    home, maker, shaped = _MAKERS[name]
    make: Callable[..., Selector] = getattr(import_module(f"dpsieve.{home}"), maker)
    more: dict[str, Any] = {"typical_keys": typical_keys} if shaped else {}
    return make(epsilon, delta, max_keys, unit=unit, **more, **options)


def shared_selector(
    name: str, epsilon: float, delta: float, max_keys: int, share: float, typical_keys: int | None, unit: str
) -> Selector:
    """Return a selector that leaves budget for picks: a Renyi one takes a share of tau, another half of epsilon, delta.

    'auto' is one round of Renyi selection.
    """
    name = "renyi" if name == "auto" else name
    if name in _MAKERS and _MAKERS[name][2]:
        return make_selector(name, epsilon, delta, max_keys, typical_keys=typical_keys, unit=unit, share=share)
    if name in _MAKERS and (epsilon / 2 < SMALLEST_EPSILON or delta / 2 < SMALLEST_DELTA):
        fix = "Pass more, or use mechanism='auto'."
        raise InvalidValue(f"epsilon={epsilon:g} and delta={delta:g} are too small to be halved for {name}. {fix}")
    return make_selector(name, epsilon / 2, delta / 2, max_keys, typical_keys=typical_keys, unit=unit)
