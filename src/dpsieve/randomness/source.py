"""The one door to randomness: AES-256-CTR streams keyed by the operating system.

Every random decision in dpsieve starts as a 64-bit word from a `Source`. The system source gives each thread a stream
of its own, keyed by `os.urandom`. A stream replaces its key by its own output at least every megabyte, so a stolen
state does not reveal what was drawn before, and is replaced by a stream with a new key after a fork.

AES-256 in counter mode is a pseudo-random permutation read without repetition; distinguishing its output from true
randomness is as hard as breaking AES-256, and that is the one assumption under every guarantee here.
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
    """Identity of a process. Its number alone is not enough: it may be reused, or be the same in a container."""

    generation = 0

    @classmethod
    def current(cls) -> tuple[int, int]:
        return cls.generation, os.getpid()

    @classmethod
    def forked(cls) -> None:
        cls.generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.forked)


class Source(ABC):
    """A stream of uniform, independent 64-bit words.

    `words(n)` returns the next n of them. `publishable` states whether a result drawn from it may be published: False
    for the seeded source of `dpsieve.testing`. A source cannot be copied or pickled: the copies would share numbers.
    """

    publishable: bool

    @abstractmethod
    def words(self, count: int) -> Words:
        """Return the next `count` words as a new array."""

    def __reduce__(self) -> NoReturn:
        raise InvalidType("a random source cannot be copied or sent elsewhere. Make a new one where it is needed.")


class SystemSource(Source):
    """Keyed by the operating system, one stream per thread, safe across threads and forks."""

    publishable = True

    def __init__(self) -> None:
        self._local = threading.local()

    def words(self, count: int) -> Words:
        """Return the next `count` words of this thread's stream.

        The stream is taken out while it is used, in one step: a signal handler or a finaliser that draws in between
        finds none and makes its own.
        """
        stream: Stream | None = self._local.__dict__.pop("stream", None)
        if stream is None or not stream.in_own_process():
            stream = Stream(os.urandom)
        words = stream.words(count)
        self._local.stream = stream
        return words


class Stream:
    """One AES-256-CTR stream, rekeyed at least every megabyte. `entropy(n)` returns the bytes of its first key."""

    def __init__(self, entropy: Entropy) -> None:
        self._process = _Process.current()
        self._buffer: Words = np.empty(0, np.uint64)
        self._rekey(entropy(_KEY + _NONCE))

    def in_own_process(self) -> bool:
        """Return whether this is the process that made the stream; in a forked one its words would repeat."""
        return self._process == _Process.current()

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
    """Return the source to draw from: the system's for None. Anything that is not a Source is refused."""
    if source is None:
        return _SYSTEM
    if not isinstance(source, Source):
        raise InvalidType(f"source has the type {type(source).__name__}. Leave it out.", argument="source")
    return source


def uniform_bits(source: Source, bits: int) -> int:
    """Return an integer uniform on [0, 2^bits), for a few draws; arrays of words are for many."""
    bits = validate.whole("bits", bits, hint="Pass how many random bits to draw.")
    words = -(-bits // 64)
    return int.from_bytes(source.words(words).tobytes(), "little") >> (64 * words - bits)
