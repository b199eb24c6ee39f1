"""A device's own budget: what it refuses, that refusing does not show, and what it bounds, by exact numbers."""

import decimal
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import comb, exp, log

import numpy as np
import pytest
from helpers.statistical import assert_counts, binomial_band

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.federated import Histogram, Quantiles, TrieHeavyHitters, level_plan, plan
from dpsieve.federated.client import (
    Budget,
    FileStorage,
    Question,
    Strings,
    Terms,
    ValueQuestion,
    budget,
    client_answer,
    padded_message,
    questions,
    value_answer,
)
from dpsieve.federated.plans.levels import secret_levels_delta
from dpsieve.noise.sample_threshold import rounded_delta

WIDE = {"epsilon": 100.0, "delta": 0.5, "exposure": 0.999, "rate": 0.99}
EASY = {"epsilon": 5.0, "delta": 0.01, "threshold": 19}  # terms that are true for every coin below


class InMemory:
    """The storage of a host, which counts how often it was written."""

    def __init__(self, text=None):
        self.text, self.writes = text, 0

    def get(self):
        return self.text

    def put(self, text):
        self.text, self.writes = text, self.writes + 1


class Bits:
    """A source whose coins are given; nonces of 128 bits and levels are zero."""

    def __init__(self, coins):
        self.coins = list(coins)

    def words(self, count):
        return [0, 0] if count == 2 else [(0 if self.coins.pop(0) else 1) << 63]


def limited(place=None, **limits):
    return Budget(InMemory() if place is None else place, **(WIDE | limits))


def value_question(name="drinks", coin=0.25, **terms):
    return ValueQuestion(coin, terms=Terms(name, **(EASY | terms)))


def prefix_question(level, protocol="rounds", *, levels=4, coin=0.25, name="words", **terms):
    return Question(protocol, level, levels, 1, coin, Strings(4), ("",), Terms(name, **(EASY | terms)))


