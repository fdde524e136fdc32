"""The rules: how a release does what its options say. A preset is a table of their values.

A value is named, or given as ``module:Class`` (a plug-in: the class is called without arguments, and its instance
takes the place of a named value).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from stateat.sim.cache.connector import CONNECTOR, Connector
from stateat.sim.cache.drafter_drop import DRAFTER_DROP, DrafterDrop
from stateat.sim.cache.joint import LOOKUP
from stateat.sim.cache.lookup import Lookup
from stateat.sim.cache.skipped_states import SKIPPED_STATES, SkippedStates
from stateat.sim.cache.tier import TIER_RETURN, TierReturn
from stateat.sim.cache.window import WINDOW_PUBLISHING, WindowPublishing
from stateat.sim.errors import InputError
from stateat.sim.releases.plugins import load
from stateat.sim.rules.admission import ADMISSION, BLOCKED, Admission, Blocked
from stateat.sim.rules.boundaries import BOUNDARIES, JUNCTION, Boundaries, Junction
from stateat.sim.rules.checkpoint import CHECKPOINT, Checkpoint
from stateat.sim.rules.drafting import DRAFT_SLOTS, MODULES, RUNNING, DraftSlots, Running
from stateat.sim.rules.encoder import ENCODER, WHOLE_ITEMS, Cap, WholeItems
from stateat.sim.rules.eviction import EVICTION, Eviction
from stateat.sim.rules.grid import GRID, Grid
from stateat.sim.rules.in_flight import ABORT, FREE, STALE_OUTPUT, Abort, Free, StaleOutput
from stateat.sim.rules.load_failure import LOAD_FAILURE, LoadFailure
from stateat.sim.rules.partial_hits import PARTIAL_HITS_WHEN, PartialHitsWhen
from stateat.sim.rules.publishing import ITEM_HASH, PUBLISH, SNAPSHOTS, ItemHash, Publish, Snapshots
from stateat.sim.rules.record import Rule, Signature
from stateat.sim.rules.restore_column import RESTORE_COLUMN, RestoreColumn
from stateat.sim.rules.retention import RETENTION, Retention
from stateat.sim.rules.scheduling import PADDING, STARTED, THRESHOLD, Padding, Started, Threshold
from stateat.sim.rules.split import Split
from stateat.sim.rules.splits import SPLIT
from stateat.sim.rules.state_blocks import STATE_BLOCKS, STATE_NEED, STATE_SLOTS, StateNeed, StateSlots
from stateat.sim.rules.state_writes import STATE_WRITES, StateWrites
from stateat.sim.rules.tail_copy import TAIL_COPY, TailCopy
from stateat.sim.rules.undrafted_rows import UNDRAFTED_ROWS
from stateat.sim.rules.wide_block import WIDE_BLOCK, WideBlock
from stateat.sim.worker.rules import WORKER
from stateat.sim.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force: by name what the engine asks, and beside its type the record that tells what it means."""

    split: Annotated[Split, SPLIT]
    grid: Annotated[Grid, GRID]
    restore_column: Annotated[RestoreColumn, RESTORE_COLUMN]
    lookup: Annotated[Lookup, LOOKUP]
    drafter_drop: Annotated[DrafterDrop, DRAFTER_DROP]
    partial_hits_when: Annotated[PartialHitsWhen, PARTIAL_HITS_WHEN]
    tail_copy: Annotated[TailCopy, TAIL_COPY]
    window_publishing: Annotated[WindowPublishing, WINDOW_PUBLISHING]
    boundaries: Annotated[Boundaries, BOUNDARIES]
    checkpoint: Annotated[Checkpoint, CHECKPOINT]
    junction: Annotated[Junction, JUNCTION]
    snapshots: Annotated[Snapshots, SNAPSHOTS]
    retention: Annotated[Retention, RETENTION]
    publish: Annotated[Publish, PUBLISH]
    started: Annotated[Started, STARTED]
    threshold: Annotated[Threshold, THRESHOLD]
    wide_block: Annotated[WideBlock, WIDE_BLOCK]
    skipped_states: Annotated[SkippedStates, SKIPPED_STATES]
    padding: Annotated[Padding, PADDING]
    draft_slots: Annotated[DraftSlots, DRAFT_SLOTS]
    running: Annotated[Running, RUNNING]
    drafter_modules: Annotated[bool, MODULES]
    state_writes: Annotated[StateWrites, STATE_WRITES]
    worker: Annotated[type[Worker], WORKER]
    undrafted_rows: Annotated[bool, UNDRAFTED_ROWS]
    state_slots: Annotated[StateSlots, STATE_SLOTS]
    state_need: Annotated[StateNeed, STATE_NEED]
    tier_return: Annotated[TierReturn, TIER_RETURN]
    connector: Annotated[Connector, CONNECTOR]
    load_failure: Annotated[LoadFailure, LOAD_FAILURE]
    admission: Annotated[Admission, ADMISSION]
    blocked: Annotated[Blocked, BLOCKED]
    encoder_cap: Annotated[Cap, ENCODER]
    state_blocks: Annotated[bool, STATE_BLOCKS]
    whole_items: Annotated[WholeItems, WHOLE_ITEMS]
    item_hash: Annotated[ItemHash, ITEM_HASH]
    aborted_steps: Annotated[Abort, ABORT]
    deferred_free: Annotated[Free, FREE]
    stale_output: Annotated[StaleOutput, STALE_OUTPUT]
    eviction: Annotated[Eviction, EVICTION]


