"""Heavy hitters by a trie: plans for levels, exact privacy of tiny populations, both paths, hostile reports."""

import itertools
import json
import math
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.statistical import assert_counts, binomial_band
from scipy import stats

from dpsieve.accounting.composition import repeated_share
from dpsieve.accounting.loss_distributions import joint_divergence
from dpsieve.channels import sample_threshold
from dpsieve.errors import BudgetExceeded, CorruptRelease, DpsieveError, InvalidValue, NotCertified
from dpsieve.exact.binomial import at_least, masses
from dpsieve.federated import Quantiles, TrieHeavyHitters, TrieRelease, compare, level_plan
from dpsieve.federated.client import Question, Strings, client_answer, padded_message
from dpsieve.federated.plans.levels import LevelPlan, secret_levels_delta
from dpsieve.federated.plans.rounds import rounds_delta
from dpsieve.federated.server.simulated_clients import answer_all, are_accepted, cut_prefixes, read_strings
from dpsieve.noise.sample_threshold import rounded_delta
from dpsieve.papers.sample_threshold import exact_replacement_delta
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.mechanism import from_json
from dpsieve.publication import Release
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import resolve
from dpsieve.testing import insecure_source

PROTOCOLS = ("rounds", "cohorts", "one_round")


def outputs(strings, protocol, coin, threshold, *, levels=2):
    """Return the exact distribution of everything that a trie with one symbol a level tells: a plain reference."""
    share = coin / levels
    patterns = {tuple(bits): coin ** sum(bits) * (1 - coin) ** (levels - sum(bits)) for bits in _bits(levels)}
    if protocol == "cohorts":
        patterns = {one: share for one in _bits(levels) if sum(one) == 1} | {(0,) * levels: 1 - coin}
    counts = {(): 1.0}
    for string in strings:
        after = defaultdict(float)
        for seen, mass in counts.items():
            for pattern, weight in patterns.items():
                sent = [(lev + 1, string[: lev + 1], len(string) <= lev + 1) for lev in range(levels) if pattern[lev]]
                after[tuple(sorted([*seen, *sent]))] += mass * weight
        counts = after
    told = defaultdict(float)
    for reports, mass in counts.items():
        told[_survivors(reports, threshold, levels)] += mass
    return told


def _bits(levels):
    return list(itertools.product((0, 1), repeat=levels))


def _survivors(reports, threshold, levels):
    """Return (level, prefix, ended, count) for what survives, level by level."""
    alive, kept = {""}, []
    for level in range(1, levels + 1):
        asked = Counter(r for r in reports if r[0] == level and r[1][: level - 1] in alive and len(r[1]) >= level)
        asked += Counter(r for r in reports if level == 1 == r[0] and r[1] == "")
        survived = {node: count for node, count in asked.items() if count >= threshold}
        kept += [(*node, count) for node, count in survived.items()]
        alive = {prefix for _, prefix, ended in survived if not ended}
    return tuple(sorted(kept))


def told_by(server):
    rows = server.trie.to_pylist()
    return tuple(sorted((row["level"], row["prefix"], row["ended"], row["token"]) for row in rows))


def divergence(p, q, epsilon):
    return math.fsum(max(0.0, mass - math.exp(epsilon) * q.get(out, 0.0)) for out, mass in p.items())


@cache
def worst_neighbours(protocol, coin, threshold):
    """Return the largest divergence over all neighbours among five clients, by relation and epsilon."""
    kinds, most = ("a", "aa", "ab", "b"), 5
    tables = {
        people: outputs(people, protocol, coin, threshold)
        for size in range(most + 1)
        for people in itertools.combinations_with_replacement(kinds, size)
    }
    worst = defaultdict(float)
    for people, table in tables.items():
        rest = {people[:i] + people[i + 1 :] for i in range(len(people))}
        changed = {tuple(sorted((*less, kind))) for less in rest for kind in kinds}
        for relation, others in (("add_remove", rest), ("replace", changed)):
            for other, epsilon in itertools.product(others, (0.5, 1.0)):
                apart = max(divergence(table, tables[other], epsilon), divergence(tables[other], table, epsilon))
                worst[relation, epsilon] = max(worst[relation, epsilon], apart)
    return worst


