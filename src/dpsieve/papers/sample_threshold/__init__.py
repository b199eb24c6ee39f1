"""A. Bharadwaj and G. Cormode, "Sample-and-threshold differential privacy: histograms and applications" (AISTATS 2022).

What the paper states, to compare with: its bounds (Theorem 2, Lemmas 3, 5, 6 and 9), how many clients to invite
(Lemma 4, corrected), its search for one quantile (Lemma 8), and the mechanisms of its figures, each calibrated as well
as it can be; and the least delta under replacement. The mechanism itself is `dpsieve.channels.sample_threshold`;
collections from clients are in `dpsieve.federated`.
"""

from dpsieve.papers.sample_threshold.baselines import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.papers.sample_threshold.invitations import Invitation, invite_for_reports, invite_for_sample
from dpsieve.papers.sample_threshold.local_encodings import DirectEncoding, UnaryEncoding
from dpsieve.papers.sample_threshold.quantile_search import FoundQuantile, search_quantile
from dpsieve.papers.sample_threshold.replacement import exact_replacement_delta
from dpsieve.papers.sample_threshold.trie_hh import TrieHH

from dpsieve.papers.sample_threshold.bounds import (  # isort: skip
    EdgeError, edge_error, enough_clients, fixed_sample_delta, lemma_1_ratio, lemma_3_delta, lemma_4_invited,
    lemma_5_omission, lemma_6_reports, lemma_9_error, theorem_2_delta,
)  # fmt: skip

__all__ = [
    "BernoulliNoise", "DirectEncoding", "EdgeError", "FoundQuantile", "HadamardResponse", "Invitation",
    "SampledLaplace", "TrieHH", "UnaryEncoding", "edge_error", "enough_clients", "exact_replacement_delta",
    "fixed_sample_delta", "invite_for_reports", "invite_for_sample", "lemma_1_ratio", "lemma_3_delta",
    "lemma_4_invited", "lemma_5_omission", "lemma_6_reports", "lemma_9_error", "search_quantile", "theorem_2_delta",
]  # fmt: skip