class TestAttacks:
    """A server that asks again and again: before budgets it had the value almost surely."""

    def test_one_question_a_thousand_times(self):
        """Without a budget the value leaves with probability 1 - 2^-1000; with one, the coin is tossed once."""
        question = value_question(coin=0.5)
        assert any(value_answer(question, "tea", budget=None) for _ in range(1000))
        device = limited()
        tosses = [device.charge(question) for _ in range(1000)]
        assert tosses == [True] + [False] * 999 and device.spent().exposure == 0.5

    def test_a_thousand_names(self):
        """Exactly as many coins as fit: of rate 0.5 two in 0.75, and nothing of 1,000 small ones beyond the limit."""
        device = limited(exposure=0.75)
        assert sum(device.charge(value_question(f"{i}", 0.5)) for i in range(1000)) == 2
        assert device.spent().exposure == 0.75
        device, rates = limited(exposure=0.6), random.Random(5)
        silent = Fraction(1)
        for i in range(300):
            rate = rates.choice((0.01, 0.07, 0.2, 0.5))
            fits = 1 - silent * (1 - Fraction(str(rate))) <= Fraction("0.6")
            assert device.charge(value_question(f"{i}", rate)) == fits
            silent *= 1 - Fraction(str(rate)) if fits else 1
        assert 1 - silent <= Fraction("0.6") and device.spent().exposure == pytest.approx(float(1 - silent), rel=1e-14)

    @pytest.mark.parametrize("protocol", ["rounds", "one_round"])
    def test_levels_in_any_order_are_charged_as_all_levels(self, protocol):
        """Whatever the protocol is called: a collection of 4 levels may toss 4 coins, and is charged for 4."""
        for order in itertools.permutations(range(1, 5)):
            device = limited()
            tossed = [level for level in order * 2 if device.charge(prefix_question(level, protocol))]
            assert tossed == sorted({*tossed}) and device.spent().exposure == 1 - 0.75**4

    def test_in_cohorts_a_device_draws_its_level_once(self):
        tossed = Counter()
        for _ in range(1000):
            device = limited()
            mine = [level for level in (1, 2, 3, 4, 1, 2, 3, 4) if device.charge(prefix_question(level, "cohorts"))]
            assert len(mine) == 1 and device.spent().exposure == 0.25
            tossed[mine[0]] += 1
        assert_counts(np.array([tossed[level] for level in range(1, 5)], float), np.full(4, 250.0))

    def test_every_adaptive_transcript_of_a_small_attack(self):
        """The laws of all messages under two values differ by R on some event, and by no more on any: (0, R)-private.

        The server asks for strings and for values, under new names and old ones, and asks for more after
        a report. All outcomes of up to three fair coins are enumerated through the functions of a device.
        """

        def transcript(value, coins):
            device, source, seen = limited(exposure=0.875), Bits(coins), []
            for turn in range(12):
                many = sum(message != "silent" for message in seen)
                name = f"{turn % 5} {many}"  # repeats names while nothing came, and takes new ones after a report
                if turn % 2:
                    asked = prefix_question(1, levels=1, coin=0.5, name=f"s{name}")
                    answer = client_answer(asked, str(value), budget=device, source=source)
                    seen.append("silent" if answer is None else answer.prefix)
                else:
                    asked = replace(value_question(name, 0.5), kind="integers")
                    answer = value_answer(asked, value, budget=device, source=source)
                    seen.append("silent" if answer is None else answer.value)
            assert not source.coins, "three coins are tossed, and no more"
            return tuple(seen)

        laws = [Counter(transcript(value, coins) for coins in itertools.product((0, 1), repeat=3)) for value in (0, 1)]
        far = sum((laws[0] - laws[1]).values())
        assert Fraction(far, 8) == Fraction("0.875") and laws[0]["silent",] == 0
        assert laws[0][("silent",) * 12] == laws[1][("silent",) * 12] == 1

    def test_the_rate_at_the_tightest_point(self):
        """Of 2,000 devices with R = 0.6, asked for as much as they answer, 0.6 reveal their value; band of 1e-9."""
        rates = (0.2, 0.5)  # 1 - 0.8 * 0.5 = 0.6
        revealed = 0
        for _ in range(2000):
            device = limited(exposure=0.6)
            asked = [value_question(f"{turn}", rates[turn % 2]) for turn in range(4)] * 2
            revealed += any(value_answer(question, "tea", budget=device) is not None for question in asked)
        low, high = binomial_band(2000, 0.6)
        assert low <= revealed <= high

    def test_a_server_that_sizes_the_second_collection_by_the_first(self):
        """Both releases together are (epsilon, delta)-private with the limits of the budget, by enumeration.

        The other clients are 0 to 4 in number, all with the device's value. The server asks for more where
        the first release shows nothing; that is refused. A device without limits loses more.
        """

        def asked(name, coin, threshold, epsilon):
            delta = rounded_delta(epsilon, coin, threshold, "add_remove")
            return ValueQuestion(coin, terms=Terms(name, epsilon, delta, threshold))

        first, small, large = asked("1", 0.5, 2, log(2.0)), asked("2", 0.25, 2, 0.5), asked("3", 0.75, 2, 0.5)

        def released(question, clients):
            law, p = Counter(), question.coin
            for count in range(clients + 1):
                chance = comb(clients, count) * p**count * (1 - p) ** (clients - count)
                law[count if count >= question.terms.threshold else 0] += chance
            return law

        def law(others, here, limits):
            found, device = Counter(), limited(**limits)
            assert device.charge(first)
            for one, chance in released(first, others + here).items():
                again, question = limited(InMemory(device._storage.text), **limits), small if one else large
                for two, further in released(question, others + here * again.charge(question)).items():
                    found[one, two] += chance * further
            return found

        limits, worst = {"epsilon": log(4.0), "delta": 0.65}, []
        for limited_by in (limits, {"delta": 0.99}):
            pairs = [[law(others, here, limited_by) for here in (0, 1)] for others in range(5)]
            worst.append(
                max(
                    sum(max(0.0, more[out] - 4.0 * less[out]) for out in more | less)
                    for pair in pairs
                    for more, less in (pair, pair[::-1])
                )
            )
        assert worst[0] <= limits["delta"] < worst[1]
        device = limited(**limits)
        assert device.charge(first) and not device.charge(large) and device.charge(small)
        assert limited(**limits).charge(large), "alone"