class TestPlans:
    def test_three_protocols_side_by_side(self):
        found = compare(1.0, 1e-8, max_length=10)
        assert [plan.protocol for plan in found] == list(PROTOCOLS)
        assert [plan.levels for plan in found] == [10, 10, 1]
        assert {plan.guarantee for plan in found} == {Guarantee(1.0, 1e-8, unit="one client")}
        assert found.one_round.half < found.rounds.half < found.cohorts.half
        assert found.rounds.half < 120, "ten rounds cost half as much again as one round, not ten times"
        assert found.cohorts.rate == found.cohorts.coin / 10
        assert "found half of the time" in str(found) and len(str(found).splitlines()) == 5
        assert compare(1.0, 1e-8, max_length=10, step=5).rounds.half < found.rounds.half

    @pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
    def test_composing_pairs_beats_composing_points(self, neighbours):
        composed = level_plan(1.0, 1e-8, 10, neighbours=neighbours)
        assert 0.8e-8 < composed.delta(1.0, neighbours) <= 1e-8
        share = repeated_share(10, 1.0, 1e-8)
        points = level_plan(share.epsilon, share.delta, 1, protocol="one_round", neighbours=neighbours)
        assert points.half > 3 * composed.half

    @pytest.mark.parametrize(("rate", "threshold"), [(0.1, 11), (0.4, 3), (0.02, 5), (0.9, 6)])
    @pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
    def test_one_round_by_pairs_is_the_exact_delta(self, rate, threshold, epsilon):
        channel = sample_threshold(rate, threshold, epsilon=5.0)
        for neighbours, slack in (("add_remove", 1.01), ("replace", 1.3))[: 1 if epsilon == 0 else 2]:
            by_replacing = neighbours == "replace" and exact_replacement_delta(epsilon, rate, threshold)
            exact = by_replacing or channel.delta(epsilon, neighbours)
            bound = rounds_delta(epsilon, rate, threshold, 1, neighbours)
            assert exact * (1 - 1e-9) <= bound <= exact * slack + 1e-12

    @pytest.mark.parametrize(("rate", "threshold"), [(0.1, 6), (0.4, 3), (0.7, 4)])
    def test_two_rounds_are_never_worse_than_the_pairs_say(self, rate, threshold):
        """Against all pairs of frequencies, in both directions: the bound holds, and the worst pair comes near it."""

        def row(k):
            mass = masses(k, np.arange(40), rate)
            return np.append(mass[:threshold].sum(), mass[threshold:])

        pairs = [(row(k), row(k - 1)) for k in range(1, 36)]
        for epsilon in (0.2, 1.0):
            bound = rounds_delta(epsilon, rate, threshold, 2, "add_remove")
            for less in (False, True):
                both = [(q, p) if less else (p, q) for p, q in pairs]
                worst = max(joint_divergence(a, b, epsilon) for a in both[::3] for b in both)
                assert worst <= bound * (1 + 1e-9)
                if not less:
                    assert bound < 1.5 * worst

    @pytest.mark.parametrize(("rate", "threshold"), [(0.9, 1), (0.1, 11), (1e-6, 1), (0.99, 5), (0.002, 2)])
    def test_three_rounds_at_any_rate(self, rate, threshold):
        """Also at rates that are too low for the pairs of all rows."""

        def row(k):
            mass = masses(k, np.arange(25), rate)
            return np.append(mass[:threshold].sum(), mass[threshold:])

        for epsilon in (0.05, 1.0):
            bound = rounds_delta(epsilon, rate, threshold, 3, "add_remove")
            for k in range(1, 25, 4):
                for p, q in ((row(k), row(k - 1)), (row(k - 1), row(k))):
                    p3, q3 = (np.einsum("i,j,k->ijk", r, r, r) for r in (p, q))
                    apart = np.maximum(p3 - math.exp(epsilon) * q3, 0).sum()
                    assert apart <= bound * (1 + 1e-12)
        assert rounds_delta(0.3, 1 - 1e-9, 1, 50, "add_remove") == 1, "next to nothing is finite"

    def test_rates_that_are_too_low_for_all_pairs(self):
        """They cost at most what the lowest rate with few rows costs, and at most the sum of all rounds."""
        costs = [rounds_delta(1.0, rate, 4, 10, "add_remove", True) for rate in (1e-5, 1e-4, 0.001, 0.005, 0.007)]
        assert costs == sorted(costs) and costs[2] <= 10 * rounded_delta(0.1, 0.001, 4, "add_remove")
        tiny = level_plan(0.02, 1e-6, 5, pruned=True)
        assert tiny.delta(0.02) <= 1e-6 and tiny.coin < 0.01
        assert level_plan(1.0, 1e-8, 3, coin=0.001, threshold=5000).certify().worst < 1e-30

    def test_more_rounds_cost_more_and_replacement_at_least_as_much(self):
        costs = [rounds_delta(1.0, 0.1, 14, rounds, "add_remove") for rounds in (1, 2, 5, 20, 100)]
        assert costs == sorted(costs)
        assert all(
            rounds_delta(1.0, 0.1, 14, r, "replace") >= rounds_delta(1.0, 0.1, 14, r, "add_remove") for r in (1, 9)
        )

    def test_a_chosen_coin_or_threshold(self):
        by_coin = level_plan(1.0, 1e-8, 5, coin=0.1)
        assert by_coin.coin == 0.1 and by_coin.delta(1.0) <= 1e-8 < rounds_delta(
            1.0, 0.1, by_coin.threshold - 1, 5, "add_remove"
        )
        by_threshold = level_plan(1.0, 1e-8, 5, threshold=20)
        assert by_threshold.threshold == 20 and 0.7e-8 < by_threshold.delta(1.0) <= 1e-8
        assert level_plan(1.0, 1e-8, 5, coin=0.1, threshold=20).coin == 0.1
        with pytest.raises(NotCertified):
            level_plan(1.0, 1e-8, 5, coin=0.3, threshold=18)
        with pytest.raises(InvalidValue, match="threshold"):
            level_plan(1.0, 1e-8, 5, threshold=1)
        with pytest.raises(InvalidValue, match="coin"):
            level_plan(0.1, 1e-8, 5, coin=0.9)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_plan_is_made_again_from_its_json(self, protocol):
        plan = level_plan(1.0, 1e-6, 3, protocol=protocol)
        again = from_json(json.loads(json.dumps(plan.to_json())))
        assert again.certify() == plan.certify() and repr(again) == repr(plan)
        for bad in ({}, None, plan.to_json() | {"coin": 2}, plan.to_json() | {"protocol": "other"}):
            with pytest.raises(DpsieveError):
                from_json(bad)

    def test_found_half_of_the_time(self):
        for protocol in PROTOCOLS:
            plan = level_plan(1.0, 1e-6, 4, protocol=protocol)
            assert plan.reporting_probability([plan.half])[0] >= 0.5 > plan.reporting_probability([plan.half - 1])[0]
        assert plan.reports == plan.coin and level_plan(1.0, 1e-6, 4).reports == 4 * level_plan(1.0, 1e-6, 4).coin

    @pytest.mark.parametrize(
        ("protocol", "levels", "coin", "threshold"),
        [("rounds", 10, 1e-9, 5), ("rounds", 10, 1e-9, 2000), ("cohorts", 1000, 1e-9, 5), ("rounds", 3, 1e-9, 10**9)],
    )
    def test_half_of_the_time_at_tiny_rates(self, protocol, levels, coin, threshold):
        """Also where that takes more than the 10^12 clients that a count may have."""
        plan = LevelPlan(1.0, 0.5, protocol, levels, coin, threshold)
        nearly = [at_least(plan.half * share, threshold, plan.rate) ** levels for share in (1 - 1e-9, 1 + 1e-9)]
        assert nearly[0] <= 0.5 <= nearly[1] and nearly == pytest.approx([0.5, 0.5], abs=1e-3)

    @pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
    def test_no_coin_is_much_larger_and_no_threshold_much_better(self, neighbours):
        chosen = level_plan(4.0, 1e-10, 20, neighbours=neighbours)
        assert rounds_delta(4.0, 1.01 * chosen.coin, chosen.threshold, 20, neighbours) > 1e-10
        for away in (-3, 3):
            other = level_plan(4.0, 1e-10, 20, threshold=chosen.threshold + away, neighbours=neighbours)
            assert chosen.half <= 1.01 * other.half


