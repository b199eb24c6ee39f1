"""Silent clients send too: messages of one length for all values and coins, which change no count."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.federated import Histogram, Quantiles, TrieHeavyHitters, plan
from dpsieve.federated.client import (
    PrefixReport,
    Question,
    Report,
    Strings,
    ValueQuestion,
    client_answer,
    padded_message,
    value_answer,
)
from dpsieve.federated.client.answers import decode, is_dummy
from dpsieve.testing import insecure_source

NONCE = "0" * 32
AWKWARD = ("", "a", '"\\' * 20, "\0\x1f\x7f" * 13, "ż🙂\u2028" * 4, "x" * 40)


def lengths(question, answers):
    """Return the lengths of messages; two kinds of encryption add the same to each."""
    messages = [padded_message(question, answer) for answer in answers]
    sealed = [
        kind(bytes(32)).encrypt(bytes(12), message, None) for kind in (AESGCM, ChaCha20Poly1305) for message in messages
    ]
    assert {len(message) - len(messages[0]) for message in sealed} == {16}
    return {len(message) for message in messages}


class TestLengths:
    @pytest.mark.parametrize("values", [None, AWKWARD[1:], ("a",), ("🙂" * 8, "a")])
    def test_every_text_and_silence(self, values):
        question = ValueQuestion(0.5, "text", values, longest=64)
        assert len(lengths(question, [*(Report(text, NONCE) for text in values or AWKWARD), None])) == 1

    @given(st.text(max_size=60).filter(lambda text: len(text.encode("utf-8", "replace")) <= 64))
    @settings(max_examples=200, deadline=None)
    def test_any_text(self, text):
        question = ValueQuestion(1 - 1e-9, longest=64)
        try:
            counts = question.counts(text)
        except DpsieveError:  # a lone surrogate
            return
        answer = value_answer(question, text, budget=None) if counts else None
        assert len(padded_message(question, answer)) == len(padded_message(question, None)) == 64 * 6 + 2 + 65

    @pytest.mark.parametrize("values", [None, (0, 5), (-(2**63), 7)])
    def test_every_number_and_silence(self, values):
        question = ValueQuestion(0.5, "integers", values)
        some = values or (-(2**63), 2**63 - 1, 0, -1)
        assert len(lengths(question, [*(Report(number, NONCE) for number in some), None])) == 1

    @pytest.mark.parametrize("alphabet", [None, 'ab"\n', "abc", "ż🙂", b"ab", bytes(range(256))])
    @pytest.mark.parametrize(("level", "step"), [(1, 1), (2, 1), (2, 2)])
    def test_every_string_of_a_trie_and_silence(self, alphabet, level, step):
        strings = Strings(3, 0, alphabet)
        symbols = ["a", "\0", "🙂", '"'] if alphabet is None else list(alphabet)[:4]
        every = [
            bytes(word) if strings.of_bytes else "".join(word)
            for length in range(4)
            for word in itertools.product(symbols, repeat=length)
        ]
        known = tuple(sorted({word[: (level - 1) * step] for word in every if len(word) >= (level - 1) * step}))
        question = Question("rounds", level, -(-3 // step), step, 1 - 1e-9, strings, known)
        answers = [client_answer(question, word, budget=None) for word in every]
        assert sum(answer is not None for answer in answers) > 3
        assert len(lengths(question, [*answers, None])) == 1

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts", "one_round"])
    def test_at_every_level_all_clients_look_alike(self, protocol):
        """Sampled or not, of this level or another, with a value or none: one length for each question."""
        server = TrieHeavyHitters(8.0, 0.9, max_length=2, alphabet="ab", protocol=protocol, coin=0.5, threshold=2)
        people, seen = ["aa"] * 20 + ["ab", "b", "bb", "ba", None, "zz"], []
        for question in server.questions():
            asked = Question.from_json(json.loads(json.dumps(question.to_json())))
            answers = [
                client_answer(asked, one, level=1 + i % asked.levels, budget=None) for i, one in enumerate(people)
            ]
            seen.append(lengths(asked, answers))
            server.take([padded_message(asked, answer) for answer in answers])
        assert all(len(found) == 1 for found in seen) and server.ignored.total == 0

    def test_the_length_follows_from_the_question_alone(self):
        few, many = (ValueQuestion(0.5, "text", values) for values in (("tea",), ("tea", "lemonade")))
        tea = Report("tea", NONCE)
        assert len(padded_message(few, tea)) + len("lemonade") - len("tea") == len(padded_message(many, tea))
        assert ValueQuestion.from_json(many.to_json()).widest == many.widest

    def test_shapes_are_the_same(self):
        question = ValueQuestion(0.5)
        report, dummy = (json.loads(padded_message(question, answer)) for answer in (Report("tea", NONCE), None))
        assert report.keys() == dummy.keys() and len(dummy["nonce"]) == 32
        dummies = {padded_message(question, None) for _ in range(50)}
        assert len(dummies) == 50, "no two are alike, as no two reports are"


class TestCounts:
    """With the same coins, what the server learns is the same to the last bit."""

    def test_of_a_histogram(self):
        drinks, source = Histogram(plan(1.0, 1e-8)), insecure_source(7)
        clients = ["tea"] * 300 + ["milk"] * 200 + ["gin"] * 40
        answers = [value_answer(drinks.question, one, source=source, budget=None) for one in clients]
        plain = drinks.aggregate([answer for answer in answers if answer is not None])
        tally = drinks.tally().add([padded_message(drinks.question, answer) for answer in answers])
        assert tally.ignored.silent == answers.count(None) > 200 and tally.ignored.malformed == 0
        padded = tally.release()
        assert padded.table.equals(plain.table) and padded.guarantee == plain.guarantee and len(plain) == 2
        assert "silent" not in json.dumps(padded.notes.to_json())

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts"])
    def test_of_a_trie(self, protocol):
        made = []
        for padded in (False, True):
            server = TrieHeavyHitters(6.0, 0.5, max_length=2, protocol=protocol, coin=0.5, threshold=3)
            source = insecure_source(4)
            for question in server.questions():
                answers = [
                    client_answer(question, "ab" if i % 3 else "ba", level=1 + i // 2 % 2, source=source, budget=None)
                    for i in range(80)
                ]
                server.take([padded_message(question, answer) for answer in answers] if padded else answers)
            assert server.ignored.total == 0 and (server.ignored.silent > 0) == padded
            made.append(server.release())
        assert made[0].trie.equals(made[1].trie) and len(made[0]) == 2
        assert made[0].guarantee == made[1].guarantee and made[0].certificate == made[1].certificate

    def test_of_quantiles(self):
        values = np.linspace(0.0, 1.0, 400)
        tables = []
        for padded in (False, True):
            server, source = Quantiles(0.0, 1.0, epsilon=6.0, delta=0.01, branching=2, depth=2), insecure_source(2)
            for question in server.questions():
                answers = [
                    client_answer(question, server.grid.string(value), source=source, budget=None) for value in values
                ]
                server.take([padded_message(question, answer) for answer in answers] if padded else answers)
            assert server.ignored.total == 0
            tables.append(server.release().table)
        assert tables[0] == tables[1]

    def test_a_retry_is_the_same_message(self):
        drinks = Histogram(plan(1.0, 1e-8))
        message = padded_message(drinks.question, Report("tea", NONCE))
        tally = drinks.tally().add([message] * 30 + [padded_message(drinks.question, None)] * 5)
        assert (tally.ignored.repeated, tally.ignored.silent) == (29, 5)


class TestMistakes:
    def test_an_answer_to_another_question(self):
        question = ValueQuestion(0.5, values=("tea",))
        for wrong in (PrefixReport("a", True, NONCE), "tea", b"tea", 5):
            with pytest.raises(InvalidType, match="answer"):
                padded_message(question, wrong)
        with pytest.raises(InvalidValue, match="answer") as caught:
            padded_message(question, Report("a secret that is not listed", NONCE))
        assert "secret" not in str(caught.value)
        for wrong in (question.to_json(), None, "tea"):
            with pytest.raises(InvalidType, match="question"):
                padded_message(wrong, None)

    def test_what_is_no_dummy(self):
        """A message with one field that is not null is a report, or malformed: it is never dropped without a count."""
        good = decode(padded_message(Question("rounds", 1, 1, 1, 0.5, Strings(1), ("",)), None))
        assert is_dummy(good)
        for bad in (
            *({}, None, [], "x", good | {"ended": False}, good | {"prefix": ""}, good | {"version": 2}),
            *(good | {"version": True}, good | {"nonce": "x"}, good | {"nonce": None}, {"version": 1, "nonce": NONCE}),
        ):
            assert not is_dummy(bad)
        tally = Histogram(plan(1.0, 1e-8)).tally().add([good | {"version": 2}, {"version": 1, "nonce": NONCE}, None])
        assert tally.ignored.malformed == 3 and tally.ignored.silent == 0

    def test_dummies_are_the_coins_and_nothing_else(self):
        """Who could read messages would see a dummy as often as the coin falls silent: 0.76 of 4,000, but for 1e-9."""
        question = Histogram(plan(1.0, 1e-8)).question
        seen = Counter(
            is_dummy(decode(padded_message(question, value_answer(question, "tea", budget=None)))) for _ in range(4000)
        )
        assert abs(seen[True] / 4000 - (1 - question.coin)) < 6.2 * (question.coin * (1 - question.coin) / 4000) ** 0.5