class TestRefusals:
    @pytest.mark.parametrize(
        ("question", "limits", "why"),
        [
            (value_question(coin=0.5), {"rate": 0.4}, "rate"),
            (value_question(coin=0.5, threshold=2, delta=1e-8), {}, "cannot be true"),
            (value_question(epsilon=0.1, delta=1e-8), {}, "cannot be true"),
            (value_question(epsilon=2.0), {"epsilon": 1.9}, "^epsilon would be"),
            (value_question(delta=0.01), {"delta": 0.009}, "^delta would be"),
            (value_question(), {"exposure": 0.24}, "^exposure would be"),
            (prefix_question(1), {"exposure": 0.5}, "^exposure would be"),
            (value_question(neighbours="replace"), {}, "'add_remove'"),
            (value_question(epsilon=2.0), {"epsilon": 3.9, "neighbours": "replace"}, "^epsilon would be"),
            (value_question(epsilon=2.0, delta=0.01), {"delta": 0.08, "neighbours": "replace"}, "^delta would be"),
        ],
    )
    def test_beyond_a_limit(self, question, limits, why):
        """One that is refused stays so, costs nothing, and is answered by silence."""
        device, answer = limited(**limits), value_answer if isinstance(question, ValueQuestion) else client_answer
        for _ in range(20):
            assert device.refusal(question) is not None and answer(question, "tea", budget=device) is None
        assert re.search(why, device.refusal(question)) and device.spent() == (0.0, 0.0, 0.0, 0)

    @pytest.mark.parametrize(
        ("question", "limits"),
        [
            (value_question(coin=0.4), {"rate": 0.4, "exposure": 0.4}),
            (value_question(epsilon=2.0), {"epsilon": 2.0, "delta": 0.01}),
            (prefix_question(1), {"exposure": 1 - 0.75**4}),
            (value_question(neighbours="replace"), {"neighbours": "replace", "epsilon": 5.0}),
            (value_question(epsilon=2.0), {"epsilon": 4.0, "delta": 0.0839, "neighbours": "replace"}),
        ],
    )
    def test_up_to_a_limit(self, question, limits):
        assert limited(**limits).charge(question)

    def test_totals_are_those_of_decimals(self):
        """Three times 0.1 is 0.3, and 1e-9 more is too much."""
        device = limited(epsilon=0.3, delta=0.6, exposure=0.271)
        assert all(device.charge(value_question(f"{i}", 0.1, epsilon=0.1, delta=0.2)) for i in range(3))
        assert device.spent() == (0.3, 0.6, 0.271, 3)
        assert not device.charge(value_question("more", 1e-9, epsilon=1e-9, delta=1e-9))

    def test_the_host_may_use_decimals_of_its_own(self):
        """Rounding that the host chose for its own numbers does not change a total."""
        device = limited(epsilon=4.2, delta=0.5, neighbours="replace")
        with decimal.localcontext(prec=1):
            assert device.charge(value_question(epsilon=2.1)) and device.spent().epsilon == 4.2
            assert not device.charge(value_question("more", epsilon=0.001))
        assert device.spent().delta == pytest.approx((1 + exp(2.1)) * 0.01, rel=1e-14)

    def test_a_name_that_collides(self):
        """All that questions of one collection share must be the same: also what the budget does not charge."""
        device, first = limited(), prefix_question(1)
        assert device.charge(first)
        others = [
            *(replace(prefix_question(2), **change) for change in ({"coin": 0.1}, {"step": 2}, {"levels": 5})),
            replace(prefix_question(2), strings=Strings(5)),
            prefix_question(2, "cohorts"),
            prefix_question(2, epsilon=4.0),
            prefix_question(2, threshold=20),
            value_question("words"),
        ]
        for other in others:
            assert device.refusal(other) == "another collection has this name" and not device.charge(other)
        assert device.charge(replace(prefix_question(2), prefixes=("a",))), "the next level of the same one"

    def test_a_level_that_was_asked_before(self):
        device = limited()
        assert [device.charge(prefix_question(level)) for level in (2, 2, 1, 4, 3)] == [True, False, False, True, False]
        asked = [replace(prefix_question(i, name="s"), prefixes=(at,)) for i, at in ((1, ""), (1, "a"), (2, "b"))]
        assert [device.charge(question) for question in asked] == [True, False, True], "whatever prefixes it has"

    def test_a_full_record(self, monkeypatch):
        monkeypatch.setattr(budget, "_MOST_COLLECTIONS", 3)
        device = limited()
        assert [device.charge(value_question(f"{i}", 0.01)) for i in range(5)] == [True] * 3 + [False] * 2

    def test_no_budget_by_accident(self):
        for answer, question, value in (
            (value_answer, value_question(), "tea"),
            (client_answer, prefix_question(1), "tea"),
        ):
            with pytest.raises(TypeError, match="budget"):
                answer(question, value)
            for wrong in ("budget", 0, {}, False):
                with pytest.raises(InvalidType, match="budget must be a Budget"):
                    answer(question, value, budget=wrong)
        with pytest.raises(InvalidValue, match="level is drawn and kept"):
            client_answer(prefix_question(1, "cohorts"), "tea", level=1, budget=limited())

    def test_wrong_limits(self, tmp_path):
        for wrong in (
            *({"epsilon": 0.0}, {"epsilon": None}, {"delta": 1.0}, {"exposure": 0.0}, {"exposure": 1.0}, {"rate": 1.0}),
            *({"rate": 0.0}, {"days": 0}, {"days": 1.5}, {"neighbours": "x"}),
        ):
            with pytest.raises(DpsieveError, match=next(iter(wrong))):
                limited(**wrong)
        for place in (5, None, object()):
            with pytest.raises(InvalidType, match="place must be a path or a Storage"):
                Budget(place, **WIDE)
        with pytest.raises(UnreadableData, match="folder does not exist"):
            limited(tmp_path / "no" / "budget")


