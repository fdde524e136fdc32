"""Text that stays short: what a repr shows of names and values of any length."""

from __future__ import annotations

from collections.abc import Sequence

SHORT = 80
"""Characters."""


def brief(text: str, limit: int = SHORT) -> str:
    """The text on one line, without what is not printable, and cut to ``limit`` characters."""
    from sim.report.text import one_line

    line = one_line(text[:limit])
    return line if max(len(text), len(line)) <= limit else f"{line[: limit - 1]}…"


def few(texts: Sequence[str], limit: int) -> str:
    """The first of them with commas, and how many more there are."""
    more = [f"and {len(texts) - limit:,} more"] if len(texts) > limit else []
    return ", ".join([*texts[:limit], *more])
