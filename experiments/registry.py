"""All experiments, in the order of the papers: each module of experiments has a tuple EXPERIMENTS."""

from functools import cache
from importlib import import_module

from experiment import Experiment

MODULES = (
    "weighted_sampling_histograms", "weighted_sampling_samples", "weighted_sampling_estimates",
    "weighted_sampling_order", "sampled_histograms", "trie_costs", "alp_example", "alp_error", "sparse_vectors",
    "misra_gries", "user_sketches", "skewed_sums", "skewed_means", "skewed_spreads", "data_shapes", "set_union",
    "top_k", "hitting_set",
)  # fmt: skip


@cache
def experiments() -> dict[str, Experiment]:
    """Return all experiments by name."""
    every: list[Experiment] = [one for name in MODULES for one in import_module(name).EXPERIMENTS]
    return {one.name: one for one in every}
