"""Sums of a release by every estimator: values by hand, errors that hold over fresh releases."""

import math

import numpy as np
import pytest

import dpsieve as ds
from dpsieve.channels import optimal, stability
from dpsieve.errors import DpsieveError, InvalidType
from dpsieve.estimation import estimator
from dpsieve.noise.sample_threshold import sample_threshold
from dpsieve.papers.weighted_sampling import biased_down, estimate_sum, minimax, noisy_count, scaled, unbiased

KEYS, COUNTS = [f"k{i}" for i in range(60)], np.geomspace(4, 500, 60).astype(int)
CASES = {
    "mle": (optimal(1.0, 1e-3), estimator, {}), "biased_down": (optimal(1.0, 1e-3), biased_down, {}),
    "unbiased": (optimal(1.0, 0.2), unbiased, {}), "minimax": (optimal(1.0, 1e-3), minimax, {"low": 20, "high": 60}),
    "noisy_count": (stability(1.0, 1e-3), noisy_count, {}), "scaled": (sample_threshold(0.4, 5), scaled, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_the_sum_of_the_values_of_tokens(kind):
    channel, make, options = CASES[kind]
    counts = np.minimum(COUNTS, 9) if kind == "unbiased" else COUNTS
    release = channel.release(KEYS, counts)
    made = make(channel, **options)
    weights = np.linspace(-1, 2, len(release))
    chosen = np.arange(len(release)) % 3 > 0
    values = [float(made.value([token])[0]) for token in release.tokens]
    by_hand = sum(w * v for w, v, at in zip(weights, values, chosen, strict=True) if at)
    found = estimate_sum(release, kind, where=chosen, weights=weights, **options)
    assert found == pytest.approx(by_hand, rel=1e-12) and found == estimate_sum(
        release, made, where=chosen, weights=weights
    )


@pytest.mark.parametrize("kind", ["mle", "biased_down", "noisy_count"])
def test_stated_bias_and_variance_are_those_of_fresh_releases(kind):
    """Keys that are always reported: then both are sums over all keys, and the estimates of them are near."""
    channel, make, options = CASES[kind]
    counts, made = np.arange(80, 200, 2), make(channel, **options)
    sums = [estimate_sum(channel.release(KEYS, counts), made) for _ in range(250)]
    bias, variance = (np.mean([getattr(each, name) for each in sums]) for name in ("bias", "variance"))
    spread = np.std(sums)
    assert abs(np.mean(sums) - counts.sum() - bias) < 6.2 * spread / math.sqrt(250) + 0.02 * spread
    assert made.bias(counts).sum() == pytest.approx(bias, abs=0.3 * spread)
    assert spread**2 == pytest.approx(variance, rel=0.6)
    assert kind != "biased_down" or bias < 0


def test_squares_and_maximum_likelihood():
    release = optimal(1.0, 1e-3).release(KEYS, COUNTS)
    assert estimate_sum(release) == release.estimate() and estimate_sum(release).variance == release.estimate().variance
    exact = float((COUNTS.astype(float) ** 2).sum())
    assert estimate_sum(release, "minimax", g=np.square, low=20, high=60) == pytest.approx(exact, rel=0.2)


def test_what_it_refuses():
    release = optimal(1.0, 1e-3).release(KEYS, COUNTS)
    other = biased_down(optimal(0.5, 1e-3))
    for arguments, named in [
        ({"kind": "best"}, "kind"), ({"kind": "minimax"}, "minimax"), ({"low": 3}, "low"), ({"kind": other}, "channel"),
        ({"kind": estimator(optimal(1.0, 1e-3)), "g": np.sqrt}, "g"), ({"where": [True]}, "where"),
    ]:  # fmt: skip
        with pytest.raises(DpsieveError, match=named):
            estimate_sum(release, **arguments)
    for wrong in (
        3,
        ds.channels.known_keys(1.0).release(["a"], [5]),
        optimal(1.0, 0.1).release(KEYS, COUNTS, keys_only=True),
    ):
        with pytest.raises(InvalidType, match="release"):
            estimate_sum(wrong)
