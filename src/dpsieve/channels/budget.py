"""Limits on budgets and contributions of mechanisms for unknown keys."""

from dpsieve import validate
from dpsieve.errors import InvalidValue

SMALLEST_EPSILON, LARGEST_EPSILON, SMALLEST_DELTA = 1e-3, 50.0, 1e-20
MOST_KEYS, MOST_ROWS = 10_000, 1_000


def check_budget(epsilon: float, delta: float) -> tuple[float, float]:
    """Return epsilon and delta, checked, for keys that are not listed in advance."""
    hint = "Pass a budget such as epsilon=1.0."
    epsilon = validate.between("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON, hint=hint)
    delta = validate.delta(delta)
    if delta < SMALLEST_DELTA:
        why = "a key of one unit may be reported with probability delta at most, so with none no key could ever be"
        fix = "Pass one such as delta=1e-8; when all keys are known in advance, noise without a threshold needs none"
        raise InvalidValue(f"delta={delta:g} is below {SMALLEST_DELTA:g}: {why}. {fix}.")
    return epsilon, delta


def check_max_keys(value: int, name: str = "max_keys") -> int:
    """Return a checked bound on keys per unit."""
    hint = f"Pass how many keys a unit may add, up to {MOST_KEYS:,}."
    return validate.whole(name, value, low=1, high=MOST_KEYS, hint=hint)


def check_max_rows(value: int, name: str = "max_rows") -> int:
    """Return a checked bound on rows per unit in one key."""
    hint = f"Pass how many rows of a unit count in one key, up to {MOST_ROWS:,}."
    return validate.whole(name, value, low=1, high=MOST_ROWS, hint=hint)
