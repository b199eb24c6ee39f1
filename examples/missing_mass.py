"""Set union, top-k and hitting sets on public data: what they miss, and what the paper's bounds allow.

    python examples/missing_mass.py

The functions are those of 'Missing Mass for Differentially Private Domain Discovery' (Dick, Joseph and Raman, 2026), in
`dpsieve.papers.missing_mass`. They look at true data: on sensitive data, nothing of this may be published.
"""

import numpy as np

import dpsieve as ds
from dpsieve.engines.true_data import Pairs
from dpsieve.papers import missing_mass as mm
from dpsieve.randomness import SystemSource

EPSILON, DELTA, BETA = 1.0, 1e-5, 0.05


def invent(users: int, seed: int = 1) -> Pairs:
    """Return users with one to eight items each, drawn by Zipf's law: the stand-in for public data."""
    rng = np.random.default_rng(seed)
    sizes, items = rng.integers(1, 9, users), rng.zipf(1.8, (users, 8))
    return Pairs.of(row[:size].tolist() for row, size in zip(items, sizes, strict=True))


def union(pairs: Pairs) -> dict[str, float]:
    """Return the missing mass of each mechanism for set union, with at most 8 items per user."""
    counts, source = pairs.counts(), SystemSource()
    selectors = {
        "Algorithm 1, Theorem 3.2": mm.paper_weighted_gaussian(EPSILON, DELTA, 8),
        "policy Gaussian": mm.policy_gaussian(EPSILON, DELTA, 8),
        "policy Gaussian, alpha 5": mm.policy_gaussian(EPSILON, DELTA, 8, alpha=5.0),
        "policy greedy": mm.policy_greedy(EPSILON, DELTA, 8),
        "repeated rounds": mm.repeated_rounds(EPSILON, DELTA, 8),
    }
    return {name: mm.missing_mass(counts, selector.select(pairs, source)) for name, selector in selectors.items()}


def bounds(pairs: Pairs) -> dict[str, float]:
    """Return what Theorems 3.3, 3.5 and 3.6 say about Algorithm 1, and about every mechanism, on this data."""
    counts, mechanism = pairs.counts(), mm.paper_weighted_gaussian(EPSILON, DELTA, 8)
    c, s = mm.zipf_fit(counts)
    entries, largest = int(counts.sum()), int(pairs.sizes.max())
    setting = mm.Setting(entries, len(counts), largest, mechanism.sigma, mechanism.threshold, 8)
    return {
        "missing mass at most": mm.mass_bound(setting, c, s, BETA),
        "largest missing share at most": mm.largest_missing_bound(setting, BETA),
        "units of a missed key at most": mm.missed_frequency(setting, BETA),
        "missing mass of any mechanism at least": mm.least_missing_mass(counts, EPSILON, DELTA),
        "the same for some data with this tail": mm.least_zipf_missing_mass(entries, c, s, EPSILON, DELTA),
        "units that privacy hides": mm.hidden_frequency(EPSILON, DELTA),
    }


def top_and_hits(pairs: Pairs, k: int) -> dict[str, float]:
    """Return the errors of top-k and hitting sets: as printed, with exact accounts, and of the baselines."""
    counts, source = pairs.counts(), SystemSource()
    limited = mm.limited_domain(counts, k, 5 * k, EPSILON, DELTA)
    printed = mm.paper_top_keys(EPSILON, DELTA, 8, k).find(pairs, source)
    hitting = mm.paper_hitting_keys(EPSILON, DELTA, 8, k).find(pairs, source)
    return {
        "top-k missing mass, Algorithm 3": mm.top_k_missing_mass(counts, printed, k),
        "top-k l1 loss, Algorithm 3": mm.top_k_l1_loss(counts, printed, k),
        "top-k missing mass, limited domain": mm.top_k_missing_mass(counts, limited, k),
        "missed users, Algorithm 4": mm.missed_units(pairs, hitting),
        "missed users, known domain": mm.missed_units(pairs, mm.known_domain_keys(pairs, k, EPSILON, DELTA)),
        "missed users, not private": mm.missed_units(pairs, mm.greedy_keys(pairs, k)),
        "any mechanism misses, on some data": mm.least_missed_hits(k, EPSILON, DELTA),
    }


def main(users: int = 50_000, k: int = 20) -> dict[str, float]:
    """Print and return all of it."""
    pairs = invent(users)
    found = {**union(pairs), **bounds(pairs), **top_and_hits(pairs, k)}
    for name, value in found.items():
        print(f"{name:<42} {value:,.4g}")
    seen = ds.preview(job="discover", privacy_unit="user", epsilon=EPSILON, delta=DELTA, max_keys_per_unit=8)
    print(f"\nBefore anything is spent, dpsieve says:\n{seen}")
    return found


if __name__ == "__main__":
    main()