class TestPrivacy:
    """All outputs of a trie of two levels, for all tiny populations and all neighbours."""

    @pytest.mark.parametrize(("coin", "threshold"), [(0.5, 2), (0.3, 3)])
    @pytest.mark.parametrize(
        ("protocol", "options", "reached", "reached_by_replacing"),
        [
            ("rounds", {"pruned": True}, 0.99, 0.97),
            ("rounds", {}, 0.5, 0.47),  # not told that a trie prunes
            ("cohorts", {}, 0.17, 0.15),
            ("cohorts", {"secret_levels": True}, 0.26, 0.15),
        ],
    )
    def test_no_neighbours_differ_by_more_than_promised(
        self, protocol, options, reached, reached_by_replacing, coin, threshold
    ):
        """And how much of the charge the worst neighbours use: nearly all in rounds, a quarter with secret levels."""
        plan = LevelPlan(1.0, 0.5, protocol, 2, coin, threshold, **options)
        worst = {"add_remove": 0.0, "replace": 0.0}
        for (relation, epsilon), apart in worst_neighbours(protocol, coin, threshold).items():
            limit = plan.delta(epsilon, relation)
            assert apart <= limit * (1 + 1e-9)
            worst[relation] = max(worst[relation], apart / limit)
        assert worst["add_remove"] > reached and worst["replace"] > reached_by_replacing

    def test_three_levels_and_deeper_strings(self):
        """Three rounds that prune: the bound is nearly reached by clients who share a string."""
        coin, threshold, epsilon = 0.4, 2, 0.5
        plan = LevelPlan(1.0, 0.9, "rounds", 3, coin, threshold, pruned=True)
        worst = 0.0
        for people in (("aaa",) * 2, ("aaa",) * 3, ("aaa",) * 4, ("aaa", "aaa", "aab"), ("aaa", "aa", "aab", "b")):
            more = outputs(people, "rounds", coin, threshold, levels=3)
            less = outputs(people[1:], "rounds", coin, threshold, levels=3)
            worst = max(worst, divergence(more, less, epsilon), divergence(less, more, epsilon))
        assert 0.9 * plan.delta(epsilon) < worst <= plan.delta(epsilon) * (1 + 1e-9)

    @pytest.mark.parametrize(("rate", "threshold", "epsilon"), [(0.4, 2, 0.2), (0.3, 4, 0.3), (0.5, 3, 0.5)])
    def test_rounds_that_prune_by_the_worst_shared_string(self, rate, threshold, epsilon):
        """k clients with one string, three rounds of tokens until there is none: all sequences, for every k."""

        def chain(k):
            row = stats.binom.pmf(np.arange(40), k, rate)
            shown, silent = row[threshold:], row[:threshold].sum()
            two = np.outer(shown, shown).ravel()
            return np.concatenate([[silent], shown * silent, two * silent, np.outer(two, shown).ravel()])

        worst = 0.0
        for k in range(threshold, 30):
            p, q = chain(k), chain(k - 1)
            worst = max(worst, *(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))))
        one = rounds_delta(epsilon, rate, threshold, 1, "add_remove")
        bound = rounds_delta(epsilon, rate, threshold, 3, "add_remove", True)
        assert 1.02 * one < worst <= bound * (1 + 1e-9), "later rounds count where a prefix survived"
        assert bound < 1.3 * worst and bound < rounds_delta(epsilon, rate, threshold, 3, "add_remove")

    def test_the_two_levels_of_the_docs(self):
        """Coin 0.3, threshold 2: of 0.09 for known levels, 0.053 for secret ones, and 0.0225 that is reached."""
        known, secret = (LevelPlan(1.0, 0.5, "cohorts", 2, 0.3, 2, secret_levels=one) for one in (False, True))
        assert known.delta(1.0) == pytest.approx(0.09) and secret.delta(1.0) == pytest.approx(0.15 / 0.85 * 0.3)
        more, less = (outputs(("aa",) * count, "cohorts", 0.3, 2) for count in (2, 1))
        assert divergence(more, less, 1.0) == pytest.approx(0.15**2)

    @pytest.mark.parametrize(("coin", "levels", "threshold"), [(0.4, 2, 3), (0.8, 3, 2), (0.6, 5, 4)])
    @pytest.mark.parametrize("epsilon", [0.2, 1.0])
    def test_secret_levels_by_the_worst_number_of_others(self, coin, levels, threshold, epsilon):
        """The closed form is the largest over all k: k - 1 coins of the others, against these and one coin of p."""
        share = coin / levels
        worst, x = 0.0, np.arange(200)
        for others in range(150):
            less = stats.binom.pmf(x, others, share / (1 - coin + share))
            more = (1 - coin) * less + coin * np.append(0, less[:-1])
            p, q = (np.append(row[:threshold].sum(), row[threshold:]) for row in (more, less))
            worst = max(worst, *(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))))
        assert secret_levels_delta(epsilon, coin, threshold, levels) == pytest.approx(worst, rel=1e-9)

    def test_levels_that_are_known_or_depend_on_the_value_break_the_charge_for_secret_ones(self):
        """Two clients of 'aa', both surely at level 1, show with the chance 0.3^2: above 0.053, within 0.09."""
        more, less = (outputs(("aa",) * count, "rounds", 0.3, 2, levels=1) for count in (2, 1))
        apart = divergence(more, less, 1.0)
        assert apart == pytest.approx(0.3**2) and apart > 1.6 * secret_levels_delta(1.0, 0.3, 2, 2)
        assert apart <= LevelPlan(1.0, 0.5, "cohorts", 2, 0.3, 2).delta(1.0) * (1 + 1e-9)

    def test_secret_levels_need_fewer_clients_and_cohorts(self):
        known, secret = (level_plan(1.0, 1e-8, 10, protocol="cohorts", secret_levels=one) for one in (False, True))
        assert secret.half < 0.6 * known.half and 0.9e-8 < secret.delta(1.0) <= 1e-8
        assert secret.delta(1.0, "replace") == known.__class__(
            1.0, 0.9, "cohorts", 10, secret.coin, secret.threshold
        ).delta(1.0, "replace"), "replacement is charged as for known levels"
        assert "secret" in str(secret.certify()) and "secret" not in str(known.certify())
        for protocol in ("rounds", "one_round"):
            with pytest.raises(InvalidValue, match="secret_levels"):
                level_plan(1.0, 1e-8, 10, protocol=protocol, secret_levels=True)
        for wrong in ({"secret_levels": 1}, {"pruned": "yes"}):
            with pytest.raises(DpsieveError, match=next(iter(wrong))):
                LevelPlan(1.0, 0.5, "cohorts", 2, 0.3, 2, **wrong)
        made = TrieHeavyHitters(1.0, 1e-8, max_length=3, protocol="cohorts", secret_levels=True).run(["abc"] * 5000)
        assert made.table["key"].to_pylist() == ["abc"] and made.mechanism.secret_levels

    def test_tries_and_trees_prune(self):
        assert TrieHeavyHitters(1.0, 1e-6, max_length=3).plan.pruned
        assert Quantiles(0.0, 1.0, epsilon=1.0, delta=1e-6).plan.pruned

    def test_old_plans_mean_what_they_meant(self):
        """A saved plan without the two new fields is neither pruned nor secret."""
        plan = level_plan(1.0, 1e-6, 3, pruned=True)
        old = {name: value for name, value in plan.to_json().items() if name not in ("pruned", "secret_levels")}
        assert (from_json(old).pruned, from_json(old).secret_levels) == (False, False)
        assert from_json(plan.to_json()) == plan

    def test_cohorts_cost_once_however_many_levels(self):
        one = level_plan(1.0, 1e-8, 1, protocol="one_round")
        for levels in (2, 20, 100):
            many = level_plan(1.0, 1e-8, levels, protocol="cohorts")
            assert (many.coin, many.threshold, many.guarantee) == (one.coin, one.threshold, one.guarantee)
            assert many.delta(1.0) == one.delta(1.0) and many.certify().worst == one.certify().worst

    def test_levels_are_drawn_evenly_and_once(self):
        plan, strings, drawn = LevelPlan(1.0, 0.5, "cohorts", 7, 1 - 1e-9, 1), Strings(7), []
        asked = [Question("cohorts", k, 7, 1, plan.coin, strings, ("a" * (k - 1),)) for k in range(1, 8)]
        answer_all(plan, strings, ["a" * 7] * 200_000, asked, lambda *answers: drawn.append(*answers[2]), resolve(None))
        assert 199_900 < sum(drawn) <= 200_000
        assert_counts(np.array(drawn, float), np.full(7, sum(drawn) / 7))

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts"])
    def test_rare_strings_are_released_as_often_as_they_may(self, protocol):
        """15,000 strings that share no prefix, each of a few clients, through the whole path."""
        coin, threshold, clients, count = 0.4, 2, 4, 15_000
        codes = [f"{i:05d}" for i in range(count)]
        strings = pa.array([code + code[::-1] for code in codes for _ in range(clients)])
        server = TrieHeavyHitters(3.0, 0.4, max_length=10, step=5, protocol=protocol, coin=coin, threshold=threshold)
        found = len(server.run(strings))
        if protocol == "rounds":
            expected = stats.binom.sf(threshold - 1, clients, coin) ** 2
        else:
            law = stats.multinomial(clients, [coin / 2, coin / 2, 1 - coin])
            rows = [(x, y, clients - x - y) for x in range(2, clients + 1) for y in range(2, clients - x + 1)]
            expected = sum(law.pmf(row) for row in rows)
        low, high = binomial_band(count, expected)
        assert low <= found <= high


