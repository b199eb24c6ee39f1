"""What every mechanism owes the release that it makes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reading:
    """What tokens tell about the true frequencies behind them; see `dpsieve.Release`."""

    count: Integers
    low: Integers
    high: Integers
    weight: Floats


class Mechanism(ABC):
    """How the tokens of a release were made. It holds public numbers alone, and can be made again from its JSON."""

    name: str
    guarantee: Guarantee
    parameters: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as plain JSON values, from which the same mechanism is made again."""
        return self.parameters

    def knowing(self, **drawn: int) -> Self:
        """Return this mechanism with numbers that were drawn and may be published, as attributes and in its JSON."""
        made = copy(self)
        for name, value in drawn.items():
            setattr(made, name, value)
        made.parameters = {**self.parameters, **drawn}
        return made

    @abstractmethod
    def certify(self) -> Certificate:
        """Return the certificate of what is drawn; raise NotCertified if it breaks the promise."""

    @abstractmethod
    def read(self, tokens: ArrayLike) -> Reading:
        """Return the likeliest frequency behind each token, its 95 % interval, and its weight in a sum."""

    @abstractmethod
    def addends(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return what each token adds to an estimate of the sum of g(true frequency) over all keys."""
