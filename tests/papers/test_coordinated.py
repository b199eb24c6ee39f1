"""Similarity of two data sets from coordinated samples."""

import math
from hashlib import sha256

import numpy as np
import pytest

from dpsieve import Sample, everything, ppswor, priority
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.papers.weighted_sampling import similarity
from dpsieve.sampling import new_salt

KEYS = [f"key {i}" for i in range(400)]
MAY = np.arange(400) % 37 + 1
JUNE = np.where(np.arange(400) % 3 == 0, 0, np.arange(400) % 23 + 1)
SMALLER, LARGER = float(np.minimum(MAY, JUNE).sum()), float(np.maximum(MAY, JUNE).sum())


def salt(number):
    return sha256(b"coordinated %d" % number).digest()


def samples(number, schemes):
    return [
        Sample.of(KEYS, counts, scheme, salt=salt(number)) for counts, scheme in zip((MAY, JUNE), schemes, strict=True)
    ]


def test_without_sampling_it_is_the_truth():
    assert similarity(*samples(0, (everything(), everything()))) == (SMALLER, LARGER, SMALLER / LARGER)


@pytest.mark.parametrize(
    "schemes",
    [(priority(0.05), priority(0.05)), (ppswor(0.1), ppswor(0.03)), (everything(), priority(0.02))],
    ids=["equal", "other rates", "one complete"],
)
def test_both_sums_are_estimated_without_bias(schemes):
    """Means over 400 salts, within six standard errors: a wrong probability of being in both is far outside."""
    found = np.array([similarity(*samples(number, schemes))[:2] for number in range(400)])
    errors = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - [SMALLER, LARGER]) < 6 * errors).all()
    assert errors[0] < 0.02 * SMALLER, "otherwise it could not fail"


def test_samples_that_are_not_coordinated_are_refused():
    one, other = (
        Sample.of(["tea"], [9], everything(), salt=new_salt()),
        Sample.of(["tea"], [9], everything(), salt=salt(1)),
    )
    with pytest.raises(InvalidValue, match="another salt"):
        similarity(one, other)
    with pytest.raises(InvalidType, match="another kind of keys"):
        similarity(Sample.of([7], [9], everything(), salt=salt(1)), other)
    with pytest.raises(InvalidType, match="other must be a Sample"):
        similarity(one, "tea")


def test_empty_samples_have_no_ratio():
    empty = Sample.of([], [], everything(), salt=salt(1))
    assert math.isnan(similarity(empty, empty).jaccard)
    assert similarity(empty, Sample.of(["tea"], [9], everything(), salt=salt(1))) == (0.0, 9.0, 0.0)
