"""The one door: words that never repeat across threads, processes and copies."""

import copy
import os
import pickle
import signal
import threading

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM

from dpsieve.errors import DpsieveError, InvalidType, RandomnessError
from dpsieve.randomness import SystemSource
from dpsieve.randomness.source import resolve, uniform_bits
from dpsieve.testing import insecure_source

pytestmark = pytest.mark.system_source


def test_words_come_in_any_number():
    source = SystemSource()
    for count in (0, 1, 511, 512, 513, 200_000):
        words = source.words(count)
        assert words.dtype == np.uint64 and len(words) == count
    drawn = np.concatenate([source.words(n) for n in (1, 5, 600, 300_000, 1)])
    assert len(np.unique(drawn)) == len(drawn)  # a repeated 64-bit word has probability 3e-9 here


def test_every_bit_is_fair():
    """Each of the 64 bits is 1 half of the time; by Hoeffding the test fails by chance once in 10^9 runs."""
    words = SystemSource().words(1 << 20)
    ones = np.array([int(((words >> np.uint64(b)) & np.uint64(1)).sum()) for b in range(64)])
    bound = np.sqrt(len(words) / 2 * np.log(2 * 64 / FALSE_ALARM))
    assert (np.abs(ones - len(words) / 2) < bound).all()


def test_threads_do_not_share_a_stream():
    source, drawn = SystemSource(), {}

    def draw(name):
        drawn[name] = source.words(300)

    threads = [threading.Thread(target=draw, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = np.concatenate(list(drawn.values()))
    assert len(np.unique(together)) == 4 * 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_forked_children_do_not_share_a_stream():
    """Parent and two children all have 300 buffered words at the fork; none of them may come out twice."""
    source = SystemSource()
    source.words(1)
    heard = []
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, source.words(300).tobytes())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            heard.append(np.frombuffer(pipe.read(), np.uint64))
        os.waitpid(child, 0)
    together = np.concatenate([*heard, source.words(300)])
    assert len(together) == 900 and len(np.unique(together)) == 900


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_that_has_the_same_process_number(monkeypatch):
    """Numbers are used again, and a container may start at the same one: the fork itself must be noticed."""
    source = SystemSource()
    source.words(1)
    parent = os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.getpid = lambda: parent
        os.write(writer, source.words(300).tobytes())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        heard = np.frombuffer(pipe.read(), np.uint64)
    os.waitpid(child, 0)
    assert len(np.unique(np.concatenate([heard, source.words(300)]))) == 600


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timer signals")
def test_a_signal_handler_that_draws_gets_words_of_its_own():
    source, drawn = SystemSource(), []

    def interrupt(*_):
        drawn.append(source.words(1))

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        own = [source.words(1) for _ in range(150_000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert drawn
    together = np.concatenate([*own, *drawn])
    assert len(np.unique(together)) == len(together)


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, 2**60, True])
def test_bad_numbers_of_words(count):
    for source in (SystemSource(), insecure_source(1)):
        with pytest.raises(DpsieveError, match="count"):
            source.words(count)


def test_a_stream_changes_its_key_as_it_goes():
    source = SystemSource()
    source.words(1)
    stream = source._local.stream
    before = stream._cipher
    source.words(1000)
    assert stream._cipher is not before


def test_a_source_cannot_be_copied():
    for source in (SystemSource(), insecure_source(1)):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(InvalidType, match="copied"):
                attempt(source)


def test_the_seeded_source_repeats_itself_and_says_that_it_is_unsafe():
    first, second = insecure_source(5), insecure_source(5)
    assert (first.words(1000) == second.words(1000)).all()
    assert (first.words(10) != insecure_source(6).words(10)).all()
    assert not first.publishable and SystemSource().publishable


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_the_seeded_source_refuses_to_follow_a_fork():
    source = insecure_source(1)
    child = os.fork()
    if child == 0:
        try:
            source.words(1)
        except RandomnessError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_bits_for_a_few_draws():
    source = insecure_source(2)
    assert uniform_bits(source, 0) == 0
    assert {uniform_bits(source, 1) for _ in range(200)} == {0, 1}
    assert max(uniform_bits(source, 130) for _ in range(200)).bit_length() > 120


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True, 2**300])
def test_bad_seeds(seed):
    with pytest.raises(DpsieveError, match="seed"):
        insecure_source(seed)


def test_only_a_source_is_a_source():
    with pytest.raises(InvalidType, match="source"):
        resolve(np.random.default_rng())
