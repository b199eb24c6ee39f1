"""How often one privacy unit uses a mechanism, and what that costs in all."""

from dataclasses import asdict, dataclass
from typing import Any

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, lower
from dpsieve.privacy.curves.repeated import repeated_delta
from dpsieve.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class Uses:
    """How many times one unit goes through a mechanism, once for each of its keys, and a pure epsilon beside.

    Attributes:
        times: how often one unit uses the mechanism.
        extra_epsilon: spent on something else that is purely private, such as the total that sets a sampling rate.

    >>> each = Guarantee(0.1, 1e-10)
    >>> Uses(times=10).keep(each, Guarantee(1.0, 1e-9)), Uses(times=11).keep(each, Guarantee(1.0, 1e-9))
    (True, False)
    """

    times: int = 1
    extra_epsilon: float = 0.0

    def __post_init__(self) -> None:
        hint = "Pass how many keys a unit may add, such as times=1."
        object.__setattr__(self, "times", validate.whole("times", self.times, low=1, high=10**6, hint=hint))
        object.__setattr__(self, "extra_epsilon", validate.epsilon(self.extra_epsilon, "extra_epsilon"))

    def keep(self, each: Guarantee, promise: Guarantee) -> bool:
        """Return whether uses that keep `each` keep `promise` together, by proven bounds.

        The uses compose optimally (`privacy.curves.repeated`); the extra epsilon is added to what they cost.
        """
        if self == ONCE:
            return each.implies(promise)
        if (each.neighbours, each.unit) != (promise.neighbours, promise.unit) or self.extra_epsilon > promise.epsilon:
            return False
        left = remaining(promise.epsilon, self.extra_epsilon)
        cost = repeated_delta(self.times, left, each_epsilon=each.epsilon, each_delta=each.delta)
        return cost <= promise.delta

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Uses":
        """Rebuild what `to_json` returned; anything else is refused."""
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InvalidValue("data does not say how a mechanism was used. Pass what Uses.to_json returned.")
        return cls(**data)


ONCE = Uses()
"""One use, and nothing beside."""


def remaining(epsilon: float, spent: float) -> float:
    """Return epsilon - spent, rounded down, so that both parts together are never more than epsilon."""
    return lower(lambda: ball(epsilon) - ball(spent))