class TestPaths:
    people = ("aa", "aa", "aa", "b")

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts"])
    @pytest.mark.parametrize("path", ["answers", "padded messages", "run"])
    def test_clients_one_by_one_and_all_at_once_tell_the_same(self, protocol, path):
        exact = outputs(self.people, protocol, 0.6, 2)
        rounds, told = 400, Counter()
        for _ in range(rounds):
            server = TrieHeavyHitters(3.0, 0.8, max_length=2, alphabet="ab", protocol=protocol, coin=0.6, threshold=2)
            if path == "run":
                server.run(self.people)
            else:
                levels = 1 + uniform_integers(len(self.people), 2, resolve(None))
                for question in server.questions():
                    people = zip(self.people, levels, strict=True)
                    answers = [client_answer(question, string, level=level, budget=None) for string, level in people]
                    sent = [padded_message(question, answer) for answer in answers]
                    server.take(answers if path == "answers" else sent)
            told[told_by(server)] += 1
        assert set(told) <= set(exact)
        assert_counts(np.array([told[out] for out in exact], float), np.array([*exact.values()]) * rounds)

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_heavy_hitters_of_a_zipf_stream(self, protocol):
        rng = np.random.default_rng(3)
        codes = np.minimum(rng.zipf(1.4, 200_000), 50_000)
        kinds, counts = np.unique(codes, return_counts=True)
        words = np.array([np.base_repr(7919 * int(kind), 26).lower() for kind in kinds])
        true = dict(zip(words.tolist(), counts.tolist(), strict=True))
        server = TrieHeavyHitters(1.0, 1e-8, max_length=7, protocol=protocol)
        release = server.run(pa.array(np.repeat(words, counts)))
        found = dict(zip(release.table["key"].to_pylist(), release.table.to_pylist(), strict=True))
        sure = [word for word, count in true.items() if server.plan.reporting_probability([count])[0] > 1 - 1e-11]
        assert len(sure) >= 10 and set(sure) <= set(found) <= set(true)
        missed = sum(not found[word]["low"] <= true[word] <= found[word]["high"] for word in found)
        assert missed <= stats.binom.isf(1e-9, len(found), 0.05)
        assert release.guarantee == Guarantee(1.0, 1e-8, unit="one client") and release.mechanism.protocol == protocol
        assert release.certificate.worst <= 1e-8 and not release.unsafe_to_publish
        trie = release.trie.to_pylist()
        alive = {row["prefix"] for row in trie if not row["ended"]} | {""}
        assert all(row["prefix"][: (row["level"] - 1) * server.step] in alive for row in trie)
        assert all(row["token"] >= server.plan.threshold for row in trie)

    def test_a_prefix_that_is_a_string_of_its_own(self):
        people = ["go"] * 500 + ["golf"] * 400 + [""] * 300
        release = TrieHeavyHitters(2.0, 1e-6, max_length=4, step=2).run(people)
        assert release.table["key"].to_pylist() == ["", "go", "golf"]
        rows = {(row["level"], row["prefix"], row["ended"]) for row in release.trie.to_pylist()}
        assert rows == {(1, "", True), (1, "go", True), (1, "go", False), (2, "golf", True)}

    def test_bytes(self):
        people = [b"\x00\xff"] * 500 + [b"\x00"] * 500 + [b"\x07\x07"] * 500
        server = TrieHeavyHitters(2.0, 1e-6, max_length=2, alphabet=b"\x00\xff")
        assert server.run(people).table["key"].to_pylist() == [b"\x00", b"\x00\xff"]
        question = next(TrieHeavyHitters(2.0, 1e-6, max_length=2, alphabet=bytes(range(256))).questions())
        assert Question.from_json(json.loads(json.dumps(question.to_json()))) == question

    def test_any_text(self):
        people = ["żółć"] * 400 + ["日本語"] * 400 + ["🙂"] * 400
        release = TrieHeavyHitters(2.0, 1e-6, max_length=4).run(people)
        assert set(release.table["key"].to_pylist()) == set(people)

    def test_a_million_strings(self):
        letters = np.random.default_rng(1).integers(97, 123, (1_000_000, 20), dtype=np.uint8)
        letters[:600_000] = letters[np.arange(600_000) % 300]
        strings = pa.array(letters.view("S20").ravel()).cast(pa.binary()).cast(pa.string())
        server = TrieHeavyHitters(1.0, 1e-8, max_length=20, coin=0.125, threshold=18)
        assert len(server.run(strings)) == 300

    def test_a_seeded_source_is_marked_and_repeatable(self):
        made = [
            TrieHeavyHitters(2.0, 1e-6, max_length=3).run(["abc"] * 300, source=insecure_source(4)) for _ in range(2)
        ]
        assert made[0].table == made[1].table and made[0].unsafe_to_publish

    @pytest.mark.parametrize("people", [["abc"] * 300 + ["ab"] * 300, [b"\0\xff"] * 300, []])
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_saved_and_read_again(self, tmp_path, people, protocol):
        alphabet = b"\0\xff" if people and isinstance(people[0], bytes) else None
        release = TrieHeavyHitters(2.0, 1e-6, max_length=3, protocol=protocol, alphabet=alphabet).run(people)
        read = Release.load(release.save(tmp_path / "made"))
        assert type(read) is TrieRelease and read.trie == release.trie and read.trie.schema == release.trie.schema
        assert read.table == release.table and read.certificate == release.certificate
        assert read.notes == release.notes and (read.tokens == release.tokens).all()
        assert repr(release).startswith(f"<TrieRelease of {len(release)} row")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda place: place.unlink(),
            lambda place: place.write_bytes(b"PAR1"),
            lambda place: pq.write_table(pq.read_table(place).slice(1), place),
        ],
    )
    def test_damage_to_the_saved_trie_is_noticed(self, tmp_path, damage):
        folder = (
            TrieHeavyHitters(2.0, 1e-6, max_length=3, protocol="one_round").run(["abc"] * 300).save(tmp_path / "made")
        )
        damage(folder / "trie.parquet")
        with pytest.raises(CorruptRelease):
            Release.load(folder)

    def test_the_ledger_is_charged_before_the_first_question(self, tmp_path):
        ledger = Ledger(tmp_path / "ledger", epsilon=1.5, delta=1e-5, unit="one client")
        server = TrieHeavyHitters(1.0, 1e-6, max_length=3)
        questions = server.questions(ledger=ledger, note="words")
        assert not ledger.history()
        next(questions)
        assert len(ledger.history()) == 1
        with pytest.raises(BudgetExceeded):
            TrieHeavyHitters(1.0, 1e-6, max_length=3).run(["abc"], ledger=ledger)


