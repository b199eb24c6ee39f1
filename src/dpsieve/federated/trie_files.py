"""What a trie must be to be released, saved or loaded: checked against the questions that lead to it."""

import numpy as np
import pyarrow as pa

from dpsieve.errors import InvalidValue
from dpsieve.federated.level_plans import LevelPlan, levels_of
from dpsieve.federated.trie import TrieRelease
from dpsieve.federated.trie_question import Question
from dpsieve.federated.trie_strings import Strings
from dpsieve.publication.checks import is_sorted, possible

_READ = ("count", "low", "high")


def check_trie(release: TrieRelease) -> None:
    """Raise InvalidValue unless each prefix answers a question that its level could ask, and all else follows."""
    if not _follows(release):
        raise InvalidValue("trie is not one that its plan leads to. Use the release as it was made.")


def _follows(release: TrieRelease) -> bool:
    plan, trie, notes = release.mechanism, release.trie, release.notes
    if not isinstance(plan, LevelPlan) or set(notes) != {"way", "step", "strings"}:
        return False
    strings, step = Strings.from_json(notes["strings"]), notes["step"]
    once = plan.way == "one_round"
    levels = 1 if once else levels_of(strings.max_length, step)
    if (notes["way"], levels, step) != (plan.way, plan.levels, strings.max_length if once else step):
        return False
    text = pa.binary() if strings.of_bytes else pa.string()
    kinds = [pa.int64(), text, pa.bool_(), *[pa.int64()] * 4]
    names = ["level", "prefix", "ended", "token", *_READ]
    if trie.schema != pa.schema(zip(names, kinds, strict=True)) or any(column.null_count for column in trie.columns):
        return False
    tokens = trie["token"].to_numpy()
    if not is_sorted(trie.select(["level", "prefix", "ended"])) or not possible(plan, tokens.astype(np.float64)):
        return False
    reading = plan.read(tokens)
    if any((trie[name].to_numpy() != getattr(reading, name)).any() for name in _READ):
        return False
    return _answers(trie, plan, strings, step) and _ended(release, text)


def _answers(trie: pa.Table, plan: LevelPlan, strings: Strings, step: int) -> bool:
    """Return whether the rows of each level answer the question about the prefixes of the level before."""
    prefixes = (strings.empty,)
    start, places = 0, trie["level"].to_numpy()
    for level in range(1, plan.levels + 1):
        stop = int(np.searchsorted(places, level, side="right"))
        rows = [trie[name].slice(start, stop - start).to_pylist() for name in ("prefix", "ended")]
        answers = list(zip(*rows, strict=True))
        question = Question(plan.way, level, plan.levels, step, plan.coin, strings, prefixes)
        if len(set(answers)) != len(answers) or not all(map(question.asks_for, answers)):
            return False
        prefixes, start = tuple(prefix for prefix, ended in answers if not ended), stop
    return start == len(places)


def _ended(release: TrieRelease, text: pa.DataType) -> bool:
    """Return whether the keys of the release are the strings that ended, with their tokens."""
    found = release.trie.filter(release.trie["ended"]).sort_by("prefix")
    keys = release.table["key"] if len(release) else pa.chunked_array([], text)
    return bool(
        found["prefix"].equals(keys)
        and release.tokens is not None
        and np.array_equal(found["token"].to_numpy(), release.tokens)
    )
