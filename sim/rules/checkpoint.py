"""Checkpoints: a state that a prefill chunk exports on its way, into the column before the running one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stateat.sim.options import Options
from stateat.sim.rules.boundaries import Reusable, below_the_last_token
from stateat.sim.rules.record import Lack, Rule, Standing, Value, When


class Query(NamedTuple):
    """A chunk that might export a checkpoint: tokens."""

    start: int
    end: int
    prefill_end: int
    position: int
    """The reusable end that it would export."""
    block: int
    hash_unit: int
    alignment: int


Exports = Callable[[Query], int]
"""The offset that a chunk exports; 0: none."""


class Export(NamedTuple):
    """A state that a chunk exports, and whom its hash would serve."""

    prompt_end: bool
    """True if it is the prompt's reusable end."""
    junction: bool
    """A prefix is known to be shared up to there."""
    on_grid: bool
    """A block ends there, and retention keeps what lies on its interval."""
    prompt_done: bool
    """The whole prompt is published with it."""
    interval: int | None
    """Tokens between states that retention keeps; None: all are kept."""


Publishes = Callable[[Export], bool]


def what_retention_keeps(export: Export) -> bool:
    """Publish what somebody needs, or lies on retention's grid (vLLM 0.32)."""
    return export.prompt_end or export.junction or export.on_grid


def unless_resends_alone_count(export: Export) -> bool:
    """Publish all, unless retention keeps only what resends need: then what they need (vLLM 0.31)."""
    return export.interval != 0 or export.prompt_done or export.junction or export.prompt_end


def unless_before_the_prompts_end(export: Export) -> bool:
    """Publish all, unless retention keeps only what resends need: then none before the whole prompt is published, the
    prompt's reusable end neither (vLLM 0.30)."""
    return export.interval != 0 or export.prompt_done or export.junction


def never(query: Query) -> int:
    """Export none (vLLM before 0.29)."""
    return 0


