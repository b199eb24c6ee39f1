"""For tests only: randomness that can be repeated. Nothing drawn from it may be published."""

import hashlib
import threading

from dpsieve import validate
from dpsieve.errors import RandomnessError
from dpsieve.randomness.source import Source, Stream
from dpsieve.types import Words


class InsecureSource(Source):
    """A stream that its seed determines: anyone who knows or guesses the seed can subtract the noise."""

    publishable = False

    def __init__(self, seed: int) -> None:
        digest = hashlib.shake_256(b"dpsieve insecure source %d" % seed)
        self._stream = Stream(digest.digest)
        self._lock = threading.Lock()

    def words(self, count: int) -> Words:
        """Return the next words; refused in a forked process, which would repeat those of its parent."""
        if not self._stream.in_own_process():
            raise RandomnessError("an insecure source cannot follow a fork. Make one with another seed in the child.")
        with self._lock:
            return self._stream.words(count)


def insecure_source(seed: int) -> InsecureSource:
    """Return a repeatable source for tests; a release made with it says that it is unsafe to publish.

    >>> insecure_source(7).words(3).tolist() == insecure_source(7).words(3).tolist()
    True
    """
    hint = "Pass a whole number, such as insecure_source(1)."
    return InsecureSource(validate.whole("seed", seed, high=2**256, hint=hint))
