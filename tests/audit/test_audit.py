"""`ds.audit` on mechanisms whose epsilon is known, good ones and broken ones."""

import itertools
import json
import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import beta, binom

import dpsieve as ds
from dpsieve.auditing import bounds
from dpsieve.auditing.outputs import features, statements
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.randomness.coins import coins
from dpsieve.randomness.noise import discrete_laplace

SURE = 1 - 1e-6


def seeded(number=1):
    return ds.testing.insecure_source(number)


def noisy_count(epsilon):
    return lambda data, source: len(data) + int(discrete_laplace(1 / epsilon, 1, source=source)[0])


class TestBounds:
    @pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (731, 1000)])
    def test_rates_are_those_of_clopper_and_pearson(self, successes, trials):
        low, high = bounds.rate_low(successes, trials, 0.01), bounds.rate_high(successes, trials, 0.01)
        assert low == pytest.approx(beta.ppf(0.01, successes, trials - successes + 1) if successes else 0.0)
        assert high == pytest.approx(beta.ppf(0.99, successes + 1, trials - successes) if successes < trials else 1.0)

    def test_the_bound_is_above_a_true_epsilon_at_most_as_often_as_stated(self):
        """Exactly, over all outcomes of 30 runs on each input: randomised response of epsilon 1."""
        more, less, outcomes = math.e / (1 + math.e), 1 / (1 + math.e), np.arange(31)
        k, j = np.meshgrid(outcomes, outcomes, indexing="ij")
        wrong = bounds.epsilon_from_rates(k, 30, j, 30, 0.0, 0.9) > 1.0
        assert (binom.pmf(k, 30, more) * binom.pmf(j, 30, less))[wrong].sum() <= 0.1

    @pytest.mark.parametrize("delta", [0.0, 0.01])
    def test_guesses_have_the_probability_of_the_theorem(self, delta):
        """For pure privacy the worst case is independent randomised response; a delta only adds."""
        p_value = bounds.p_value_of_guesses(20, 10, 9, 1.0, delta)
        tail = binom.sf(8, 10, math.e / (1 + math.e))
        within = max(
            sum(binom.pmf(9 - s, 10, math.e / (1 + math.e)) for s in range(1, i + 1)) / i for i in range(1, 10)
        )
        assert p_value == pytest.approx(tail + 2 * 20 * delta * within)

    def test_the_theorem_holds_for_a_mechanism_that_leaks_everything_with_probability_delta(self):
        """Three coins, all outputs enumerated: with probability delta all coins are shown, else randomised response."""
        epsilon, delta, parts = 0.5, 0.1, 3
        accuracy = 1 / (1 + math.exp(-epsilon))
        for least in range(1, parts + 1):
            honest = binom.sf(least - 1, parts, accuracy)
            assert (1 - delta) * honest + delta <= bounds.p_value_of_guesses(parts, parts, least, epsilon, delta)

    def test_what_is_detectable_is_detected_with_the_rates_expected(self):
        least = bounds.detectable_by_rates(1000, 1000, 1.0, 0.0, 0.95)
        assert 1.0 < least < 1.5
        assert bounds.detectable_by_rates(10, 10, 1.0, 0.0, 0.999) == math.inf
        assert 1.0 < bounds.detectable_by_guesses(1000, 1000, 1.0, 1e-9, 0.95) < 1.3


