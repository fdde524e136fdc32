"""Banner of a run, told before it starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from stateat.sim.events import Group
from stateat.sim.explain.shortest import shortest_repeat
from stateat.sim.options import Options
from stateat.sim.printable import one_line, plural

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
    """Grid, hash unit, mode of its steps, minimum cacheable prefix, worker, blocks that a request pins.

    ``live``: what a release decides by itself is not said.
    """
    parts = [f"grid {grid(options)}" if options.recurrent else "no recurrent group", f"hash unit {options.hash_unit}"]
    if not live:
        parts.append(mode(options))
    if not options.enable_prefix_caching:
        parts.append("prefix caching off")
    elif not live and (text := _minimum(options)):
        parts.append(text)
    if options.recurrent and options.speculative.num_speculative_tokens:
        parts.append(_worker(options))
    pinned = _pinned(options)
    per_token = [g for g in options.groups if not (g.recurrent or g.sliding_window)]
    said = [f"{most}{plural(count, 'block')} of {name}" for name, (most, count) in pinned.items()]
    said += [f"1 per {plural(g.block_size, 'token')} of {g.name}" for g in per_token]
    parts.append(f"a request pins {' + '.join(said)}")
    if per_token:
        pool = plural(options.num_blocks, "block")
        pool += f", and {options.num_state_blocks} of states" if options.num_state_blocks else ""
        parts.append(f"alone it has room for {plural(_room(options, pinned), 'token')} in the pool of {pool}")
    return parts


def mode(options: Options) -> str:
    """Mode of the steps: one at a time, several in flight, or a pipeline; with the key, where a server of the release
    would be asynchronous with these options."""
    from stateat.sim.releases.async_default import by_default
    from stateat.sim.releases.policy import Policy

    policy = Policy.of(options)
    options = policy.options
    if options.async_scheduling:
        return f"asynchronous scheduling ({options.batch_queue} steps in flight)"
    depth = options.batch_queue
    said = "synchronous" if depth == 1 else f"pipeline of {depth}"
    if not by_default(options, policy.values):
        return said
    return f"{said} ({options.preset} servers default to async_scheduling)"


def _room(options: Options, pinned: Mapping[str, tuple[str, int]]) -> int:
    """Tokens of one request for which each group has its blocks, the null block apart."""
    if not options.num_state_blocks:
        return _room_in(options, pinned, options.groups, options.num_blocks - 1)
    states = [group for group in options.groups if group.recurrent]
    others = [group for group in options.groups if not group.recurrent]
    return min(
        _room_in(options, pinned, others, options.num_blocks - 1),
        _room_in(options, pinned, states, options.num_state_blocks),
    )


def _room_in(options: Options, pinned: Mapping[str, tuple[str, int]], groups: Iterable[Group], blocks: int) -> int:
    """Tokens of one request for which these groups have their blocks in a pool of so many."""
    sizes = []
    for group in groups:
        if group.recurrent and not group.aligned and options.scheduler_reserve_full_isl:
            # It lets go of what lies behind it, but admission wants room for all of it.
            sizes.append(group.block_size)
            blocks -= options.speculative.num_speculative_tokens
        elif group.name in pinned:
            blocks -= pinned[group.name][1]
        else:
            sizes.append(group.block_size)
    if not sizes:
        return options.max_model_len if blocks >= 0 else 0
    most = range(max(blocks, 0) * min(sizes) + 1)
    return max(bisect_right(most, blocks, key=lambda tokens: sum(-(-tokens // size) for size in sizes)) - 1, 0)


def grid(options: Options) -> int:
    """The block size that the split aligns to, by the rule in force (tokens)."""
    from stateat.sim.releases.policy import Policy

    return Policy.of(options).grid


def _table(options: Options) -> dict[str, str]:
    from stateat.sim.releases.presets import table

    return table(options.preset, options.rules)


def _worker(options: Options) -> str:
    """``worker v1 (rules: {worker: v2} runs the other)``: the model runner's, which counts where there are drafts."""
    worker = _table(options)["worker"]
    other = {"v1": "v2", "v2": "v1"}.get(worker)
    return f"worker {worker}" + (f" (rules: {{worker: {other}}} runs the other)" if other else "")


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


def _pinned(options: Options) -> dict[str, tuple[str, int]]:
    """Return by group what a request holds of it, where that is no block for each of its tokens: how many blocks, and a
    word before the number where that is the most."""
    drafts, step = options.speculative.num_speculative_tokens, options.max_num_batched_tokens
    pinned: dict[str, tuple[str, int]] = {}
    for group in options.groups:
        if group.aligned:
            pinned[group.name] = "", 2 + drafts + options.num_prefill_checkpoint_blocks
        elif group.recurrent:
            # A chunk has a column for each of its boundaries, and is behind the one that it starts from.
            reach = min(step, options.max_model_len)
            pinned[group.name] = "up to ", -(-reach // group.block_size) + 1 + drafts
        elif group.sliding_window:
            reach = min(group.sliding_window - 1 + step, options.max_model_len)
            pinned[group.name] = "up to ", -(-reach // group.block_size) + 1
    return pinned