RULES: dict[str, Rule[Any]] = {name: hint.__metadata__[0] for name, hint in Rules.__annotations__.items()}
"""The records, by the names of their rules."""


def check(name: str, value: str) -> None:
    """Raise ValueError, with the nearest names, unless this is a rule and one of its values (or a plug-in)."""
    if name not in RULES:
        raise ValueError(f"unknown rule {name!r}{_nearest(name, RULES)}")
    if value in RULES[name]:
        return
    if RULES[name].signature is None:
        raise ValueError(f"unknown value {value!r} of rule {name!r}{_nearest(value, RULES[name])}")
    if not _is_plugin(value):
        raise ValueError(f"unknown value {value!r} of rule {name!r}{_nearest(value, RULES[name])}, or module:Class")


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(word, known, n=3)
    return f": did you mean {' or '.join(close)}?" if close else "; allowed: " + ", ".join(known)


def plugins(values: Mapping[str, str]) -> list[str]:
    """Name the values that are a user's, as ``name=module:Class``."""
    return [f"{name}={value}" for name, value in values.items() if value not in RULES.get(name, {})]


def named(name: str, value: object) -> str:
    """Return how a file would name this value of a rule: a class or function at the top of a module is ``module:Name``.

    A notebook's cells are the module ``__main__``. Raises InputError for what no file can name.
    """
    if isinstance(value, str):
        return value
    module, attribute = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not callable(value) or getattr(sys.modules.get(module), attribute, None) is not value:
        raise InputError(
            f"rule {name}: found {value!r}, allowed: a name, module:Name, or a class or function at the top of a module"
        )
    return f"{module}:{attribute}"


def is_code(name: str, value: str) -> bool:
    """True if a file that says this of a rule names code to be imported."""
    rule = RULES.get(name)
    return rule is not None and rule.signature is not None and value not in rule and _is_plugin(value)


def _is_plugin(value: str) -> bool:
    module, _, attribute = value.partition(":")
    return all(part.isidentifier() for part in module.split(".")) and attribute.isidentifier()


def _plugged_in(name: str, value: str, signature: Signature | None) -> Any:
    assert signature is not None, "check() has let it pass"
    return load(f"rule {name}={value}", value, signature.read, signature.answer)


def resolve(values: Mapping[str, str]) -> Rules:
    """Resolve a full table of values. Raises InputError for what is unknown or cannot be loaded."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            check(name, value)
        except ValueError as error:
            raise InputError(str(error)) from None
        rule = RULES[name]
        found[name] = rule[value] if value in rule else _plugged_in(name, value, rule.signature)
    return Rules(**found)
