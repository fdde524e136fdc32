"""A finding in plain words: what was written, what was claimed of it, what is really there, and who read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.events import NULL, CopyKind, Stop
from stateat.sim.explain.explanation import TORN, ChunkDecision, Claim, Coverage, Piece, Reader, Span, Story
from stateat.sim.printable import one_line, plural
from stateat.sim.report.machine.json import finding_tree
from stateat.sim.report.terminal.lines import print_trimmed
from stateat.sim.report.words.findings import SHOWN_READERS, WRITES, finding_line
from stateat.sim.run.result import READS

STOPS = {stop.value: stop.meaning for stop in Stop}
"""Reasons why a chunk ended, by the stop's name; ``budget`` is told with its numbers."""
SHOWN_SPANS = 3


def print_story(story: Story, name: str, block: int, console: Console) -> None:
    """A finding's chain under a heading; ``name``: its variant and case; ``block``: tokens in a block of its group."""
    console.print(Text(f"{one_line(name)}: {finding_line(story.finding)}", style="bold"), soft_wrap=True)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for label, text in lines(story, block):
        grid.add_row(f"  {label}", Text(one_line(text)))
    print_trimmed(grid, console)


def lines(story: Story, block: int) -> Iterator[tuple[str, str]]:
    """Label and text of each link of the chain."""
    yield "write", _write(story, block)
    if story.claim is not None:
        yield "claim", _claim(story.claim, story)
    if story.finding.slot >= 0:
        yield "really", _really(story)
    yield "readers", _readers(story)
    yield "then", _downstream(story.downstream)


def _write(story: Story, block: int) -> str:
    finding, chunk = story.finding, story.chunk
    if finding.slot < 0:
        return "no slot is concerned: the engine itself starts a chunk at the wrong token"
    if chunk is None and story.loaded is not None:
        (piece,) = story.held or (Piece(finding.request, 0, 0),)
        text = f"step {story.loaded}: a connector brought state@{piece.end} of {piece.request} into the slot"
        return text + (f"; {piece.end:,} is no multiple of {block:,}" if block and piece.end % block else "")
    if chunk is None and finding.slot == NULL:
        return "nobody ever wrote this slot: it is the null block, what a column without a slot names"
    if chunk is None:
        return "nobody ever wrote this slot, or attention wrote over it"
    text = f"{_when(chunk)}: {chunk.request}'s {_chunk(chunk, story)}, {_ended(chunk)}"
    write, left = finding.write, _left(chunk, story.held)
    if story.loaded is not None:
        return f"{text}. The tier kept its state@{left}, and brought it into the slot in step {story.loaded}"
    if write is not None and write.kind in tuple(CopyKind):
        return f"{text}. Its state@{left} came into the slot in step {write.step}: {WRITES[write.kind]}"
    if write is not None and write.kind == "load":
        return f"{text}. Its state@{left} was stored in the tier, and loaded into the slot in step {write.step}"
    off_grid = block and left % block and chunk.stop != Stop.DECODE
    return f"{text}. It left state@{left}" + (
        f", and {left:,} is no multiple of the block, {block:,}" if off_grid else ""
    )


def _left(chunk: ChunkDecision, held: Sequence[Piece] | None) -> int:
    """The offset of what a chunk left in the slot: not its end where it left a state for each draft."""
    return held[-1].end + len(held[-1].drafts) if held else chunk.end


def _when(chunk: ChunkDecision) -> str:
    return f"steps {chunk.step - chunk.steps + 1} to {chunk.step}" if chunk.steps > 1 else f"step {chunk.step}"


def _chunk(chunk: ChunkDecision, story: Story) -> str:
    prompt = story.prompts.get(chunk.request)
    of = f" of {prompt:,} prompt tokens" if prompt is not None else ""
    return f"chunk [{chunk.start}, {chunk.end}){of}"


def _ended(chunk: ChunkDecision) -> str:
    if chunk.stop == Stop.BUDGET:
        others = f"{chunk.others:,} of them went to others" if chunk.others else "and no one else had any"
        return f"ended by `budget`: the step had {plural(chunk.budget, 'token')}, {others}"
    why = STOPS.get(chunk.stop)
    return f"ended by `{chunk.stop}`" + (f": {why}" if why else "")


def _claim(claim: Claim, story: Story) -> str:
    early = story.chunk is not None and claim.step < story.chunk.step
    text = f"step {claim.step}{', before that write' if early else ''}: "
    if claim.chunk is not None:
        start, end, offset = claim.chunk.start, claim.chunk.end, claim.offset
        if start < offset < end:
            did = f"ran past {offset:,} without stopping there"
        elif end == offset:
            did = f"ended at {offset:,}"
        else:
            did = f"lies {'behind' if start >= offset else 'before'} {offset:,}"
        text += f"{claim.request}'s chunk [{start}, {end}) {did}; "
    return text + f"the cache hashed slot {story.finding.slot} as state@{claim.offset} of {claim.request}"


