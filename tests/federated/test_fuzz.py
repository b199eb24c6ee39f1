"""Whatever bytes arrive, federated code answers with a value or with an error of the family, soon and in little memory."""

import json
import random
import time
import tracemalloc

import pyarrow.parquet as pq
import pytest

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.federated import Histogram, Quantiles, Report, TrieHeavyHitters
from dpsieve.federated.level_plans import from_json as plan_from_json
from dpsieve.federated.quantile_grid import Grid
from dpsieve.federated.quantile_search import SplitQuestion
from dpsieve.federated.trie_question import Question
from dpsieve.federated.trie_strings import Strings
from dpsieve.testing import insecure_source
