"""T. Dick, M. Joseph and V. Raman, "Missing Mass for Differentially Private Domain Discovery" (2026).

Measures of what discovery misses, bounds on them, the algorithms as printed, and the baselines of the figures. The
mechanisms that the library uses are `dpsieve.discover`, `dpsieve.top_k` and `dpsieve.hitting_set`.
"""

from dpsieve.papers.missing_mass.policies import policy_gaussian, policy_greedy
from dpsieve.papers.missing_mass.repeated_rounds import repeated_rounds

from dpsieve.papers.missing_mass.algorithms import (  # isort: skip
    greedy_keys, known_domain_keys, lemma_c_1, limited_domain, paper_hitting_keys, paper_threshold, paper_top_keys,
    paper_weighted_gaussian,
)  # fmt: skip
from dpsieve.papers.missing_mass.measures import (  # isort: skip
    hits, missed_units, missing_mass, tail_mass, top_k_l1_loss, top_k_missing_mass, zipf_constant, zipf_fit,
)  # fmt: skip
from dpsieve.papers.missing_mass.utility_bounds import (  # isort: skip
    Setting, hard_zipf_counts, hidden_frequency, hits_bound, largest_missing_bound, largest_set_bound,
    least_missed_hits, least_missing_mass, least_top_k_missing_mass, least_zipf_missing_mass, mass_bound,
    missed_frequency, top_k_bound,
)  # fmt: skip

__all__ = [
    "Setting", "greedy_keys", "hard_zipf_counts", "hidden_frequency", "hits", "hits_bound", "known_domain_keys",
    "largest_missing_bound", "largest_set_bound", "least_missed_hits", "least_missing_mass",
    "least_top_k_missing_mass", "least_zipf_missing_mass", "lemma_c_1", "limited_domain", "mass_bound",
    "missed_frequency", "missed_units", "missing_mass", "paper_hitting_keys", "paper_threshold", "paper_top_keys",
    "paper_weighted_gaussian", "policy_gaussian", "policy_greedy", "repeated_rounds", "tail_mass", "top_k_bound",
    "top_k_l1_loss", "top_k_missing_mass", "zipf_constant", "zipf_fit",
]  # fmt: skip
