"""What every channel does: print, pickle, compare, save, refuse, certify, draw, and keep its promise when measured."""

import copy
import json
import math
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from helpers.every_channel import CHANNELS
from helpers.schemes_in_use import FunctionScheme
from scipy import stats

from dpsieve.channels import Channel, frequency_at, simple
from dpsieve.errors import DpsieveError
from dpsieve.noise.known_keys import known_keys
from dpsieve.noise.private_total import PrivateTotal
from dpsieve.privacy import Composition, Renyi
from dpsieve.privacy.mechanism import from_json
from dpsieve.sampling import custom
from dpsieve.testing import insecure_source

ONE_IN_A_MILLION = 1e-6
OTHERS = {
    "known keys": lambda: known_keys(1.0, max_keys=3),
    "known keys, gaussian": lambda: known_keys(1.0, 1e-6, 40, 2),
    "known keys, wide": lambda: known_keys(0.1, 1e-6, 5000),
    "private total": lambda: PrivateTotal(0.1, 5),
}
EVERY = CHANNELS | OTHERS


@pytest.fixture(params=CHANNELS, scope="module")
def channel(request):
    return CHANNELS[request.param]()


@pytest.fixture(params=EVERY, scope="module")
def mechanism(request):
    return EVERY[request.param]()


def test_it_says_what_it_is(mechanism):
    assert mechanism.name in mechanism.to_json()["kind"]
    assert f"{mechanism.guarantee.epsilon:g}" in repr(mechanism) and "object at" not in repr(mechanism)


def test_it_is_a_value(mechanism):
    mechanism.certify()
    for again in (pickle.loads(pickle.dumps(mechanism)), copy.copy(mechanism), copy.deepcopy(mechanism)):
        assert again == mechanism and hash(again) == hash(mechanism) and again.certify() == mechanism.certify()
    with pytest.raises(FrozenInstanceError):
        mechanism.epsilon = 100.0
    assert mechanism != simple(0.123, 0.01)


def test_json_makes_it_again(mechanism):
    text = json.dumps(mechanism.to_json(), allow_nan=False)
    again = from_json(json.loads(text))
    assert again == mechanism and again.guarantee == mechanism.guarantee
    assert again.certify() == mechanism.certify() and again.to_json() == mechanism.to_json()


def test_bad_fields_are_refused(mechanism):
    data = mechanism.to_json()
    for name in data:
        for bad in (None, "x", -1, math.nan, [], {}, True):
            if (name, bad) in (("scheme", None), ("unit", "x")):
                continue
            with pytest.raises(DpsieveError):
                from_json({**data, name: bad})
    with pytest.raises(DpsieveError):
        from_json({**data, "colour": 1})


def test_a_scheme_of_a_class_that_is_not_registered_cannot_be_saved():
    channel = simple(1.0, 1e-3, FunctionScheme(lambda i: i / (i + 10)))
    with pytest.raises(DpsieveError, match="FunctionScheme has no name"):
        channel.to_json()


def test_the_parts_of_the_certificate_compose_to_the_guarantee(mechanism):
    certificate = mechanism.certify()
    whole = certificate.parts[-1]
    assert certificate.guarantee == mechanism.guarantee
    assert whole.scope == "one unit" and all(part.scope == "one key" for part in certificate.parts[:-1])
    assert (whole.epsilon, whole.delta) == (mechanism.guarantee.epsilon, mechanism.guarantee.delta)
    assert all(part.worst <= part.delta and part.delta <= whole.delta for part in certificate.parts)
    assert "Not covered" in str(certificate)


def test_what_it_spends_can_be_composed(mechanism):
    spends = mechanism.spends()
    found = Composition(spends).delta(mechanism.guarantee.epsilon)
    # Renyi divergences know less of Gaussian noise than its exact curve, from which the promise of one use is made.
    factor = 4.0 if any(isinstance(spend, Renyi) for spend in spends) else 2.0
    assert found <= max(factor * mechanism.guarantee.delta, 1e-12)


def test_each_field_is_plain(mechanism):
    for field in fields(mechanism):
        value = getattr(mechanism, field.name)
        assert value is None or type(value) in (int, float, str) or hasattr(value, "to_json")


def test_draws_are_determined_by_a_test_source(channel):
    frequencies = np.arange(1, 3000)
    first = channel.draw(frequencies, source=insecure_source(4)).tokens
    assert (first == channel.draw(frequencies, source=insecure_source(4)).tokens).all()
    assert (first != channel.draw(frequencies, source=insecure_source(5)).tokens).any()
    assert first.dtype == np.int64


def test_what_is_drawn_is_possible_and_can_be_read(channel):
    tokens = channel.draw(np.repeat([1, 5, 20, 100, 10**6], 200)).tokens
    tokens = tokens[tokens > 0]
    assert channel.possible(tokens) and channel.possible(tokens[:0])
    reading = channel.read(tokens)
    assert (reading.low <= reading.high).all() and (reading.weight >= reading.count).all()
    assert channel.terms(tokens, None) == pytest.approx(reading.weight)
    assert channel.estimator().value(tokens) == pytest.approx(reading.weight)
    assert (channel.terms(tokens, np.sqrt) <= reading.weight).all()
    for odd in (-tokens, tokens * 0, tokens + channel.largest_token):
        assert not channel.possible(odd)


def test_the_measured_rate_of_a_key_that_one_unit_alone_holds(channel):
    """At its tightest point, all the rows of one unit in one key: reported with probability delta at most."""
    rows, draws = getattr(channel, "max_rows", 1), 400_000
    chance = channel.reporting_probability([rows])[0]
    assert chance <= channel.guarantee.delta
    shown = int((channel.draw(np.full(draws, rows)).tokens > 0).sum())
    low, high = (getattr(stats.binom, tail)(ONE_IN_A_MILLION / 2, draws, chance) for tail in ("ppf", "isf"))
    assert low <= shown <= high


def test_the_kernel_sees_every_step():
    channel = CHANNELS["rows of units"]()
    assert channel.rows.step == channel.max_rows == 3
    assert len(list(channel.rows.chains())) == 3


def test_frequency_at(channel):
    chances = channel.reporting_probability(np.arange(1, 2000))
    for probability in (1e-3, 0.1, 0.5, 0.9):
        found = frequency_at(channel, probability)
        assert chances[found - 1] >= probability and (found == 1 or chances[found - 2] < probability)


def test_a_frequency_that_is_never_reported_so_often():
    assert frequency_at(simple(1.0, 0.01, custom([0.1, 0.3])), 0.5) is None
    with pytest.raises(DpsieveError, match="probability"):
        frequency_at(simple(1.0, 0.01), 1.5)


def test_a_channel_owes_its_rows_alone():
    assert Channel.__abstractmethods__ == {"rows"}
