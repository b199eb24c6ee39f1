"""Samples of streams in two passes: who is found, what is counted, and the release that follows."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.scripted import Scripted
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.noise.private_total import private_scheme
from dpsieve.papers.weighted_sampling import StreamSample
from dpsieve.papers.weighted_sampling import stream_samples as stream


def passed(sample, batches):
    for batch in batches:
        sample.find(batch)
    for batch in batches:
        sample.count(batch)
    return sample.finish()


@pytest.mark.parametrize(("tau", "items"), [(0.05, 1), (0.05, 10), (0.5, 1), (1e-3, 200)])
def test_a_key_is_found_with_the_probability_of_the_scheme(tau, items):
    keys = 200_000 // items
    batches = [
        np.tile(np.arange(keys), items // 2 or 1),
        np.tile(np.arange(keys), items - items // 2 if items > 1 else 0),
    ]
    sample = StreamSample(tau)
    q = float(sample.scheme.inclusion([items])[0])
    found, frequencies = passed(sample, batches)
    low, high = binomial_band(keys, q)
    assert low <= len(found) <= high
    assert (frequencies == items).all() and q == pytest.approx(-np.expm1(-tau * items), rel=1e-11)


def test_every_key_is_thinned_exactly(monkeypatch):
    """With every coin near its ratio, each key goes through the exact comparison, and nearly all are kept."""
    monkeypatch.setattr(stream, "_NEAR", 1.0)
    found, _ = passed(StreamSample(0.7), [np.arange(4000)])
    low, high = binomial_band(4000, -np.expm1(-0.7))
    assert low <= len(found) <= high


def test_a_coin_beyond_the_ratio_drops_the_key():
    """The coins find a key a little too often, by less than 2^-35: the last words of the exact coin take that back."""
    for word, kept in [(0, ["tea"]), (2**64 - 1, [])]:
        found, _ = passed(StreamSample(0.7, source=Scripted(0, word)), [["tea"]])
        assert found.to_pylist() == kept


def test_the_scheme_never_promises_more_than_the_coins_give():
    """The ratio that keys are thinned by is between 1 - 2^-35 and 1, also where the scheme is constant."""
    from flint import arb

    from dpsieve.exact.balls import precision

    for tau in (1e-9, 1e-3, 0.3, 5.0, 80.0):
        sample = StreamSample(tau)
        for w in (1, 2, 3, 10, 1000, 10**6, 10**12):
            with precision(300):
                ratio = arb(float(sample.scheme.inclusion([w])[0])) / (1 - (1 - arb(sample._rate)) ** w)
                assert ratio <= 1 and ratio > 1 - arb(2) ** -35


def test_the_sample_feeds_a_channel():
    """One-item keys through sample and channel: the measured rate of the whole path is delta."""
    delta, keys = 0.02, 60_000
    sample = StreamSample(0.1)
    found, frequencies = passed(sample, [np.arange(keys)])
    release = ds.channels.optimal(1.0, delta, sample.scheme, unit="one item").release(
        found, frequencies, already_sampled=True
    )
    low, high = binomial_band(keys, delta)
    assert low <= len(release) <= high


def test_texts_in_batches_of_any_kind():
    batches = [["tea", None, "milk"], pa.array(["tea"]), pa.chunked_array([["tea"], ["milk"]]), []]
    found, frequencies = passed(StreamSample(60.0), batches)
    assert dict(zip(found.to_pylist(), frequencies.tolist(), strict=True)) == {"milk": 2, "tea": 3}
    empty, none = passed(StreamSample(0.5), [[]])
    assert len(empty) == len(none) == 0


def test_it_is_saved_with_a_release(tmp_path):
    sample = StreamSample(0.5)
    found, frequencies = passed(sample, [["tea"] * 500])
    release = ds.channels.optimal(1.0, 1e-6, sample.scheme).release(found, frequencies, already_sampled=True)
    assert ds.Release.load(release.save(tmp_path / "x")).mechanism.scheme == sample.scheme


def twice_counted():
    sample = StreamSample(90.0)
    sample.find(["tea"])
    sample.count(["tea", "tea"])
    sample.finish()


def late():
    sample = StreamSample(1.0)
    sample.count(["tea"])
    sample.find(["tea"])


def other_stream():
    sample = StreamSample(90.0)
    sample.find(["tea", "milk"])
    sample.count(["tea"])
    sample.finish()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: StreamSample(0.0), "tau"),
        (lambda: StreamSample(1.0).find("tea"), "one str"),
        (lambda: StreamSample(1.0).find([1.5]), "float"),
        (lambda: StreamSample(1.0).finish(), "second pass is missing"),
        (late, "second pass has begun"),
        (twice_counted, "another length"),
        (other_stream, "same stream"),
        (lambda: passed(StreamSample(90.0), [["tea"], [1]]), "counted before"),
        (lambda: passed(StreamSample(90.0), [[], ["tea"], [b"tea"]]), "counted before"),
        (lambda: StreamSample(1e-9).count(["tea", b"tea"]), "mixes bytes and text"),
        (lambda: StreamSample(1.0).find(["\ud800"]), "surrogates"),
        (lambda: StreamSample(1.0).find(np.array(["tea", b"tea"], object)), "mixes bytes and text"),
    ],
)
def test_mistakes(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        wrong()


@pytest.mark.parametrize("power", [0.3, 0.5])
def test_powers_below_one_are_thinned(power):
    """Found as for power 1, and thinned to 1 - e^(-tau w^power)."""
    for items in (1, 9):
        sample, keys = StreamSample(0.3, power), np.arange(20_000)
        found, _ = passed(sample, [keys] * items)
        q = float(sample.scheme.inclusion([items])[0])
        low, high = binomial_band(len(keys), q)
        assert low <= len(found) <= high and q == pytest.approx(-np.expm1(-0.3 * items**power), rel=1e-11)
    with pytest.raises(DpsieveError, match="power"):
        StreamSample(0.3, 1.5)


def test_first_passes_merge_also_over_streams_that_share_keys():
    """Two streams with the same 20,000 keys, three items of each in one and five in the other."""
    keys, tau = np.arange(20_000), 0.05
    first, second = StreamSample(tau), StreamSample(tau)
    for _ in range(3):
        first.find(keys)
    for _ in range(5):
        second.find(keys)
    both = first.merge(second)
    for _ in range(8):
        both.count(keys)
    found, frequencies = both.finish()
    low, high = binomial_band(len(keys), -np.expm1(-8 * tau))
    assert low <= len(found) <= high and (frequencies == 8).all()
    for wrong, named in [
        (lambda: first.merge(first), "itself"),
        (lambda: first.merge(StreamSample(0.1)), "same tau"),
        (lambda: first.merge(3), "same tau"),
    ]:
        with pytest.raises(DpsieveError, match=named):
            wrong()


def test_a_stream_is_released_in_one_call():
    """One-item keys through sample and channel, as a Sample: the rate is delta; and it comes back from bytes."""
    stream_sample, keys = StreamSample(0.1), np.arange(60_000)
    stream_sample.find(keys)
    stream_sample.count(keys)
    sample = stream_sample.sample()
    assert ds.Sample.from_bytes(sample.to_bytes()).to_bytes() == sample.to_bytes()
    low, high = sample.estimate().interval(1 - 1e-9)
    assert low < 60_000 < high
    release = ds.channels.optimal(1.0, 0.02, sample.scheme, unit="one item").release(sample)
    low, high = binomial_band(60_000, 0.02)
    assert low <= len(release) <= high


def test_power_zero_samples_distinct_keys():
    """Keys are thinned to 1 - e^-tau however often they occur, and a scheme of that power takes counts and samples."""
    sample, keys = StreamSample(0.5, 0), np.arange(8_000)
    for passed in (sample.find, sample.count):
        passed(keys)
        passed(np.repeat(keys[:4_000], 5))
    found, _ = sample.finish()
    places = found.to_numpy()
    for share in ((places < 4_000).sum(), (places >= 4_000).sum()):
        low, high = binomial_band(4_000, -np.expm1(-0.5))
        assert low <= share <= high
    scheme = private_scheme([5] * 900 + [10**6], 100, epsilon=50.0, power=0)
    assert scheme.inclusion(1) == scheme.inclusion(10**6) == pytest.approx(-np.expm1(-100 / 901), rel=0.02)
    drawn = ds.Sample.of(list(range(5_000)), [1, 10**9] * 2_500, scheme, salt=ds.sampling.new_salt())
    low, high = binomial_band(5_000, scheme.inclusion(1).item())
    assert low <= len(drawn) <= high
