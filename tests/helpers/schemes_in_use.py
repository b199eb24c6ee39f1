"""The six schemes of the papers' experiments and of our checks, and schemes that a test defines itself."""

from dataclasses import dataclass

import numpy as np

from dpsieve.sampling import Scheme, custom, everything, ppswor, priority

SCHEMES = {
    "everything": everything(),
    "ppswor": ppswor(0.05),
    "priority": priority(0.03),
    "sqrt": ppswor(0.3, power=0.5),
    "quadratic": ppswor(0.002, power=2.0),
    "step": custom(np.concatenate([np.full(6, 0.1), np.full(9, 0.35), [0.9]])),
}


@dataclass(frozen=True)
class FunctionScheme(Scheme):
    """A scheme of a user's own class: any function of frequencies above zero, also between whole numbers."""

    function: object

    def __repr__(self):
        return "FunctionScheme"

    def constant_from(self):
        """Return None: where a function stops growing is not known."""

    def _evaluate(self, frequencies):
        return np.where(frequencies > 0, self.function(np.maximum(frequencies, 1.0)), 0.0)
