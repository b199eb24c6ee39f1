"""Trace which functions of the package a call enters."""

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import pairwise
from types import FrameType
from typing import Any

ROOT = "dpsieve"
_RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


@dataclass
class Trace:
    """The functions of the package that a call entered, in order.

    Attributes:
        entered: pairs of a module and a qualified name, such as ('dpsieve.validate', 'epsilon'), one per call.
    """

    entered: list[tuple[str, str]] = field(default_factory=list)

    @property
    def modules(self) -> list[str]:
        """The modules entered, in the order of their first call."""
        return list(dict.fromkeys(module for module, _ in self.entered))

    @property
    def packages(self) -> list[str]:
        """The packages entered, in the order of their first call; a module next to them is its own package."""
        return list(dict.fromkeys(map(_package, self.modules)))

    @property
    def package_changes(self) -> int:
        """How often a call entered another package than the call before it."""
        return sum(_package(one) != _package(two) for (one, _), (two, _) in pairwise(self.entered))

    @property
    def functions(self) -> int:
        """The number of distinct functions entered."""
        return len(set(self.entered))

    @property
    def calls(self) -> Counter[str]:
        """The number of calls of each function, by its full name."""
        return Counter(f"{module}.{name}" for module, name in self.entered)

    def first_missed(self, modules: list[str]) -> str | None:
        """Return the first of these modules that is not entered after the ones before it; None if there is none.

        A package stands for any of its modules.
        """
        remaining = list(modules)
        for module, _ in self.entered:
            while remaining and f"{module}.".startswith(f"{remaining[0]}."):
                del remaining[0]
        return next(iter(remaining), None)

    def count(self, name: str) -> int:
        """Return the number of calls of functions with this full name or end of it, such as 'Guarantee.__init__'."""
        return sum(count for full, count in self.calls.items() if full == name or full.endswith(f".{name}"))

    def __str__(self) -> str:
        sizes = f"{len(self.entered)} calls of {self.functions} functions in {len(self.modules)} modules"
        return f"{sizes}, {self.package_changes} package changes"


def trace(call: Callable[[], Any], *, warm: int = 1, threads: bool = False) -> Trace:
    """Run a callable and return what it entered, in the thread of the caller.

    Args:
        call: a callable without arguments.
        warm: how often it runs untraced first, so that imports and compilation are left out.
        threads: also trace threads that the call starts.
    """
    for _ in range(warm):
        call()
    found, seen = Trace(), set[FrameType]()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] != ROOT or frame.f_code.co_name == "<module>":
            return
        if frame.f_code.co_flags & _RESUMED:
            if frame in seen:
                return
            seen.add(frame)
        found.entered.append((module, _name(frame)))

    before = sys.getprofile()
    gc.collect()  # finalizers of earlier calls are no part of this one
    threading.setprofile(enter if threads else None)
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return found


def _name(frame: FrameType) -> str:
    """Return the qualified name of a function; of a method that a dataclass generated, that of its class."""
    code = frame.f_code
    if code.co_filename == "<string>" and code.co_argcount:
        first = frame.f_locals.get(code.co_varnames[0])
        owner = first if isinstance(first, type) else type(first)
        return f"{owner.__qualname__}.{code.co_name}"
    return code.co_qualname


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])