class TestDays:
    def at(self, monkeypatch, day):
        monkeypatch.setattr(budget.time, "time", lambda: day * 86_400.0)

    def test_a_collection_is_forgotten_after_its_last_question(self, monkeypatch):
        device = limited(exposure=0.5, days=30)
        for day, question, taken in (
            (100, value_question("a", 0.3), True),
            (101, value_question("b", 0.3), False),
            (129, value_question("b", 0.3), False),
            (130, value_question("b", 0.3), True),
            (159, value_question("a", 0.3), False),
            (160, value_question("a", 0.3), True),  # charged as a new one
        ):
            self.at(monkeypatch, day)
            assert device.charge(question) == taken, day

    def test_a_clock_that_is_set_back_makes_nothing_older(self, monkeypatch):
        """What is answered while the clock is wrong counts as of the latest day that was seen."""
        device = limited(exposure=0.5, days=30)
        for day, rate, taken in (
            (100, 0.3, True),
            (0, 0.2, True),
            (129, 0.2, False),
            (130, 0.2, True),
            (131, 0.3, True),
        ):
            self.at(monkeypatch, day)
            assert device.charge(value_question(f"{day}", rate)) == taken, day

    def test_midnight_in_the_middle_of_a_question(self, monkeypatch):
        """The day is read once: a collection is either counted or checked as a new one, never neither."""
        device = limited(exposure=0.7, days=30)
        self.at(monkeypatch, 100)
        assert device.charge(prefix_question(1))  # exposure 0.68
        days = iter([129])
        monkeypatch.setattr(budget.time, "time", lambda: next(days) * 86_400.0)
        assert device.charge(prefix_question(2))

    def test_any_days_in_a_row_are_within_the_limits(self, monkeypatch):
        """Collections with levels that go on for weeks, at random: no ten days have collections beyond the limits."""
        draw, most = random.Random(2), 0.0
        for _ in range(20):
            device, admitted = limited(exposure=0.9, epsilon=20.0, days=10), []
            for day in sorted(draw.choices(range(1000, 1060), k=150)):
                self.at(monkeypatch, day)
                question = prefix_question(draw.randint(1, 40), levels=40, coin=0.01, name=f"{draw.randrange(8)}")
                if device.charge(question):
                    admitted.append((day, question.terms.collection))
            for start in range(990, 1060):
                names = {name for day, name in admitted if start <= day < start + 10}
                most = max(most, 5.0 * len(names))
                assert 5.0 * len(names) <= 20.0 and 1 - 0.99 ** (40 * len(names)) <= 0.9
        assert most == 20.0, "the limit is reached"


