"""The six schemes of the papers' experiments and of our checks."""

import numpy as np

from dpsieve.sampling import custom, everything, ppswor, priority

SCHEMES = {
    "everything": everything(),
    "ppswor": ppswor(0.05),
    "priority": priority(0.03),
    "sqrt": ppswor(0.3, power=0.5),
    "quadratic": ppswor(0.002, power=2.0),
    "step": custom(np.concatenate([np.full(6, 0.1), np.full(9, 0.35), [0.9]])),
}