class TestHostile:
    def server(self, **other):
        kinds = {"max_length": 4, "alphabet": "ab", "coin": 0.5, "threshold": 3, **other}
        return TrieHeavyHitters(8.0, 0.99, **kinds)

    def test_what_was_not_asked_for_is_ignored(self):
        server, levels = self.server(), []
        junk = [
            *(1, 1.5, "a", b"a", (), ("a",), ("a", False, 1), (b"a", False), ("a", 1), ("a", None), (None, False)),
            *({"prefix": "a"}, object(), ("A", False), ("aa", False), ("", False), ("aa", True), ("x" * 10**6, True)),
            *((["a"], False), ("\ud800", False), ("a\0", False), float("nan")),
        ]
        for question in server.questions():
            good = ("ab" * 2)[: question.level]
            server.take(junk if question.level == 1 else [("b" + good[1:], False), ("", True), (good, "yes")] * 5)
            server.take([None, None])
            server.take([(good, len(good) == 4), [good, len(good) == 4]])
            server.take([(good, len(good) == 4), ("bb", None), (None, True)])
            levels.append(question.level)
        assert levels == [1, 2, 3, 4] and server.ignored.malformed == len(junk) + 3 * 15 + 4 * 2
        assert server.release().table["key"].to_pylist() == ["abab"]
        assert "ignored" not in json.dumps(server.release().notes.to_json())

    def test_clients_with_other_strings_are_silent(self):
        server = self.server(min_length=1)
        question = next(server.questions())
        for other in ("abc", "aaaaa", "", b"ab", None, 1, ["a"], "A", "\ud800"):
            assert all(client_answer(question, other, budget=None) is None for _ in range(50))
        answers = filter(None, (client_answer(question, "ab", budget=None) for _ in range(50)))
        assert next(answers)[:2] == ("a", False)
        answers = filter(None, (client_answer(question, "b", budget=None) for _ in range(50)))
        assert next(answers)[:2] == ("b", True)
        release = self.server(min_length=1).run(["abc", "aaaaa", "", None, "A"] * 1000 + ["ab"] * 50)
        assert release.table["key"].to_pylist() == ["ab"]

    def test_a_message_that_comes_twice_counts_once(self):
        server = self.server(max_length=1)
        for question in server.questions():
            report = next(filter(None, (client_answer(question, "a", budget=None) for _ in range(99))))
            server.take([report] * 3)
            server.take([list(report)])
        assert server.ignored.repeated == server.ignored.total == 3 and len(server.release()) == 0

    def test_a_question_survives_the_wire_and_others_are_refused(self):
        question = next(self.server().questions())
        sent = json.loads(json.dumps(question.to_json()))
        assert Question.from_json(sent) == question
        for bad in (
            {},
            None,
            sent | {"level": 9},
            sent | {"coin": 0},
            sent | {"prefixes": [1]},
            sent | {"prefixes": ["a\ud800"]},
            sent | {"strings": {}},
        ):
            with pytest.raises(DpsieveError):
                Question.from_json(bad)
        with pytest.raises(DpsieveError, match="Question"):
            client_answer(sent, "a", budget=None)

    def test_a_client_needs_its_level_in_cohorts(self):
        question = next(self.server(protocol="cohorts").questions())
        for level in (None, 0, 5, "1"):
            with pytest.raises(DpsieveError, match="client_level"):
                client_answer(question, "ab", level=level, budget=None)
        assert all(client_answer(question, "ab", level=2, budget=None) is None for _ in range(50))

    @pytest.mark.parametrize("people", [[], [None], ["a"], ["abab"], pa.array([], pa.string()), pa.nulls(3)])
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_nobody_and_one_client(self, people, protocol):
        server = TrieHeavyHitters(1.0, 1e-6, max_length=4, protocol=protocol)
        release = server.run(people)
        assert len(release) == 0 and release.trie.num_rows == 0
        assert release.table.column_names == ["key", "count", "low", "high", "weight", "bound"]

    def test_things_out_of_order(self):
        server = self.server()
        with pytest.raises(InvalidValue, match="no question"):
            server.take([])
        with pytest.raises(InvalidValue, match="left to ask"):
            server.release()
        server.run([])
        with pytest.raises(InvalidValue, match="already"):
            server.run([])
        with pytest.raises(DpsieveError, match="reports"):
            open_one = self.server()
            next(open_one.questions())
            open_one.take(5)

    def test_bad_parameters(self):
        for name, values in {
            "max_length": (0, 1.5, "x", 10**6),
            "min_length": (-1, 9),
            "step": (0, 9, "x"),
            "protocol": ("other", None),
            "alphabet": ("", "aa", 5, b"", "\ud800"),
            "epsilon": (0, "x"),
            "delta": (0, 1),
        }.items():
            for value in values:
                with pytest.raises(DpsieveError, match=name):
                    TrieHeavyHitters(**({"epsilon": 1.0, "delta": 1e-6, "max_length": 4} | {name: value}))
        for people in ([1, 2], ["a", 1], "abc", 5, pa.array([1.5]), [["a"]]):
            with pytest.raises(DpsieveError, match="strings"):
                TrieHeavyHitters(1.0, 1e-6, max_length=4).run(people)

    @pytest.mark.parametrize("alphabet", [None, "ab", b"ab", "żb", bytes(range(256))])
    def test_columns_and_single_strings_are_judged_alike(self, alphabet):
        kind = Strings(3, 1, alphabet)
        some = ["", "a", "ab", "abc", "żab", "żb", "abab", "b b", "ba"]
        values = [text.encode() for text in some] if kind.of_bytes else some
        column = read_strings(kind, [*values, None])
        assert are_accepted(kind, column).tolist() == [*map(kind.accepts, values), False]
        assert are_accepted(kind, column.slice(3, 4)).tolist() == [*map(kind.accepts, values[3:7])]
        assert cut_prefixes(kind, column, 2).to_pylist()[:-1] == [value[:2] for value in values]
        assert Strings.from_json(json.loads(json.dumps(kind.to_json()))) == kind
