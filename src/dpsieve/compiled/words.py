"""Compiled arithmetic on 128-bit integers, as pairs of 64-bit words (high, low)."""

import numpy as np

from dpsieve.compiled.jit import jit

_HALF = np.uint64(32)
_MASK = np.uint64(0xFFFF_FFFF)
_ZERO, _ONE, _WORD = np.uint64(0), np.uint64(1), np.uint64(64)


@jit(forceinline=True)
def add(ah, al, bh, bl):
    """Return a + b, modulo 2^128."""
    low = al + bl
    return ah + bh + (_ONE if low < al else _ZERO), low


@jit(forceinline=True)
def sub(ah, al, bh, bl):
    """Return a - b, modulo 2^128."""
    return ah - bh - (_ONE if al < bl else _ZERO), al - bl


@jit(forceinline=True)
def less(ah, al, bh, bl):
    """Return whether a < b."""
    return ah < bh or (ah == bh and al < bl)


@jit(forceinline=True)
def mul_words(a, b):
    """Return the 128-bit product of two words."""
    a1, a0, b1, b0 = a >> _HALF, a & _MASK, b >> _HALF, b & _MASK
    low = a0 * b0
    middle = a1 * b0 + (low >> _HALF)
    cross = a0 * b1 + (middle & _MASK)
    return a1 * b1 + (middle >> _HALF) + (cross >> _HALF), (cross << _HALF) | (low & _MASK)


@jit(forceinline=True)
def mul(ah, al, b):
    """Return the product of a 128-bit number and a word, in three words."""
    low_high, low = mul_words(al, b)
    high_high, high_low = mul_words(ah, b)
    middle = high_low + low_high
    return high_high + (_ONE if middle < high_low else _ZERO), middle, low


@jit(forceinline=True)
def mul_shift_down(ah, al, factor, shift):
    """Return floor(a * factor / 2^shift) for shift in 1..63; saturates at 2^128 - 1."""
    top, middle, low = mul(ah, al, factor)
    left = _WORD - shift
    if top >> shift != _ZERO:
        return ~_ZERO, ~_ZERO
    return (top << left) | (middle >> shift), (middle << left) | (low >> shift)


@jit(forceinline=True)
def mul_word_up(ah, al, factor):
    """Return ceil(a * factor / 2^64)."""
    top, middle, low = mul(ah, al, factor)
    return add(top, middle, _ZERO, _ONE if low != _ZERO else _ZERO)


@jit(forceinline=True)
def to_float(ah, al):
    """Return a as a float."""
    return np.float64(ah) * 18446744073709551616.0 + np.float64(al)


@jit(forceinline=True)
def divide(ah, al, bh, bl):
    """Return floor(a / b) for a quotient below 2^40: a floating-point guess, then corrected."""
    guess = np.uint64(to_float(ah, al) / to_float(bh, bl))
    top, high, low = mul(bh, bl, guess)
    while top != _ZERO or less(ah, al, high, low):
        guess -= _ONE
        top, high, low = mul(bh, bl, guess)
    rest_high, rest_low = sub(ah, al, high, low)
    while not less(rest_high, rest_low, bh, bl):
        guess += _ONE
        rest_high, rest_low = sub(rest_high, rest_low, bh, bl)
    return guess
