"""The one door to randomness: AES-256-CTR streams keyed by the operating system.

Every random decision in dpsieve starts as a 64-bit word from a `Source`. The system source gives each thread a stream
of its own, keyed by `os.urandom`. A stream replaces its key by its own output as it goes (so a stolen state does not
tell what was drawn before), and takes a new key from the operating system when it finds itself in another process.

AES-256 in counter mode is a pseudo-random permutation read without repetition; telling its output from true randomness
is as hard as breaking AES-256, and that is the one assumption under every guarantee here.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from dpsieve import validate
from dpsieve.errors import InvalidType
from dpsieve.types import Words

Entropy = Callable[[int], bytes]

_KEY, _NONCE, _BUFFER = 32, 16, 4096
_MOST = 10**10
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


class _Process:
    """Tells processes apart. A process number alone does not: it may be used again, or be the same in a container."""

    generation = 0

    @classmethod
    def here(cls) -> tuple[int, int]:
        return cls.generation, os.getpid()

    @classmethod
    def forked(cls) -> None:
        cls.generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.forked)


class Source(ABC):
    """A stream of uniform, independent 64-bit words.

    `words(n)` returns the next n of them. `publishable` says whether a result drawn from here may be published: it is
    False for the seeded source of `dpsieve.testing`. A source cannot be copied or pickled, as two copies would repeat
    each other's numbers.
    """

    publishable: bool

    @abstractmethod
    def words(self, count: int) -> Words:
        """Return the next `count` words as a new array."""

    def __reduce__(self) -> NoReturn:
        raise InvalidType("a random source cannot be copied or sent elsewhere. Make a new one where it is needed.")


class SystemSource(Source):
    """Keyed by the operating system, one stream a thread, safe across threads and forks."""

    publishable = True

    def __init__(self) -> None:
        self._local = threading.local()

    def words(self, count: int) -> Words:
        """Return the next `count` words of this thread's stream.

        The stream is taken out while it is used, in one step: a signal handler or a finaliser that draws in between
        finds none and makes its own.
        """
        stream: Stream | None = self._local.__dict__.pop("stream", None)
        if stream is None or not stream.at_home():
            stream = Stream(os.urandom)
        words = stream.words(count)
        self._local.stream = stream
        return words


class Stream:
    """One AES-256-CTR stream. `entropy(n)` gives the bytes of its first key; every megabyte it takes a new one."""

    def __init__(self, entropy: Entropy) -> None:
        self._process = _Process.here()
        self._buffer: Words = np.empty(0, np.uint64)
        self._rekey(entropy(_KEY + _NONCE))

    def at_home(self) -> bool:
        """Return whether this is the process that made the stream; in a forked one its words would repeat."""
        return self._process == _Process.here()

    def words(self, count: int) -> Words:
        """Return the next words; requests that fit the buffer are served from it."""
        if type(count) is not int or not 0 <= count <= _MOST:
            count = validate.whole("count", count, high=_MOST, hint="Pass how many words to draw.")
        if count > _BUFFER // 8:
            return self._fresh(count)
        if count > len(self._buffer):
            self._buffer = self._fresh(_BUFFER // 8)
        taken, self._buffer = self._buffer[:count].copy(), self._buffer[count:]
        return taken

    def _fresh(self, count: int) -> Words:
        out = np.empty(count, np.uint64)
        view = out.view(np.uint8).data
        for start in range(0, len(view), _CHUNK):
            part = view[start : start + _CHUNK]
            self._cipher.update_into(memoryview(_ZEROS)[: len(part)], part)
            self._rekey(self._cipher.update(bytes(_KEY + _NONCE)))
        return out

    def _rekey(self, seed: bytes) -> None:
        self._cipher = Cipher(AES256(seed[:_KEY]), CTR(seed[_KEY:])).encryptor()


_SYSTEM = SystemSource()


def resolve(source: Source | None) -> Source:
    """Return the source to draw from: the system's when None is given; anything that is not a Source is refused."""
    if source is None:
        return _SYSTEM
    if not isinstance(source, Source):
        raise InvalidType(f"source must be a dpsieve random source, not {type(source).__name__}. Leave it out.")
    return source


def uniform_bits(source: Source, bits: int) -> int:
    """Return an integer uniform on [0, 2^bits), for a few draws; arrays of words are for many."""
    bits = validate.whole("bits", bits, hint="Pass how many random bits to draw.")
    words = -(-bits // 64)
    return int.from_bytes(source.words(words).tobytes(), "little") >> (64 * words - bits)
