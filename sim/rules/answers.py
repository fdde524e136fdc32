"""Readers of a plug-in's answer: each makes a plain value of what a user's code returned, or raises ValueError."""

from __future__ import annotations

from typing import Any

MAX_BITS = 63
"""The most bits of an answered number: all that the engine counts is far below."""


def number(answer: Any) -> int:
    """Read an integer; raises ValueError for another type, a truth value, or far too many digits."""
    if not issubclass(type(answer), int) or type(answer) is bool:
        raise ValueError
    plain = int.__add__(answer, 0)
    if plain.bit_length() > MAX_BITS:
        raise ValueError
    return plain


def count(answer: Any) -> int:
    """Read an integer that is at least 0: tokens, columns, blocks."""
    if (plain := number(answer)) < 0:
        raise ValueError
    return plain


def counts(answer: Any) -> list[int]:
    """Read a list of integers that are at least 0."""
    if not issubclass(type(answer), list):
        raise ValueError
    return [count(item) for item in list.__iter__(answer)]
