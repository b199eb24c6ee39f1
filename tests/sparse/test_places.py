"""Where entries go: digests of indices and texts, and random words from them."""

import numpy as np
import pyarrow as pa
import pytest

from dpsieve.errors import DpsieveError
from dpsieve.sparse.digests import digest_items, hash_words, read_items

KEY = np.array([3, 1, 4, 1], np.uint64)
P = 2**61 - 1


def polynomial(text, point):
    """The same in Python integers."""
    value = len(text) + 1
    for start in range(0, len(text), 7):
        value = (value * point + int.from_bytes(text[start : start + 7], "little")) % P
    return value


def test_an_index_is_its_own_digest():
    items = read_items(np.array([0, 7, 2**64 - 1], np.uint64), 2**64, "indices")
    assert digest_items(items, KEY).tolist() == [[0, 0], [7, 0], [2**64 - 1, 0]]
    assert digest_items(read_items([-1], "integers", "indices"), KEY).tolist() == [[2**64 - 1, 0]]


def test_a_text_is_a_polynomial():
    texts = ["", "a", "tea", "seven77", "eight888", "\0", "\0\0", "a" * 1000, "Grüße"]
    points = [int(word) >> 3 for word in hash_words(KEY, np.full((1, 2), P, np.uint64), 1)[0]]
    expected = [[polynomial(text.encode(), point % P) for point in points] for text in texts]
    assert digest_items(read_items(texts, "text", "indices"), KEY).tolist() == expected
    assert digest_items(read_items(pa.array(texts).slice(2), "text", "indices"), KEY).tolist() == expected[2:]
    assert digest_items(read_items([text.encode() for text in texts], "bytes", "indices"), KEY).tolist() == expected
    assert len({tuple(pair) for pair in expected}) == len(texts)


def test_words_depend_on_the_key_and_all_of_the_digest():
    digests = np.array([[5, 0], [5, 1], [6, 0]], np.uint64)
    words = hash_words(KEY, digests, 3)
    assert words.shape == (3, 6) and len(np.unique(words)) == 18
    assert (words[:, :2] == hash_words(KEY, digests, 1)).all()
    assert not (words == hash_words(KEY + np.uint64(1), digests, 3)).any()


def test_words_look_uniform():
    """Each of 64 bits is set half of the time: a bit off by 5.5 standard deviations has a chance of 4e-8."""
    words = hash_words(KEY, np.stack([np.arange(20_000), np.zeros(20_000)], axis=1).astype(np.uint64), 1)
    ones = [int(((words >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert max(abs(count - 20_000) for count in ones) < 5.5 * 100


@pytest.mark.parametrize(
    ("values", "dimension"),
    [
        ([-1], 10), ([10], 10), ([2**64], 2**64), ([1.5], 10), (["a"], 10), ([None], 10), ([None], "text"),
        (["a"], "bytes"), ([b"a"], "text"), ([1], "text"), (["a", 1], "text"), ("tea", "text"),
        (["a" * 70_000], "text"), ([[1]], 10), ({1: 2}, 10), (np.zeros((2, 2), np.uint64), 10), ([True], 10), (5, 10),
    ],
)  # fmt: skip
def test_other_indices_are_refused(values, dimension):
    with pytest.raises(DpsieveError, match="indices"):
        read_items(values, dimension, "indices")
