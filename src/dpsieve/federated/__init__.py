"""Collection from clients by sample-and-threshold, and what the paper compares it with.

`client` is what a device needs, `server` counts and releases, `plans` finds rates and thresholds, and `paper_baselines`
holds other mechanisms. A name is loaded on first use: a device that imports `dpsieve.federated.client` loads nothing
else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsieve.federated import client
    from dpsieve.federated.client import (  # isort: skip
        Budget, Grid, PrefixReport, Question, Report, SplitQuestion, SplitReport, Strings, Terms, ValueQuestion,
        client_answer, client_level, padded_message, split_answer, value_answer,
    )  # fmt: skip
    from dpsieve.federated.paper_baselines import BernoulliNoise, HadamardResponse, SampledLaplace
    from dpsieve.federated.plans.histogram_plan import Plan, plan
    from dpsieve.federated.plans.level_plans import Comparison, LevelPlan, compare, level_plan
    from dpsieve.federated.plans.paper_bounds import (  # isort: skip
        EdgeError, Invitation, edge_error, enough_clients, invite_for_reports, invite_for_sample, lemma_3_delta,
        lemma_5_omission, lemma_6_reports, lemma_9_error, theorem_2_delta,
    )  # fmt: skip
    from dpsieve.federated.server.distribution import Distribution, Estimate, Quantiles
    from dpsieve.federated.server.histogram import Histogram, Reports, Tally
    from dpsieve.federated.server.many_clients import client_levels
    from dpsieve.federated.server.quantile_search import QuantileSearch
    from dpsieve.federated.server.trie import TrieHeavyHitters, TrieRelease
    from dpsieve.jobs.collect import collect_numbers, collect_strings, collect_table

__all__ = [
    "BernoulliNoise", "Budget", "Comparison", "Distribution", "EdgeError", "Estimate", "Grid", "HadamardResponse",
    "Histogram", "Invitation", "LevelPlan", "Plan", "PrefixReport", "QuantileSearch", "Quantiles", "Question", "Report",
    "Reports", "SampledLaplace", "SplitQuestion", "SplitReport", "Strings", "Tally", "Terms", "TrieHeavyHitters",
    "TrieRelease", "ValueQuestion", "client", "client_answer", "client_level", "client_levels", "collect_numbers",
    "collect_strings", "collect_table", "compare", "edge_error", "enough_clients", "invite_for_reports",
    "invite_for_sample", "lemma_3_delta", "lemma_5_omission", "lemma_6_reports", "lemma_9_error", "level_plan",
    "padded_message", "plan", "split_answer", "theorem_2_delta", "value_answer",
]  # fmt: skip

# Where each name is; `collect_table` and its like need an engine, so they live among the jobs.
_NAMES = {
    "federated.paper_baselines": "BernoulliNoise HadamardResponse SampledLaplace",
    "federated.client": "Budget Grid PrefixReport Question Report SplitQuestion SplitReport "
    "Strings Terms ValueQuestion client_answer client_level padded_message split_answer value_answer",
    "federated.plans.histogram_plan": "Plan plan",
    "federated.plans.level_plans": "Comparison LevelPlan compare level_plan",
    "federated.plans.paper_bounds": "EdgeError Invitation edge_error enough_clients invite_for_reports "
    "invite_for_sample lemma_3_delta lemma_5_omission lemma_6_reports lemma_9_error theorem_2_delta",
    "federated.server.distribution": "Distribution Estimate Quantiles",
    "federated.server.histogram": "Histogram Reports Tally",
    "federated.server.many_clients": "client_levels",
    "federated.server.quantile_search": "QuantileSearch",
    "federated.server.trie": "TrieHeavyHitters TrieRelease",
    "jobs.collect": "collect_numbers collect_strings collect_table",
}
_HOME = {name: f"dpsieve.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsieve.federated' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if name in _HOME else import_module(f"dpsieve.federated.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