def any_aligned_start(query: Query) -> int:
    """Export the boundary before the end of a chunk that starts on one and ends inside a block (vLLM 0.29)."""
    before = -(-query.end // query.block) - 1
    return before * query.block if query.start % query.block == 0 and query.end % query.block and before > 0 else 0


def at_prefill_end(query: Query) -> int:
    """Export the reusable end of the chunk that reaches the prefill's end, where the kernel can (vLLM 0.30)."""
    q = query
    column = -(-q.end // q.block) - 2
    valid = (
        q.end >= q.prefill_end
        and q.start % q.hash_unit == 0
        and column > (q.start - 1) // q.block
        and q.start + q.hash_unit <= q.position
        and q.start < q.position < q.end
        and (q.position - q.start) % q.alignment == 0
    )
    return q.position if valid else 0


def last_boundary(query: Query) -> int:
    """Export what the kernel of vLLM 0.29 does: the last boundary inside the chunk, wherever that starts."""
    q = query
    offset = q.end // q.block * q.block
    return offset if q.start < offset < q.end and (offset - q.start) % q.alignment == 0 else 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Exports of a release."""

    exports: Exports
    """Offset of the chunks for which a block is reserved, and published."""
    kernel: Exports | None = None
    """Offset that a kernel really exports, into whatever block the table has in that column, reserved or not, even a
    speculative one; None: the same, where the prefill ends or not."""
    by_start: bool = False
    """True: the split exempts every chunk that starts on a boundary, unless a drafter looks ahead (vLLM 0.29); False:
    the chunk that exports one (0.30). An exempt chunk may end off the grid and past its block."""
    keeps_tail: bool = False
    """True if an exempt chunk still stops at the partial tail."""
    rekeys: bool = False
    """True if a checkpoint is published under its own offset rather than its column's end."""
    claims_scratch: bool = False
    """True if it may take the column of a speculative block."""
    parks_scratch: bool = False
    """True if a request's speculative blocks stay in their columns in a step that exports one (0.30, 0.31); False: they
    move behind the running column as in other steps, but for one in the checkpoint's."""
    position: Reusable | None = None
    """The end that is exported; None: as the rule ``boundaries`` says."""
    in_hash_units: bool = False
    """True if that is a multiple of the hash unit although hits are not finer than a block (0.30, 0.31)."""
    every_chunk: bool = False
    """True if a block is reserved for each chunk that could export one, whatever retention keeps (0.30)."""
    publishes: Publishes = what_retention_keeps

    def exported(self, query: Query) -> int:
        """Return the offset that a kernel exports of a chunk, in the column before its last; 0: none."""
        return (self.kernel or self.exports)(query._replace(prefill_end=0))

    def exempts(self, query: Query, eagle: bool) -> bool:
        """Return True if the split lets this chunk run on."""
        if self.by_start:
            return query.start % query.block == 0 and not eagle
        return self.exports(query) > 0


def _exports_none(options: Options) -> Iterator[Lack]:
    if options.num_prefill_checkpoint_blocks:
        yield Lack(("num_prefill_checkpoint_blocks",), options.num_prefill_checkpoint_blocks, "0")


CHECKPOINT: Rule[Checkpoint] = Rule(
    "Which state does a prefill chunk export on its way, where a block is reserved for it "
    "(`num_prefill_checkpoint_blocks`)?",
    {
        "none": Value(Checkpoint(never), "None.", "before vLLM 0.29", lacks=_exports_none),
        "any-aligned-start": Value(
            Checkpoint(any_aligned_start, last_boundary, by_start=True, keeps_tail=True),
            "Of a chunk from a boundary to inside a block, the state at the boundary before its end. The split lets "
            "each chunk that starts on a boundary run on (not with a look-ahead drafter), as far as the partial tail.",
            "vLLM 0.29",
        ),
        "each-chunk": Value(
            Checkpoint(
                at_prefill_end,
                rekeys=True,
                claims_scratch=True,
                parks_scratch=True,
                position=below_the_last_token,
                in_hash_units=True,
                every_chunk=True,
                publishes=unless_before_the_prompts_end,
            ),
            "As `hash-unit`, but a block is reserved for every chunk; where `retention` keeps only what resends need, "
            "one that does not publish the whole prompt leaves its state unpublished, though it be the prompt's "
            "reusable end.",
            "vLLM 0.30",
        ),
        "hash-unit": Value(
            Checkpoint(
                at_prefill_end,
                rekeys=True,
                claims_scratch=True,
                parks_scratch=True,
                position=below_the_last_token,
                in_hash_units=True,
                publishes=unless_resends_alone_count,
            ),
            "As `at-prefill-end`; but its reusable end is the last hash unit that leaves a token, one less for a drop, "
            "though hits be not finer than a block; where it is exported speculative blocks stay in their columns and "
            "others are taken; all that is exported is published, or, where `retention` keeps only what resends need, "
            "what they need.",
            "vLLM 0.31",
        ),
        "at-prefill-end": Value(
            Checkpoint(at_prefill_end, rekeys=True, claims_scratch=True),
            "Of the chunk that reaches the prefill's end, or of any chunk unless `retention` keeps only what resends "
            "need, the state at its reusable end, if that is a hash unit or more and a multiple of "
            "`prefill_checkpoint_alignment` behind its start; published under that offset; it may take a speculative "
            "block's column. The split lets the chunk that reaches the prefill's end run on. The kernel exports "
            "whatever block lies in that column, reserved or not. It may start inside a block that it then runs past, "
            "and that column is published too (`scenarios/field/checkpoint-chunk-past-a-restored-block.yaml`).",
            "vLLM 0.32",
        ),
        "column-key": Value(
            Checkpoint(at_prefill_end, claims_scratch=True),
            "As `at-prefill-end`, but published as the end of its column.",
            "the control (the class of vLLM PR 56794)",
            Standing.FAULT,
        ),
    },
    When("with `num_prefill_checkpoint_blocks`", lambda options, requests: options.num_prefill_checkpoint_blocks > 0),
)
