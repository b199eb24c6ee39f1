"""Statistical checks with a stated error rate.

The suite draws fresh randomness on every run. Each check fails by chance with probability at most FALSE_ALARM, so that
a suite of a thousand checks fails by chance once in a million runs.
"""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-9


def assert_follows(draws, values, probabilities):
    """Chi-square test that `draws` follow `probabilities` on `values`; all other integers share what is left.

    Cells with fewer than 25 expected draws are merged, so that the chi-square approximation holds far in its tail: with
    cells of just 25 the chance of a false alarm is 2e-7 at most.
    """
    draws, probabilities = np.asarray(draws), np.asarray(probabilities, dtype=float)
    often = dict(zip(*(part.tolist() for part in np.unique(draws, return_counts=True)), strict=True))
    seen = np.array([often.get(v, 0) for v in values], dtype=float)
    outside = max(0.0, 1 - probabilities.sum())
    if outside * len(draws) < FALSE_ALARM:
        assert seen.sum() == len(draws), "draws outside the support"
        return assert_counts(seen, probabilities * len(draws))
    return assert_counts(np.append(seen, len(draws) - seen.sum()), np.append(probabilities, outside) * len(draws))


def assert_cdf(draws, edges, cdf):
    """Chi-square test of the counts of draws in (edges[i], edges[i+1]] against differences of the exact cdf."""
    cumulative = np.array([0.0, *(float(cdf(int(e))) for e in edges), 1.0])
    seen = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(edges) + 1)
    assert_counts(seen.astype(float), np.diff(cumulative) * len(draws))


def assert_counts(seen, expected):
    """Chi-square test of counts; cells with less than 25 expected are joined, and two must be left to compare."""
    order = np.argsort(expected)
    seen, expected = seen[order], expected[order]
    rare = int(np.searchsorted(expected, 25.0))
    while 0 < rare < len(expected) and expected[:rare].sum() < 25:
        rare += 1
    if rare:
        seen = np.append(seen[:rare].sum(), seen[rare:])
        expected = np.append(expected[:rare].sum(), expected[rare:])
    assert len(expected) > 1, "too few draws: no two cells are left to compare"
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-300)).sum()
    assert stats.chi2.sf(statistic, len(expected) - 1) > FALSE_ALARM, (seen, expected)


def binomial_band(count, probability):
    """Return the exact two-sided band of a binomial count that is left with probability FALSE_ALARM."""
    return stats.binom.ppf(FALSE_ALARM / 2, count, probability), stats.binom.isf(FALSE_ALARM / 2, count, probability)
