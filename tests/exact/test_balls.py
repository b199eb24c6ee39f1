"""Ball arithmetic must not hang or mislead across threads and forks."""

import os
import threading
import time

import pytest
from flint import ctx

from dpsieve.exact.balls import largest, precision


def test_precision_is_restored():
    before = ctx.prec
    with precision(300):
        assert ctx.prec == 300
        with precision(500):
            assert ctx.prec == 500
        assert ctx.prec == 300
    assert ctx.prec == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_fork_while_another_thread_computes_does_not_hang_the_child():
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            with precision(200):
                time.sleep(0.001)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                with precision(100):
                    os._exit(0)
            deadline = time.monotonic() + 20
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                assert time.monotonic() < deadline, "the child hangs"
                time.sleep(0.01)
    finally:
        stop.set()
        thread.join()


def test_a_search_with_a_tolerance_stops_early_at_a_number_that_holds():
    asked: list[float] = []
    found = largest(lambda x: asked.append(x) or x * x <= 2, -0.0, 2.0, tolerance=1e-6)
    assert found * found <= 2 and found >= (1 - 1e-6) * 2**0.5
    assert len(asked) < 40 < 65
    assert largest(lambda x: x * x <= 2, -0.0, 2.0) == largest(lambda x: x * x <= 2, 0.0, 2.0)