class TestRates:
    def test_a_mechanism_that_keeps_its_promise_passes(self):
        found = ds.audit(noisy_count(1.0), range(9), range(10), epsilon=1.0, runs=600, level=SURE, source=seeded())
        assert found.passed and found.lower_at(level=0.95) > 1 / 3
        assert found.runs == 1200 and found.detectable > 1.0

    def test_one_that_spends_three_times_as_much_does_not(self):
        found = ds.audit(noisy_count(3.0), range(9), range(10), epsilon=1.0, runs=600, level=SURE, source=seeded())
        assert not found.passed and 1.0 < found.lower <= 3.0
        assert "value" in found.event and "failed" in repr(found)

    def test_a_leak_with_a_probability_is_found_at_its_delta(self):
        def leaky(data, source):
            return sorted(key for key in data if key != "secret" or coins(1, 0.2, source=source)[0])

        given = {"epsilon": 1.0, "runs": 900, "level": SURE}
        found = ds.audit(leaky, ["tea"], ["secret", "tea"], delta=0.2, source=seeded(), **given)
        assert found.passed and found.lower_at(delta=0.05) > 1.0
        assert not ds.audit(leaky, ["tea"], ["secret", "tea"], delta=0.05, source=seeded(), **given).passed

    def test_what_is_spread_over_many_numbers_is_found(self):
        """No single number shows it: each of 16 has a sixteenth of the loss."""

        def noisy(shift, source):
            return shift + np.array(discrete_laplace(2.0, 16, source=source))

        found = ds.audit(noisy, 0, 1, epsilon=0.5, runs=600, level=0.999, source=seeded())
        assert not found.passed and "more features" in found.event

    @pytest.mark.parametrize(
        "run",
        [
            lambda data: len(data),
            lambda data: "x" * len(data),
            lambda data: bytes(len(data)),
            lambda data: pa.table({"key": list(data)}),
            lambda data: pd.DataFrame({"key": list(data), "count": 1}),
            lambda data: {"order": sorted(data, reverse=len(data) > 1)},
            lambda data: 1 / (len(data) - 1),
            lambda data: (ds.errors, len(data)),
        ],
    )
    def test_any_output_that_depends_on_a_unit_is_seen(self, run):
        found = ds.audit(run, ["tea"], ["milk", "tea"], epsilon=1.0, runs=60, source=seeded())
        assert not found.passed

    def test_files_are_seen_by_name_size_and_content(self, tmp_path):
        numbers = itertools.count()

        def save(data):
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            (folder / "notes.txt").write_text("tea" if len(data) > 1 else "sea")
            return folder

        found = ds.audit(save, ["tea"], ["tea", "milk"], epsilon=1.0, runs=30, source=seeded())
        assert not found.passed and "notes.txt content" in found.event

    def test_a_function_that_always_fails_is_refused(self):
        with pytest.raises(InvalidValue, match="run raised KeyError in each of the first 26 calls"):
            ds.audit(lambda data: {}["tea"], 0, 1, epsilon=1.0)


class TestDependence:
    def test_equal_words_give_equal_outputs(self):
        found = ds.audit(noisy_count(1.0), range(9), range(9), kind="dependence", source=seeded())
        assert found.passed and found.runs == 60 and found.epsilon is None

    def faulty(self, name):
        def run(data, source):
            words = source.words(2 if name == "draws" and "rare" in data else 1)
            if name == "repeat":
                words = np.array([next(self.clock)], np.uint64)
            if name == "error" and "rare" in data:
                raise ValueError("rare is not a number")
            keys = list(data) if name == "order" else sorted(data)
            kind = pa.large_string() if name == "type" and "rare" in data else pa.string()
            noise = int(words[0] & np.uint64(3)) if name != "value" else len(data)
            table = pa.table({"key": pa.array(keys, kind), "count": [100 + noise] * len(keys)})
            return table.filter(pa.compute.not_equal(table["key"], "rare"))

        self.clock = itertools.count()
        return run

    @pytest.mark.parametrize(
        ("name", "difference"),
        [
            ("draws", "draw 1: 1 words for .* on data, 2 words for .* on the neighbour"),
            ("repeat", "not repeatable on the same data: count of a key differs"),
            ("error", "type on data, error on the neighbour"),
            ("type", "columns differs"),
            ("value", "count of a key differs"),
        ],
    )
    def test_what_depends_on_rows_that_are_not_published_is_named(self, name, difference):
        found = ds.audit(
            self.faulty(name), ["tea", "milk"], ["rare", "tea", "milk"], kind="dependence",
            affected=["rare"], source=seeded(),
        )  # fmt: skip
        assert not found.passed
        assert re.search(difference, found.event), found.event
        assert "tea" not in found.event and "rare" not in found.event

    def test_the_order_of_rows_is_a_layout(self):
        def run(data, source):
            return {"words": float(source.words(3)[0]), "first": data[0] if source.words(1)[0] % 2 else sorted(data)[0]}

        given = {"kind": "dependence", "source": seeded()}
        assert not ds.audit(run, ["tea", "milk"], ["milk", "tea"], **given).passed
        assert ds.audit(
            lambda data, source: [*sorted(data), source.words(2)[1]], ["b", "a"], ["a", "b"], **given
        ).passed

    def test_a_function_that_ignores_the_source_is_refused(self):
        with pytest.raises(InvalidValue, match="run draws nothing from its source"):
            ds.audit(lambda data: len(data), [1], [1], kind="dependence")

    def test_affected_rows_are_left_out(self):
        table = pa.table({"key": ["milk", "tea"], "count": [3, 4]})
        places = [place for place, _ in statements(table, ["tea"])]
        assert "count of 'milk'" in places and "count of 'tea'" not in places and "rows" not in places
        assert "rows" in features(table)


