"""Compile with numba, and keep the result on disk where that is possible."""

from numba import cfunc, njit


def jit(**options):
    """Return a decorator like numba's njit that does without the cache where no folder can be written to."""

    def compile_(function):
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # a read-only installation without a home folder
            return njit(**options)(function)

    return compile_


def callback(signature):
    """Return a decorator that compiles a function for code that is not Python, which calls it by its address."""

    def compile_(function):
        try:
            return cfunc(signature, cache=True)(function)
        except RuntimeError:
            return cfunc(signature)(function)

    return compile_
