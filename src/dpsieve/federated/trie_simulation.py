"""All clients of a trie in one process, without a loop over them: each tosses the coins that it would toss alone."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.federated.trie_question import Question, client_levels
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source

if TYPE_CHECKING:
    from dpsieve.federated.trie import TrieHeavyHitters


def simulate(server: "TrieHeavyHitters", values: Any, questions: Iterable[Question], source: Source) -> None:
    """Put every question of a server to one client for each value, and count the answers.

    Equal strings are joined first: a level costs one coin for each client, and text is cut once for each distinct
    string that is still in the race.
    """
    column = server.strings.column(values)
    column = column.filter(pa.array(server.strings.accepted(column)))
    encoded = column.dictionary_encode()
    whose, distinct = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    lengths, racing = server.strings.lengths(distinct), np.ones(len(distinct), np.bool_)
    plan = server.plan
    if plan.way == "cohorts":
        drawn = client_levels(len(whose), plan.levels, source=source)
        drawn[~coins(len(whose), plan.coin, source=source)] = 0
    for question in questions:
        racing &= _extends(question, distinct, racing)
        answers = drawn == question.level if plan.way == "cohorts" else coins(len(whose), plan.coin, source=source)
        reports = np.bincount(whose[answers], minlength=len(distinct))
        sent = np.flatnonzero(racing & (reports > 0))
        prefixes = server.strings.prefixes(distinct.take(pa.array(sent)), question.depth)
        server.count(prefixes, lengths[sent] <= question.depth, reports[sent])
        racing &= lengths > question.depth


def _extends(question: Question, distinct: pa.Array, racing: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
    """Return which strings, of those in the race, extend a prefix that is asked about."""
    found = np.zeros(len(distinct), np.bool_)
    places = np.flatnonzero(racing)
    prefixes = question.strings.prefixes(distinct.take(pa.array(places)), question.before)
    asked = pa.array(question.prefixes, question.strings.type)
    found[places] = pc.is_in(prefixes, value_set=asked).to_numpy(zero_copy_only=False)
    return found
