"""What runs on a device: nothing heavy is loaded, coins and levels are exact, and messages survive the wire."""

import json
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM, assert_counts, binomial_band

from dpsieve.errors import DpsieveError, InvalidType
from dpsieve.federated import Histogram, TrieHeavyHitters, plan
from dpsieve.federated.client import (
    PrefixReport,
    Question,
    Report,
    Strings,
    ValueQuestion,
    client_answer,
    client_level,
    coins,
    questions,
    value_answer,
)
from dpsieve.randomness.coins import coins as many_coins
from dpsieve.testing import insecure_source

HEAVY = ("numpy", "pyarrow", "scipy", "flint", "numba", "sqlite3", "cryptography", "duckdb", "pandas", "rich")

MEASURE = """
import json, resource, sys, time
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
import {modules}
seconds, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([seconds, (after - before) / 1024, list(sys.modules)]))
"""


class Script:
    """A source of tests without NumPy or any base class: it gives these whole numbers of `bits` bits, one by one."""

    def __init__(self, bits, *numbers):
        self.bits, self.numbers = bits, list(numbers)

    def words(self, count):
        drawn = self.numbers.pop(0) << (64 * count - self.bits)
        return [drawn >> (64 * place) & (2**64 - 1) for place in range(count)]


def measured(modules, tmp_path):
    """Return seconds and megabytes of an import in a fresh process, the best of four, and what is loaded then."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": str(tmp_path)}  # a device compiles what it imports once
    runs = []
    for _ in range(4):
        command = [sys.executable, "-c", MEASURE.format(modules=modules)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return min(run[0] for run in runs), min(run[1] for run in runs), runs[-1][2]


def test_a_device_loads_the_standard_library_alone(tmp_path):
    bare, _, before = measured("typing, json, dataclasses", tmp_path)
    seconds, megabytes, loaded = measured("dpsieve.federated.client", tmp_path)
    rooms = {name.partition(".")[0] for name in {*loaded} - {*before}}
    assert rooms <= {*sys.stdlib_module_names, "dpsieve"} - {"sqlite3"} and not {*loaded} & set(HEAVY)
    assert sum(name.startswith("dpsieve") for name in loaded) <= 12
    assert megabytes < 15 and seconds - bare < 0.3  # a slow machine takes 0.1 s


def test_a_device_does_its_whole_work_without_anything_heavy(tmp_path):
    """A question comes as JSON, an answer leaves as bytes. All of 99 answers are silent less than once in 10^9 runs."""
    histogram = Histogram(plan(1.0, 1e-8), ["tea", "milk"])
    trie = TrieHeavyHitters(2.0, 1e-6, max_length=3, protocol="cohorts")
    asked = [question.to_json() for question in (histogram.question, next(trie.questions()))]
    work = f"""
import json, sys
from dpsieve.federated.client import *
value, string = json.loads({json.dumps(json.dumps(asked))})
question = Question.from_json(string)
assert 1 <= client_level(question.levels) <= 3
digits = Grid(0.0, 100.0, branching=4, depth=5).string(42.5)
answers = [
    answer()
    for answer in (
        lambda: value_answer(ValueQuestion.from_json(value), "tea", budget=None),
        lambda: client_answer(question, "abc", level=1, budget=None),
    )
    for _ in range(99)
]
assert len(set(map(type, answers))) == 3, "both reports, and silence"
sent = [answer.to_bytes() for answer in answers if answer is not None]
budget = Budget(sys.argv[1], epsilon=9.0, delta=1e-5, exposure=0.9)
for asks, answer, mine in (
    (ValueQuestion.from_json(value), value_answer, "tea"),
    (question, client_answer, "abc"),
):
    assert budget.refusal(asks) is None
    padded_message(asks, answer(asks, mine, budget=budget))
    assert budget.refusal(asks) is not None
