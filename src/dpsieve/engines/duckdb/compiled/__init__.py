"""The door to compiled loops inside DuckDB, which count large tables faster than SQL, with the same result.

SQL is the reference. Loops are used only

- with versions of DuckDB that were tested: they rely on its hashes;
- unless DPSIEVE_COMPILED=off, and where they are in the cache of compiled code: no call waits for a compiler;
- after a self-test on this machine, `agree_with_sql`, whose result is kept beside the compiled code;
- for columns that they support, see `pairs.suits_loops`.

Where anything fails, SQL counts. All of that is before anything is charged.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from dpsieve.compiled import jit
from dpsieve.display import log

_T = TypeVar("_T")
TESTED = ("2.0.0",)
_PASSED = "loops agree with SQL"


class NotReady(Exception):
    """The self-test has no result, as where memory is short or only some of the loops are compiled yet."""


def load_loops() -> Any:
    """Return the module of the loops over pairs, or None where they are not to be used."""
    if duckdb.__version__ not in TESTED or jit.how_to_compile() == "off":
        return None
    try:
        from dpsieve.engines.duckdb.compiled import pairs

        return pairs if passes_self_test() else None
    except (jit.NotCompiled, NotReady):
        log.info("compiled loops are not ready yet; SQL counts")
    except Exception as error:  # of numba, llvmlite, the C interface, or the folder for temporary files
        log.warning("compiled loops cannot be loaded (%s); SQL counts instead", type(error).__name__)
    return None


def load_pair_loops() -> Any:
    """Return the module of loops over pairs in memory, or None where numpy takes their place."""
    if jit.how_to_compile() == "off":
        return None
    starts, key_numbers, added = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty((0, 0))
    try:
        from dpsieve.engines.duckdb.compiled import pair_loops as loops

        loops.count_keys(starts, key_numbers, added, 1, 0, 0, np.zeros((1, 0), np.int64))
        loops.first_keys(starts, key_numbers, added, 1, 0, 0, starts, key_numbers, added)
        loops.rank_keys(starts, key_numbers, added, key_numbers, 0, 0, starts, key_numbers, added)
    except Exception:  # as in `load_loops`
        return None
    return loops


@cache
def passes_self_test() -> bool:
    """Return whether loops agree with SQL on this machine, as the cache of compiled code notes or as they do now."""
    if jit.is_noted(_PASSED):
        return True
    passed = agree_with_sql()
    if passed:
        jit.note(_PASSED)
    else:
        log.warning("compiled loops do not agree with SQL on this machine; SQL counts instead")
    return passed


def agree_with_sql() -> bool:
    """Return whether loops and SQL keep the same keys of 1,000 made-up rows, with units and keys of all kinds.

    Texts are short, long, equal at their beginnings, repeated and null; integers are negative and at their limits. What
    pairs add is the same, too.
    Where loops give no answer, `NotReady` is raised, so that the next call tries again.
    """
    from dpsieve.engines.duckdb.compiled.pairs import pairs_by_loops
    from dpsieve.engines.duckdb.engine import DuckDB, run_loops
    from dpsieve.engines.engine import Aggregation, Columns
    from dpsieve.noise.totals import RawTotal, Total
    from dpsieve.privacy.guarantee import Contribution

    place = np.arange(1000)
    few, ends = place.tolist(), np.array([-(2**63), -1, 2**63 - 1])
    texts = [None if i % 97 == 0 else "key " * (i % 5) + str(i * i % 31) + "\N{TEAPOT}" * (i % 3) for i in few]
    rows = pa.table({
        "number": pa.array(np.where(place % 7 == 0, ends[place % 3], place % 89)), "key": texts,
        "text": [f"unit {i % 41 * 10 ** (i % 3 * 5)}" for i in few],
        "small": pa.array(place * place % 53 - 20, pa.int32()),
    })  # fmt: skip
    engine = DuckDB(threads=2, compiled_from=None)
    for unit, key in ((("number",), "key"), (("text",), "small"), (("small", "text"), "key")):
        totals = Total("small", "mean", -5, 20), RawTotal("number", "sum")
        task = Aggregation(Columns((key,), unit, totals), Contribution(3), salt=2**64 - 59, allow_null_units=True)
        found = engine.answer(rows, task, partial(run_loops, pairs_by_loops))
        if found is None:
            raise NotReady
        expected = engine.read_pairs(rows, task)
        same_sums = np.array_equal(found.added, expected.added, equal_nan=True)
        if not np.array_equal(found.starts, expected.starts) or not same_sums:
            return False
        names = [pairs.keys[key].take(pa.array(pairs.key_numbers)) for pairs in (found, expected)]
        if not names[0].equals(names[1]):
            return False
    return True


def answer_or_none(answer: Callable[[], _T]) -> _T | None:
    """Return an answer of loops; None where they fail or give up."""
    from dpsieve.engines.duckdb.compiled.numbering import Unavailable

    try:
        return answer()
    except (Unavailable, OSError, duckdb.Error):  # data may cause these, so nothing is logged
        return None
    except jit.NotCompiled:
        log.info("compiled loops are not in the cache yet; SQL counts")
    except Exception as error:  # of numba, llvmlite or memory; not caused by the data
        log.warning("compiled loops failed (%s); SQL counts instead", type(error).__name__)
    return None
