"""Collection from clients by sample-and-threshold, and what the paper compares it with."""

from dpsieve.federated.accuracy import enough_clients
from dpsieve.federated.bernoulli_noise import BernoulliNoise
from dpsieve.federated.hadamard import HadamardResponse
from dpsieve.federated.histogram import Histogram
from dpsieve.federated.invitations import Invitation, invite_for_reports, invite_for_sample
from dpsieve.federated.level_plans import Comparison, LevelPlan, compare, level_plan
from dpsieve.federated.paper import lemma_3_delta, lemma_5_omission, lemma_6_reports, theorem_2_delta
from dpsieve.federated.plan import Plan, plan
from dpsieve.federated.quantile_answers import Distribution, Estimate
from dpsieve.federated.quantile_grid import Grid
from dpsieve.federated.quantile_search import QuantileSearch, SplitQuestion, SplitReport, split_answer
from dpsieve.federated.quantiles import Quantiles
from dpsieve.federated.report import Report
from dpsieve.federated.sampled_laplace import SampledLaplace
from dpsieve.federated.table import collect_table
from dpsieve.federated.tally import Tally
from dpsieve.federated.trie import TrieHeavyHitters, TrieRelease
from dpsieve.federated.trie_question import PrefixReport, Question, client_answer, client_levels
from dpsieve.federated.trie_strings import Strings

__all__ = [
    "BernoulliNoise",
    "Comparison",
    "Distribution",
    "Estimate",
    "Grid",
    "HadamardResponse",
    "Histogram",
    "Invitation",
    "LevelPlan",
    "Plan",
    "PrefixReport",
    "QuantileSearch",
    "Quantiles",
    "Question",
    "Report",
    "SampledLaplace",
    "SplitQuestion",
    "SplitReport",
    "Strings",
    "Tally",
    "TrieHeavyHitters",
    "TrieRelease",
    "client_answer",
    "client_levels",
    "collect_table",
    "compare",
    "enough_clients",
    "invite_for_reports",
    "invite_for_sample",
    "lemma_3_delta",
    "lemma_5_omission",
    "lemma_6_reports",
    "level_plan",
    "plan",
    "split_answer",
    "theorem_2_delta",
]
