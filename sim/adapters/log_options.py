"""Options and groups in the ``run`` event of a log: those that are read, and their allowed values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stateat.kernels.families import DTYPES, FORMS, ROUNDINGS
from stateat.sim.adapters.log import INTEGERS
from stateat.sim.events import Group
from stateat.sim.scenario.truth import DIGEST, changed, wrong

KINDS = ("full-attention", "recurrent")
MODES = ("align", "all")


class Option(NamedTuple):
    """An option that an audit reads."""

    allowed: str
    accepts: Callable[[Any], bool]
    needed: bool = False


def _count(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least and value in INTEGERS


def _or_none(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _oracle(value: Any) -> bool:
    names = {"dtype": DTYPES, "kernel": FORMS, "rounding": ROUNDINGS}
    return (
        _texts(value)
        and "state" in value
        and all(key == "state" or text in names.get(key, ()) for key, text in value.items())
        and wrong(changed(DIGEST, value), True) is None
    )


OPTIONS = {
    "hash_unit": Option("an integer of 1 or more", _count(1), needed=True),
    "max_num_batched_tokens": Option("an integer of 1 or more", _count(1), needed=True),
    "long_prefill_token_threshold": Option("an integer of 0 or more", _count(0), needed=True),
    "enable_prefix_caching": Option("true or false", lambda value: isinstance(value, bool), needed=True),
    "max_concurrent_batches": Option("an integer of 1 or more", _count(1)),
    "async_scheduling": Option("true or false", lambda value: isinstance(value, bool)),
    "num_prefill_checkpoint_blocks": Option("an integer of 0 or more", _count(0)),
    "prefix_cache_retention_interval": Option("an integer of 0 or more, or null", _or_none(_count(0))),
    "longest_chunk": Option("an integer of 1 or more", _count(1)),
    "grid": Option("an integer of 1 or more, or null", _or_none(_count(1))),
    "seed_block": Option("an integer of 1 or more, or null", _or_none(_count(1))),
    "num_blocks": Option("an integer of 1 or more", _count(1)),
    "oracle": Option("what oracle of a scenario file says, state among it", _oracle),
    "clock": Option("us or steps", lambda value: value in ("us", "steps")),
    "rules": Option("an object with a text for each rule", _texts),
    "scenario": Option("a text", _text),
    "variant": Option("a text", _text),
    "case": Option("a text", _text),
}
"""Any other is not read. ``rules`` and those below it are only shown."""


def faults(options: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Problems with the options: the option's name, what was found, what is allowed."""
    for name, option in OPTIONS.items():
        if name not in options:
            if option.needed:
                yield name, "nothing", option.allowed
        elif not option.accepts(options[name]):
            yield name, options[name], option.allowed


def faults_of_groups(groups: Sequence[Group], options: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Problems with the groups, beside faultless options: index and key, what was found, what is allowed."""
    names = [group.name for group in groups]
    unit = options["hash_unit"]
    for i, group in enumerate(groups):
        if group.kind not in KINDS:
            yield f"[{i}].kind", group.kind, " or ".join(KINDS)
        if group.mamba_cache_mode not in MODES:
            yield f"[{i}].mamba_cache_mode", group.mamba_cache_mode, " or ".join(MODES)
        if names.index(group.name) != i:
            yield f"[{i}].name", group.name, "a name of its own"
        if group.prefix_cacheable and options["enable_prefix_caching"] and group.block_size % unit:
            yield f"[{i}].block_size", group.block_size, f"a multiple of hash_unit ({unit})"
        if group.sliding_window < 0 or (group.recurrent and group.sliding_window):
            yield f"[{i}].sliding_window", group.sliding_window, "0 or more, of attention alone"