assert budget.spent().collections == 2
assert not set(sys.modules) & {set(HEAVY)!r}
"""
    subprocess.run([sys.executable, "-c", work, str(tmp_path / "budget")], check=True, capture_output=True)


class TestCoins:
    @pytest.mark.parametrize("bits", range(8))
    def test_every_rate_of_a_few_bits_is_exact(self, bits):
        """Of all 2^k equally likely numbers, exactly n make the coin of n / 2^k heads."""
        for heads in range(2**bits + 1):
            rate = heads / 2**bits
            used = Fraction(rate).denominator.bit_length() - 1  # 2/4 is 1/2, which takes one bit
            found = sum(coins.coin(rate, Script(used, number)) for number in range(2**used))
            assert Fraction(found, 2**used) == Fraction(heads, 2**bits)

    @pytest.mark.parametrize("rate", [1e-9, 0.1, 0.24, 1 - 1e-9, 5e-324])
    def test_any_float_is_the_number_that_it_is(self, rate):
        """Heads up to one number below the numerator, tails from there on: the last bit counts."""
        numerator, denominator = rate.as_integer_ratio()
        bits = denominator.bit_length() - 1
        assert Fraction(rate) == Fraction(numerator, 2**bits)
        assert coins.coin(rate, Script(bits, numerator - 1)) and not coins.coin(rate, Script(bits, numerator))

    @pytest.mark.parametrize("count", range(1, 18))
    def test_levels_are_equally_likely(self, count):
        """Numbers that are too large are drawn again, so each level has one number of those that remain."""
        bits = (count - 1).bit_length()
        drawn = [coins.uniform(count, Script(bits, number, 0)) for number in range(2**bits)]
        assert drawn == [*range(count), *[0] * (2**bits - count)]

    @pytest.mark.parametrize("rate", [0.03, 0.24, 0.5, 0.9])
    def test_one_client_tosses_as_often_as_the_coins_of_the_server(self, rate):
        """Each count is within a band that it leaves with probability 1e-9; so are all of them together."""
        tosses = 20_000
        low, high = binomial_band(tosses, rate)
        for heads in (sum(coins.coin(rate) for _ in range(tosses)), int(many_coins(tosses, rate).sum())):
            assert low <= heads <= high

    def test_levels_and_bits_of_the_operating_system(self):
        levels = Counter(client_level(7) for _ in range(20_000))
        assert_counts(np.array([levels[level] for level in range(1, 8)], float), np.full(7, 20_000 / 7))
        ones = Counter(coins.random_bits(13).bit_count() for _ in range(20_000))
        law = np.array([comb(13, count) for count in range(14)]) / 2**13
        assert_counts(np.array([ones[count] for count in range(14)], float), law * 20_000)
        assert FALSE_ALARM <= 1e-6

    def test_nonces(self):
        nonces = {coins.new_nonce() for _ in range(1000)}
        assert len(nonces) == 1000 and all(map(coins.is_nonce, nonces))
        assert not any(map(coins.is_nonce, ("x" * 32, "0" * 31, 0, None, "0" * 32 + "\n", "A" * 32)))

    def test_a_source_of_tests_repeats_and_others_are_refused(self):
        question = ValueQuestion(0.5)
        first, second = (
            [value_answer(question, "tea", source=source, budget=None) for _ in range(20)]
            for source in (insecure_source(3), insecure_source(3))
        )
        assert first == second and len(set(map(type, first))) == 2
        with pytest.raises(InvalidType, match="source"):
            value_answer(question, "tea", source=7, budget=None)


class TestMessages:
    def test_a_histogram_is_answered_from_its_json(self):
        made = Histogram(plan(1.0, 0.9999, rate=0.999), ["tea", "milk"])
        question = ValueQuestion.from_json(json.loads(json.dumps(made.question.to_json())))
        assert question == made.question and question.coin == made.plan.rate
        messages = [value_answer(question, "tea", budget=None) for _ in range(50)]
        release = made.aggregate([report.to_bytes() for report in messages if report is not None])
        assert len(release) in (0, 1)
        for bad in (
            *({}, None, [], question.to_json() | {"coin": 1.0}, question.to_json() | {"kind": "x"}),
            *(question.to_json() | {"values": values} for values in ([], "tea", [5], ["\ud800"], [None], {"a": 1})),
            *(question.to_json() | {"longest": longest} for longest in (0, 1.5, None)),
        ):
            with pytest.raises(DpsieveError):
                ValueQuestion.from_json(bad)

    @pytest.mark.parametrize("alphabet", [None, "abc", bytes(range(97, 100))])
    @pytest.mark.parametrize("form", ["to_json", "to_bytes"])
    def test_a_trie_takes_messages(self, alphabet, form):
        server = TrieHeavyHitters(8.0, 0.99, max_length=2, alphabet=alphabet, coin=0.5, threshold=3)
        string = "ab" if server.strings.empty == "" else b"ab"
        for question in server.questions():
            reports = filter(
                None, (client_answer(Question.from_json(question.to_json()), string, budget=None) for _ in range(60))
            )
            messages = [getattr(report, form)() for report in reports]
            server.take([*messages, messages[0], b"", b"[", {"prefix": "a"}, b'{"version":1}'])
        assert (server.ignored.repeated, server.ignored.malformed) == (2, 8) and server.release().table[
            "key"
        ].to_pylist() == [string]

    def test_reports_do_not_show_themselves(self):
        reports = (Report("secret"), PrefixReport("secret", True))
        assert not any(word in repr(report) for report in reports for word in ("secret", "True"))
        assert PrefixReport.from_json(PrefixReport(b"\0\xff", True).to_json(), Strings(2, alphabet=b"\0\xff")) == (
            b"\0\xff", True, "",
        )  # fmt: skip

    def test_limits_of_a_coin_are_those_of_a_rate(self):
        from dpsieve.noise.sample_threshold import LARGEST_RATE, SMALLEST_RATE

        assert (questions.SMALLEST_COIN, questions.LARGEST_COIN) == (SMALLEST_RATE, LARGEST_RATE)
        for level in (0, -1, 1.5, None, 10**6):
            with pytest.raises(DpsieveError, match="levels"):
                client_level(level)