class TestTerms:
    @pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-6), (1.0, 1e-8), (1.0, 1e-12), (4.0, 1e-4), (10.0, 1e-9)])
    def test_terms_of_every_plan_are_admitted(self, neighbours, epsilon, delta):
        """A device refuses no honest server, whatever the plan; one with half the threshold is refused."""
        limits = {"neighbours": neighbours, "exposure": 1 - 1e-9, "rate": 1 - 1e-9}
        for options in ({}, {"rate": 0.02}, {"threshold": 40}, {"hostile": 5}):
            question = Histogram(plan(epsilon, delta, neighbours=neighbours, **options)).question
            assert limited(**limits).charge(question)
            half = replace(question, terms=replace(question.terms, threshold=-(-question.terms.threshold // 2)))
            assert "hostile" in options or "cannot be true" in limited(**limits).refusal(half)

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts", "one_round"])
    def test_terms_of_servers_that_ask_by_levels(self, protocol):
        made = [
            TrieHeavyHitters(1.0, 1e-8, max_length=10, protocol=protocol),
            TrieHeavyHitters(3.0, 1e-6, max_length=3),
        ]
        made += [Quantiles(0, 1, epsilon=1.0, delta=1e-8, depth=4, protocol=protocol)]
        if protocol == "cohorts":
            made += [TrieHeavyHitters(1.0, 1e-8, max_length=10, protocol=protocol, secret_levels=True)]
        for server in made:
            question, device = next(server.questions()), limited(exposure=1 - 1e-9)
            device.charge(question)
            spent = device.spent()
            assert spent[:2] == (server.plan.epsilon, server.plan.delta_)
            assert spent.exposure == pytest.approx(server.plan.exposure, rel=1e-12)
            assert type(question).from_json(json.loads(json.dumps(question.to_json()))) == question

    def test_the_least_delta_is_the_exact_one(self):
        """Never above, as honest terms must pass, and by less than 1e-8 of it below."""
        draw = random.Random(3)
        for _ in range(150):
            epsilon, coin = draw.choice((0.01, 0.1, 0.5, 1.0, 3.0, 30.0)), 10 ** draw.uniform(-4, -0.01)
            threshold, levels = round(10 ** draw.uniform(0, 3)), draw.choice((1, 2, 20))
            terms = {"epsilon": epsilon, "delta": 0.5, "threshold": threshold}
            exact = rounded_delta(epsilon, coin, threshold, "add_remove")
            found = questions.least_delta(value_question(coin=coin, **terms))
            assert exact * (1 - 1e-8) - 1e-300 <= found <= exact
            secret = min(exact, secret_levels_delta(epsilon, coin, threshold, levels))
            found = questions.least_delta(prefix_question(1, "cohorts", levels=levels, coin=coin, **terms))
            assert secret * (1 - 1e-8) - 1e-300 <= found <= secret

    def test_huge_thresholds_take_no_time(self):
        for epsilon, coin, threshold in (
            (1e-9, 1e-9, 10**9),
            (0.0, 0.5, 10**9),
            (500.0, 1e-9, 10**9),
            (1e-3, 0.9, 10**6),
        ):
            assert 0 <= questions.least_delta(value_question(coin=coin, epsilon=epsilon, threshold=threshold)) <= 1

    def test_names_and_what_is_no_terms(self):
        assert Histogram(plan(1.0, 1e-8)).terms.collection != Histogram(plan(1.0, 1e-8)).terms.collection
        assert Histogram(plan(1.0, 1e-8), collection="drinks").question.terms.collection == "drinks"
        good = value_question().to_json()
        for change in (
            *({"collection": name} for name in ("", " ", "x" * 201, "a\nb", "\ud800", None, 5)),
            *({"epsilon": -1}, {"delta": 1.0}, {"delta": None}, {"threshold": 0}, {"threshold": 1.5}),
            *({"neighbours": "x"}, {"more": 1}),
        ):
            with pytest.raises(DpsieveError):
                ValueQuestion.from_json(good | {"terms": good["terms"] | change})
        for wrong in ([], "x", 5, {}):
            with pytest.raises(DpsieveError):
                ValueQuestion.from_json(good | {"terms": wrong})


class TestSilence:
    """Who asks cannot tell refused from not sampled, nor what is left of a budget."""

    def spent(self):
        device = limited(epsilon=5.0)
        assert device.charge(value_question("before"))
        return device

    @pytest.mark.parametrize(
        ("question", "value", "answer"),
        [
            (value_question(coin=0.01), "tea", value_answer),
            (replace(value_question(coin=0.01), values=("tea", "lemonade")), "tea", value_answer),
            (prefix_question(1, coin=0.01), "tea", client_answer),
        ],
    )
    def test_messages_have_one_form(self, question, value, answer):
        """The same bytes but for the nonce, and nonces of the same law: bits that are equally likely."""
        refused, unsampled, nonces = self.spent(), [], {"refused": [], "unsampled": []}
        while len(unsampled) < 400:
            sent = answer(question, value, budget=limited())
            unsampled += [padded_message(question, None)] if sent is None else []
        messages = {
            "refused": [padded_message(question, answer(question, value, budget=refused)) for _ in range(400)],
            "unsampled": unsampled,
        }
        forms = set()
        for kind, some in messages.items():
            for message in some:
                nonce = json.loads(message)["nonce"]
                nonces[kind].append(nonce)
                forms.add(message.replace(nonce.encode(), b"nonce"))
        assert len(forms) == 1 and len({*nonces["refused"], *nonces["unsampled"]}) == 800
        for some in nonces.values():
            digits = Counter("".join(some))
            assert_counts(np.array([digits[digit] for digit in "0123456789abcdef"], float), np.full(16, 800.0))

    def test_a_question_that_is_malformed_raises_whatever_is_left(self):
        """It depends on the question alone, and so shows nothing."""
        damaged = limited()
        damaged._storage.text = "x"
        for device in (limited(), self.spent(), damaged):
            for question in (replace(value_question(), terms=None), value_question().to_json(), None, "tea"):
                with pytest.raises(DpsieveError, match="question"):
                    value_answer(question, "tea", budget=device)
                with pytest.raises(DpsieveError, match="question"):
                    device.refusal(question)

    def test_the_record_depends_on_neither_value_nor_coin(self):
        """Values that count or not, of another kind, none; coins of both sides: the same text, and no value in it."""
        texts = set()
        for value in ("tea", "secret", "x" * 300, 5, None):
            for _ in range(10):
                device = limited()
                for question in (value_question(coin=0.5), value_question("more", coin=0.5)):
                    try:
                        value_answer(question, value, budget=device)
                    except InvalidType:
                        assert not isinstance(value, str)
                texts.add(device._storage.text)
        (text,) = texts
        assert not any(word in text for word in ("tea", "secret", "xxx"))

    def test_a_refusal_writes_as_much_as_an_answer(self):
        device, counts = self.spent(), []
        for question in (value_question("late"), value_question("before"), prefix_question(1)):
            before = device._storage.writes
            assert not device.charge(question)
            counts.append(device._storage.writes - before)
        assert counts == [1, 1, 1]


class TestDamage:
    def test_any_change_of_a_byte_refuses_all(self, tmp_path):
        """Nothing starts afresh: each answer is silence, and the file stays as it was found."""
        path, draw = tmp_path / "budget", random.Random(1)
        limited(path).charge(value_question())
        good = path.read_bytes()
        broken = [b"", b"\n", b"{}", b"\xff\xfe", good[:-2], good[:70], good.replace(b"0.25", b"0.01"), good[65:]]
        for _ in range(60):
            place = draw.randrange(len(good) - 1)
            broken.append(good[:place] + bytes([good[place] ^ 1 << draw.randrange(8)]) + good[place + 1 :])
        for content in broken:
            path.write_bytes(content)
            device = limited(path)
            assert not device.charge(value_question("new")) and path.read_bytes() == content
        assert device.refusal(value_question("new")) == "the record is damaged or gone"
        with pytest.raises(UnreadableData, match="damaged"):
            device.spent()
        path.write_bytes(good)
        assert limited(path).charge(value_question("new")) and not limited(path).charge(value_question())

    def test_bodies_with_a_right_digest_are_checked_too(self):
        device = limited()
        device.charge(value_question())
        good = json.loads(device._storage.text.split("\n")[1])
        charge = good["charges"][0]
        for body in (
            *(
                None,
                [],
                {},
                good | {"version": 2},
                good | {"day": -1},
                good | {"charges": None},
                good | {"charges": [{}]},
            ),
            *(good | {"charges": [charge | {name: -1}]} for name in charge),
            good | {"charges": [charge | {"more": 1}]},
        ):
            text = json.dumps(body)
            device._storage.text = f"{budget._digest(text)}\n{text}\n"
            assert not device.charge(value_question("new"))

    def test_a_file_that_goes_while_a_program_runs_is_noticed(self, tmp_path):
        """Deleted before a program starts it is not: then the budget is a new one, which the docs say."""
        path = tmp_path / "budget"
        device = limited(path)
        path.unlink()
        assert not device.charge(value_question()) and not path.exists()
        assert limited(path).charge(value_question())

    def test_what_cannot_be_written_is_not_answered(self, tmp_path, monkeypatch):
        device = limited(tmp_path / "budget")

        def full(*_):
            raise OSError(28, "No space left on device")

        for target, name in ((os, "fsync"), (FileStorage, "put"), (FileStorage, "get"), (FileStorage, "lock")):
            with monkeypatch.context() as patch:
                patch.setattr(target, name, full)
                assert not device.charge(value_question())
        assert device.charge(value_question())

    def test_the_file_is_private_and_a_link_is_its_file(self, tmp_path):
        path, link = tmp_path / "budget", tmp_path / "link"
        limited(path)
        link.symlink_to(path)
        assert limited(link).charge(value_question()) and not limited(path).charge(value_question())
        assert link.is_symlink() and {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


CHILD = """
import os, signal, sys, time
from pathlib import Path
from dpsieve.federated.client import Budget, FileStorage, Terms, ValueQuestion, answers, value_answer
budget = Budget(sys.argv[1], epsilon=100.0, delta=0.5, exposure=0.999)
question = ValueQuestion(0.25, terms=Terms(sys.argv[2], 5.0, 0.01, 19))
{change}
print(value_answer(question, "tea", budget=budget) is None)
"""
DIE = "lambda *_: os.kill(os.getpid(), signal.SIGKILL)"


def child(path, name, change=""):
    command = [sys.executable, "-c", CHILD.format(change=change), str(path), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class TestProcesses:
    @pytest.mark.parametrize(
        ("change", "charged"),
        [
            (f"answers.coin = {DIE}", True),
            (f"answers.Report = answers.coin = {DIE}", True),
            (f"from dpsieve import locks; locks.flush = {DIE}", True),
            (f"Path.replace = {DIE}", False),
            (f"os.fsync = {DIE}", False),
        ],
    )
    def test_a_device_that_is_killed(self, tmp_path, change, charged):
        """Between record and answer: the question counts, and is never answered. Before: nothing has left."""
        path = tmp_path / "budget"
        killed = child(path, "drinks", change)
        assert killed.communicate()[0] == "" and killed.returncode == -signal.SIGKILL
        device = limited(path)
        assert device.spent().collections == charged
        assert device.charge(value_question()) == (not charged)

    def test_processes_and_threads_at_once_do_not_overspend(self, tmp_path):
        """Eight of each, with a pause between reading and writing; three of the collections fit."""
        path = tmp_path / "budget"
        limits = "budget.epsilon = 15.0\nget = FileStorage.get"
        pause = "FileStorage.get = lambda place: (get(place), time.sleep(0.02))[0]"
        shown = "print(budget.charge(question)); sys.exit()"
        running = [child(path, f"{i}", f"{limits}\n{pause}\n{shown}") for i in range(8)]
        assert [one.communicate()[0] for one in running].count("True\n") == 3
        device, tossed = limited(tmp_path / "threads", epsilon=15.0), []
        threads = [
            threading.Thread(target=lambda i=i: tossed.append(device.charge(value_question(f"{i}")))) for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(tossed) == [False] * 5 + [True] * 3


def test_a_collection_of_devices_with_budgets():
    """Devices answer every level once, find the heavy string, and answer no second collection beyond their budget."""
    devices = [limited(epsilon=6.0, delta=1e-5) for _ in range(300)]
    for name, found in (("first", ["ab"]), ("second", [])):
        server = TrieHeavyHitters(4.0, 1e-6, max_length=2, alphabet="abc", collection=name)
        for question in server.questions():
            asked = Question.from_json(json.loads(json.dumps(question.to_json())))
            for _ in range(3):  # again: all of these are silent
                server.take([padded_message(asked, client_answer(asked, "ab", budget=device)) for device in devices])
        assert server.ignored.total == 0 and server.release().table["key"].to_pylist() == found
    assert {device.spent()[:2] for device in devices} == {(4.0, 1e-6)}


def test_levels_cost_what_plans_say():
    for protocol in ("rounds", "cohorts", "one_round"):
        made = level_plan(1.0, 1e-6, 5, protocol=protocol)
        tossed = made.levels if protocol == "rounds" else 1
        assert made.exposure == pytest.approx(1 - (1 - made.coin) ** tossed)
