"""What is said of a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sim.engine.options import Options
from sim.report.text import one_line, plural
from sim.shortest import shortest_repeat

SEPARATOR = " · "


def banner(name: str, options: Options, live: bool, width: int | None) -> str:
    """``old gate (last-cache-position): grid 1600 · hash unit 16 · …``, folded to a terminal's width (None: a pipe)."""
    rule = "live" if live else _table(options)["split"]
    return folded(f"{one_line(name)} ({rule}): ", head(options, live), width)


def folded(label: str, parts: Sequence[str], width: int | None) -> str:
    """The label and the parts on one line, or on several that each hold as many parts as fit."""
    lines = [label + parts[0]]
    for part in parts[1:]:
        if width is not None and len(lines[-1]) + len(SEPARATOR) + len(part) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] += SEPARATOR + part
    return "\n".join(lines)


def head(options: Options, live: bool = False) -> list[str]:
    """Grid, hash unit, minimum cacheable prefix, blocks that a request pins; ``live``: what a release decides by
    itself is not said."""
    parts = [f"grid {grid(options)}" if options.recurrent else "no recurrent group", f"hash unit {options.hash_unit}"]
    if not options.enable_prefix_caching:
        parts.append("prefix caching off")
    elif not live and (text := _minimum(options)):
        parts.append(text)
    parts.append(f"a request pins {' + '.join(_pinned(options))}")
    if options.attention:
        room = options.num_blocks * min(options.groups[i].block_size for i in options.attention)
        parts.append(
            f"the pool of {plural(options.num_blocks, 'block')} has room for {plural(room, 'token')} of attention"
        )
    return parts


def grid(options: Options) -> int:
    """The block size that the split aligns to, by the rule in force (tokens)."""
    from sim.engine.rules import resolve

    return resolve(_table(options)).grid(options)


def _table(options: Options) -> dict[str, str]:
    from sim.engine.presets import table

    return table(options.preset, options.rules)


def _minimum(options: Options) -> str:
    """The shortest prompt that its first repeat hits with nothing else there; '' where that is not known."""
    found = shortest_repeat(options)
    if found is None:
        return ""
    if found.tokens is None:
        return f"no prompt up to {found.tried} tokens is hit by its first repeat (longer ones were not tried)"
    gaps = "; some longer prompts miss" if found.gaps else ""
    above = f"; max_model_len is {options.max_model_len}" if found.tokens >= options.max_model_len else ""
    return f"minimum cacheable prefix {found.tokens} tokens (alone, first repeat{gaps}{above})"


def _pinned(options: Options) -> Iterator[str]:
    for i in options.recurrent:
        yield f"{2 + options.speculative.num_speculative_tokens} blocks of {options.groups[i].name}"
    for i in options.attention:
        group = options.groups[i]
        if group.sliding_window:
            most = -(-(group.sliding_window - 1 + options.max_num_batched_tokens) // group.block_size) + 1
            yield f"up to {most} blocks of {group.name}"
        else:
            yield f"1 per {plural(group.block_size, 'token')} of {group.name}"
