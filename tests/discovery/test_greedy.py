"""Every unit counts in one key: the first, or the first that is not yet full; the optimal channel decides."""

import json

import numpy as np
import pytest
from discovery.neighbours import assert_rate, by_key, difference, divergence, outcomes, worst_of

from dpsieve.channels import optimal
from dpsieve.discovery.greedy import greedy, one_key
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source


def test_a_unit_counts_in_its_first_key_that_is_not_full():
    selector = greedy(1.0, 0.05, 3)
    full = selector.cutoff
    units = [["a", "b", "c"]] * (full + 2) + [["b", "a"], ["a", "c"]]
    assert by_key(units, selector.counts) == {"a": full, "b": 3, "c": 1}
    assert by_key([["a", "b"]] * 1000, selector.counts) == {"a": full, "b": full}


def test_the_cutoff_is_where_nearly_every_key_shows():
    selector = greedy(1.0, 1e-5, 100)
    before, at = optimal(1.0, 1e-5).reporting_probability([selector.cutoff - 1, selector.cutoff])
    assert before < 0.999 <= at


@pytest.mark.parametrize("selector", [one_key(1.0, 0.05), greedy(1.0, 0.05, 20)], ids=["one key", "greedy"])
def test_a_unit_alone_shows_a_key_with_probability_delta(selector):
    assert_rate(selector, selector.max_keys, 0.05)


class SmallCutoff:
    """A greedy selector whose cutoff is reached by few units; the counts do not depend on anything else."""

    def __init__(self, cutoff):
        self.selector = greedy(1.0, 0.05, 5)
        self.selector.__dict__["cutoff"] = cutoff  # where the cached property stores it


@pytest.mark.parametrize("cutoff", [1, 2, 3])
def test_one_unit_changes_one_count_by_one(cutoff):
    counts = SmallCutoff(cutoff).selector.counts

    def score(units, out):
        changed = difference(units, out, counts)
        assert sorted(changed.tolist()) in ([0] * len(changed), [0] * (len(changed) - 1) + [1])
        return np.abs(changed).sum()

    assert worst_of(score, keys=5, tries=30, steps=30) == 1


def test_with_two_picks_that_would_fail():
    """So the search above would find a unit that changes more, if there were one."""

    def two_picks(held):
        counts = np.zeros(held.keys.num_rows, np.int64)
        for start, stop in zip(held.starts, held.starts[1:], strict=False):
            below = [key for key in held.key_numbers[start:stop] if counts[key] < 2][:2]
            counts[below] += 1
        return counts

    moved = worst_of(lambda units, out: (difference(units, out, two_picks) ** 2).sum(), keys=5, tries=30, steps=40)
    assert moved > 2


def test_no_small_neighbours_are_further_apart_than_promised():
    selector = SmallCutoff(3).selector

    def chances(held):
        return np.where(selector.counts(held) > 0, np.append(0, rates)[selector.counts(held)], 0)

    rates = selector.channel.reporting_probability(np.arange(1, 10))

    def score(units, out):
        pair = [outcomes(by_key(each, chances)) for each in (units, units[:out] + units[out + 1 :])]
        return divergence(*pair, selector.epsilon)

    assert worst_of(score, tries=10, steps=30) == pytest.approx(0.05, rel=1e-5)


def test_greedy_finds_more_than_one_key():
    rng = np.random.default_rng(1)
    units = [[f"key {int(n)}" for n in rng.zipf(1.3, 5) % 500] for _ in range(3000)]
    found = greedy(1.0, 1e-5, 5).select(Pairs.of(units), insecure_source(1)).sum()
    first = one_key(1.0, 1e-5).select(Pairs.of([each[:1] for each in units]), insecure_source(1)).sum()
    assert found > 2 * first > 20


@pytest.mark.parametrize("selector", [one_key(1.0, 1e-6), greedy(1.0, 1e-6, 7)], ids=["one key", "greedy"])
def test_it_is_certified_by_the_kernel_and_saved(selector):
    assert [part.method for part in selector.certify().parts] == ["kernel", "kernel"]
    assert selector.certify().worst <= 1e-6
    assert from_json(json.loads(json.dumps(selector.to_json()))) == selector
    assert selector.select(Pairs.of([]), None).tolist() == []


def test_one_key_refuses_several():
    with pytest.raises(DpsieveError, match="max_keys"):
        from_json({**one_key(1.0, 1e-6).to_json(), "max_keys": 2})
