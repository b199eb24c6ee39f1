"""Numba: the sums of `sampled_stability`."""

import numpy as np

from dpsieve.compiled.jit import jit


@jit()
def decaying_sums(terms, decay, start):
    """Return s_0 = start, s_1, ..., with s_(k+1) = terms[k] + decay[k] s_k."""
    sums = np.empty(len(terms) + 1)
    sums[0] = start
    for k in range(len(terms)):
        sums[k + 1] = terms[k] + decay[k] * sums[k]
    return sums