class TestOneRun:
    def response(self, epsilon):
        def run(parts, source):
            keep = coins(len(parts), 1 / (1 + math.exp(-epsilon)), source=source)
            return [part if kept else -part for part, kept in zip(parts, keep, strict=True)]

        return run

    def test_randomised_response_meets_its_epsilon_and_a_false_claim_is_refuted(self):
        given = {"kind": "one_run", "level": SURE, "delta": 1e-9}
        ones, minus = [1] * 2000, [-1] * 2000
        found = ds.audit(self.response(1.0), ones, minus, epsilon=1.0, source=seeded(), **given)
        assert found.passed and found.lower > 0.6 and found.counts[:2] == (2000, 2000)
        assert not ds.audit(self.response(2.0), ones, minus, epsilon=1.0, source=seeded(), **given).passed

    def test_runs_add_their_canaries_up(self):
        found = ds.audit(
            self.response(1.0), [1] * 50, [-1] * 50, epsilon=1.0, kind="one_run", runs=8, guesses=25, source=seeded()
        )
        assert found.counts[:2] == (400, 200) and found.runs == 8

    def test_shared_noise_is_no_false_alarm(self):
        """All canaries are shown or none: guesses of one run are all right together, in one run of a hundred."""

        def run(parts, source):
            return [1.0] * 40 if coins(1, 0.5, source=source)[0] else [-1.0] * 40

        found = ds.audit(run, [1] * 40, [-1] * 40, epsilon=0.1, kind="one_run", level=SURE, source=seeded())
        assert found.passed

    def test_canaries_without_alternative_are_left_out_by_their_coin(self):
        seen = []
        given = {"kind": "one_run", "epsilon": 1.0, "source": seeded()}
        ds.audit(lambda parts: seen.append(parts) or [0.0] * 100, list(range(100)), **given)
        assert 20 < len(seen[0]) < 80 and seen[0] == sorted(set(seen[0]))

    @pytest.mark.parametrize(
        ("data", "neighbour", "score", "message"),
        [
            ("tea", None, None, "data is no list of canaries"),
            ([1, 2], [1], None, "neighbour has not one alternative per canary"),
            ([1, 2], None, lambda _: [1.0], "score has not one number per canary"),
        ],
    )
    def test_bad_canaries_are_refused(self, data, neighbour, score, message):
        with pytest.raises((InvalidType, InvalidValue), match=message):
            ds.audit(lambda parts: [0.0, 0.0], data, neighbour, kind="one_run", epsilon=1.0, score=score)


def test_an_audit_is_plain_json():
    found = ds.audit(noisy_count(1.0), range(9), range(10), epsilon=1.0, runs=60, source=seeded())
    shown = json.loads(json.dumps(found.to_json()))
    assert shown["passed"] is True and shown["lower"] == found.lower and shown["counts"] == list(found.counts)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "rate"}, "kind is not known"),
        ({"runs": 3}, "runs=3 is not between 24"),
        ({"level": 1.0}, "level is not between 0 and 1"),
        ({"epsilon": None}, "epsilon is missing"),
        ({"delta": 2.0}, "delta=2"),
        ({"run": 3}, "run must be a function"),
    ],
)
def test_wrong_arguments_are_named_with_a_fix(changed, message):
    with pytest.raises((InvalidValue, InvalidType), match=message):
        ds.audit(**{"run": len, "data": [1], "neighbour": [2], "epsilon": 1.0, **changed})


def test_a_lower_bound_of_a_dependence_is_refused():
    found = ds.audit(noisy_count(1.0), [1], [1], kind="dependence", runs=1)
    with pytest.raises(InvalidValue, match="bounds no epsilon"):
        found.lower_at()