def _really(story: Story) -> str:
    if story.held is None:
        return "nothing that anyone wrote: whatever was in that memory before"
    if not story.held:
        return "a zero state: no token at all"
    pieces = ", then ".join(map(_piece, story.held))
    if story.finding.verdict == TORN:
        return f"its matrix has absorbed {pieces}, as claimed; its convolution keeps the inputs of another offset"
    faults = list(_faults(story.coverage, story.finding.claimed or 0))
    return f"it has absorbed {pieces}" + (": " + "; ".join(faults) if faults else "")


def _piece(piece: Piece) -> str:
    drafts = f" and {plural(len(piece.drafts), 'wrong draft')}" if piece.drafts else ""
    return f"{_span((piece.start, piece.end))} of {piece.request}{drafts}"


def _faults(coverage: Coverage, claimed: int) -> Iterator[str]:
    if coverage.missing:
        count = _count(coverage.missing)
        yield f"{_spans(coverage.missing)} is missing, {count:,} of {claimed:,} tokens ({count / claimed:.0%})"
    if coverage.twice:
        yield f"{_spans(coverage.twice)} is in it twice, {plural(_count(coverage.twice), 'token')}"
    if coverage.ahead:
        yield f"{_spans(coverage.ahead)} is too much, {plural(_count(coverage.ahead), 'token')}"
    if coverage.foreign:
        yield f"{plural(coverage.foreign, 'token')} of another text"


def _readers(story: Story) -> str:
    if story.readers:
        names = [f"{reader.request} (step {reader.step})" for reader in story.readers[:SHOWN_READERS]]
        more = len(story.readers) - len(names)
        listed = ", ".join(names) + (f" and {more:,} more" if more else "")
        offsets = sorted({reader.offset for reader in story.readers})
        return f"{listed} started at {', '.join(f'{o:,}' for o in offsets)} from it" + _unseen(story.coverage)
    if story.finding.invariant in READS:
        return f"{story.finding.request} itself goes on from it" + _unseen(story.coverage)
    if story.finding.slot < 0:
        return "none: nothing is claimed"
    return "nobody yet; the next request with this prefix would be one"


def _unseen(coverage: Coverage) -> str:
    parts = []
    if coverage.missing:
        parts.append(f"never saw {_spans(coverage.missing)}")
    if again := _count(coverage.twice) + _count(coverage.ahead):
        parts.append(f"saw {plural(again, 'token')} twice")
    return f", and {' and '.join(parts)}" if parts else ""


def _downstream(count: int) -> str:
    if not count:
        return "no other finding follows from it"
    return f"{plural(count, 'more finding')} {'follows' if count == 1 else 'follow'} from it"


def _spans(spans: Sequence[Span]) -> str:
    shown = ", ".join(map(_span, spans[:SHOWN_SPANS]))
    return shown + (f" and {plural(len(spans) - SHOWN_SPANS, 'more span')}" if len(spans) > SHOWN_SPANS else "")


def _span(span: Span) -> str:
    return f"[{span[0]}, {span[1]})"


def _count(spans: Sequence[Span]) -> int:
    return sum(end - start for start, end in spans)


def to_json(variant: str, case: str, story: Story, drift: dict[str, Any] | None) -> dict[str, Any]:
    """A story as plain data; ``drift`` as :func:`stateat.sim.report.terminal.drift.to_json` gives it."""
    chunk, claim, coverage = story.chunk, story.claim, story.coverage
    return {
        "variant": variant,
        "case": case,
        "finding": finding_tree(story.finding),
        "chunk": None if chunk is None else _chunk_tree(chunk),
        "loaded_in_step": story.loaded,
        "held": None
        if story.held is None
        else [
            {"request": p.request, "start": p.start, "end": p.end, "wrong_drafts": list(p.drafts)} for p in story.held
        ],
        "claim": None
        if claim is None
        else {
            "request": claim.request,
            "step": claim.step,
            "time_us": claim.time_us,
            "offset": claim.offset,
            "chunk": None if claim.chunk is None else _chunk_tree(claim.chunk),
        },
        "missing": [list(span) for span in coverage.missing],
        "twice": [list(span) for span in coverage.twice],
        "ahead": [list(span) for span in coverage.ahead],
        "foreign_tokens": coverage.foreign,
        "readers": [_reader_tree(reader) for reader in _read_by(story)],
        "downstream": story.downstream,
        "drift": drift,
    }


def _chunk_tree(chunk: ChunkDecision) -> dict[str, Any]:
    names = ("step", "time_us", "budget", "request", "start", "end", "stop", "steps", "others")
    return {name: getattr(chunk, name) for name in names}


def _read_by(story: Story) -> Sequence[Reader]:
    """Return who started from it; of a read that is wrong by itself the request that made it."""
    finding = story.finding
    if story.readers or finding.invariant not in READS:
        return story.readers
    prompt = story.prompts.get(finding.request, 0)
    return (Reader(finding.request, finding.step, finding.time_us, finding.claimed or 0, prompt),)


def _reader_tree(reader: Reader) -> dict[str, Any]:
    return {name: getattr(reader, name) for name in ("request", "step", "time_us", "offset", "prompt")}
