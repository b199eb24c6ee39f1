import dataclasses
import json
import math

import numpy as np
import pytest

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.privacy.guarantee import Guarantee


def test_a_guarantee_says_itself_in_one_sentence():
    assert str(Guarantee(1.0, 1e-8, unit="one user_id")) == (
        "(1, 1e-08)-differential privacy when one user_id is added or removed."
    )
    assert str(Guarantee(0.5, neighbours="replace")) == (
        "0.5-differential privacy when one row is replaced by another."
    )


def test_it_is_a_frozen_value():
    promise = Guarantee(1.0, 1e-8)
    assert promise == Guarantee(1.0, 1e-8) and hash(promise) == hash(Guarantee(1.0, 1e-8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        promise.epsilon = 2.0


def test_it_survives_json_exactly():
    promise = Guarantee(0.1 + 0.2, 1e-20 / 3, "replace", "one device")
    assert Guarantee.from_json(json.loads(json.dumps(promise.to_json()))) == promise
    for broken in ({}, {"epsilon": 1.0}, {**promise.to_json(), "extra": 1}, "text", None):
        with pytest.raises(DpsieveError):
            Guarantee.from_json(broken)


def test_which_promise_implies_which():
    strong, weak = Guarantee(0.5, 1e-9), Guarantee(1.0, 1e-8)
    assert strong.implies(weak) and strong.implies(strong) and not weak.implies(strong)
    assert not strong.implies(Guarantee(1.0, 1e-8, unit="one user"))
    assert not Guarantee(0.5, 0.0, "replace").implies(weak)


def test_replacement_is_a_removal_and_an_addition():
    replaced = Guarantee(0.5, 1e-9).for_replacement()
    assert replaced.epsilon == 1.0 and replaced.neighbours == "replace"
    assert replaced.delta == pytest.approx((1 + math.exp(0.5)) * 1e-9)
    assert replaced.delta >= (1 + math.exp(0.5)) * 1e-9
    assert Guarantee(0.5, 1e-9).implies(Guarantee(1.0, 1e-8, "replace"))
    assert replaced.for_replacement() is replaced
    for nothing_left in (Guarantee(1.0, 0.5), Guarantee(300.0)):
        with pytest.raises(InvalidValue, match="replacement"):
            nothing_left.for_replacement()
        assert not nothing_left.implies(Guarantee(500.0, 0.9, "replace"))
    with pytest.raises(DpsieveError, match="other"):
        Guarantee(1.0).implies(None)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-9), (0.0, 1e-9), (1e-12, 1e-12), (2.0, 0.0), (80.0, 1e-250)])
def test_groups_are_chains_of_single_units(epsilon, delta):
    """P0 <= e^epsilon P1 + delta, k times in a row, with 60 digits."""
    import mpmath

    for relation in ("add_remove", "replace"):
        single = Guarantee(epsilon, delta, relation, "user_id")
        for k in (2, 3, 5):
            group = single.for_group(k)
            with mpmath.workdps(60):
                sure = mpmath.mpf(0)
                for _ in range(k):
                    sure = mpmath.exp(mpmath.mpf(epsilon)) * sure + mpmath.mpf(delta)
                assert sure <= group.delta <= sure * (1 + mpmath.mpf(2) ** -40)
                assert k * mpmath.mpf(epsilon) <= group.epsilon <= k * mpmath.mpf(epsilon) * (1 + mpmath.mpf(2) ** -50)
            assert (group.neighbours, group.unit) == (relation, f"one group of {k} x user_id")
        assert single.for_group(1) is single
    assert Guarantee(0.5, 1e-9).for_group(2).delta == Guarantee(0.5, 1e-9).for_replacement().delta


def test_groups_that_nothing_is_promised_for_are_refused():
    for single, units in ((Guarantee(1.0, 0.1), 3), (Guarantee(300.0), 2), (Guarantee(0.0, 0.25), 4)):
        with pytest.raises(InvalidValue, match="units together"):
            single.for_group(units)
    with pytest.raises(DpsieveError, match="units"):
        Guarantee(1.0).for_group(0)


def test_what_people_read_is_never_rounded_down():
    assert str(Guarantee(1.0000049, 1e-8)).startswith("(1.00001, 1e-08)")
    assert str(Guarantee(-0.0)).startswith("0-differential")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"epsilon": e}, "epsilon") for e in (-1, math.nan, math.inf, "1", None, True, 1e9, 10**400)]
    + [({"delta": d}, "delta") for d in (-1e-9, 1.0, 2, math.nan, "0", None)]
    + [
        ({"neighbours": n}, "neighbours")
        for n in ("swap", None, 3, [], np.array(["add_remove"]), np.array(["add_remove", "x"]))
    ]
    + [({"unit": u}, "unit") for u in ("", "  ", None, 5, "a\nb", "\x1b[1m")],
)
def test_bad_values_are_named_with_the_fix(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        Guarantee(**({"epsilon": 1.0} | wrong))
