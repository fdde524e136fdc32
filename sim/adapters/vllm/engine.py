"""The real scheduler of a vLLM release in place of the reference engine.

The child decides and claims; what its decisions do to states is the same physical model as for the reference engine
(:mod:`stateat.sim.worker.worker`), and what it samples and drafts follows from the same token formula
(:mod:`stateat.sim.engine.request`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from stateat.sim.adapters.vllm.answers import (
    ABORTED,
    ADDED,
    BEGUN,
    COMMIT,
    STEP,
    AnswerCheck,
    Event,
    RowSaid,
)
from stateat.sim.adapters.vllm.config import refused, wire
from stateat.sim.adapters.vllm.in_flight import InFlight
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.cache.manager import KVCache
from stateat.sim.cache.named_states import not_there
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.request import Request
from stateat.sim.engine.sampling import verify
from stateat.sim.engine.sizing import Sizing
from stateat.sim.engine.step import Step
from stateat.sim.errors import ChangeError, EngineError, RefusedError
from stateat.sim.events import Observer
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.rules.restore_column import config_block
from stateat.sim.tokens import segment_ids
from stateat.sim.worker.block_tables import BlockTables, widths
from stateat.sim.worker.pipeline import Batch
from stateat.sim.worker.state import Asked
from stateat.sim.worker.worker import Row
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


class LiveScheduler:
    """Scheduler for :class:`stateat.sim.run.clock.Simulation`, from a child process.

    Raises RefusedError, by name, for what the release cannot be told, lacks, or makes something else of, and
    EngineError when the child crashes, hangs or answers nonsense. ``warnings`` holds what a server of the release would
    refuse or do otherwise.
    """

    quiet_tokens = 0

    def __init__(
        self,
        policy: Policy,
        observer: Observer,
        seed: int,
        child: Child,
    ) -> None:
        self.options, rules = policy.options, policy.rules
        options = self.options
        self.observer = observer
        self.seed = seed
        self.child = child
        self.num_drafts = options.speculative.num_speculative_tokens
        self._refuse(options, "engine")
        self._check = AnswerCheck(child.name, options)
        about = child.ask({"do": "init", "config": wire(options, rules.worker.staggers)}, BEGUN)
        self.warnings = about["warnings"]
        self._free = about["free"]
        self.requests: dict[str, Request] = {}
        self._exports: dict[int, dict[str, int]] = {}
        """Offsets of the states that requests export on their way, by the step in which that was decided."""
        self._exporting: dict[str, int] = {}
        """Offsets that the step that runs exports."""
        self.worker = rules.worker(
            options.groups,
            self.num_drafts,
            seed=rules.restore_column,
            config_block=config_block(rules.restore_column, options, policy.grid),
            observer=observer,
            block_tables=BlockTables(
                widths(options.groups, options.max_model_len, self.num_drafts), options.max_num_seqs
            ),
            export=self._exported,
            kernel=rules.state_writes,
            undrafted_are_plain=rules.undrafted_rows,
            mamba_chunk_size=options.mamba_chunk_size,
        )
        self.in_flight = InFlight(about["depth"], about["ahead"], self.worker)
        cache = KVCache(options, rules, Observer())
        self.sizing = Sizing(policy, cache, Encoder(policy))
        """The preset's own: what it calls the end of a chunk."""
        self.preempted_in_vain = 0
        """Preemptions since some request last got further than it had ever been."""
        self._aborted: dict[str, bool] = {}
        """Requests to take away; true: behind the next step's decisions."""
        self._reset = ""
        self._evict: list[tuple[StateChange, dict[str, Any]]] = []
        self._loads = options.kv_consumer
        """Something writes into blocks beside the steps, so that the release frees them late."""

    def _exported(self, request: Asked, start: int, end: int, block: int) -> tuple[int, int]:
        """Return the offset of the state that the release says a chunk exports (0: none), and its column."""
        return self._exporting.get(request.id, 0), -(-end // block) - 2

    def add(self, arrival: Arrival, time: int) -> None:
        """A request arrives."""
        self._refuse(arrival, f"request {arrival.id}")
        request = Request(arrival, self.options, self.seed)
        self.observer.arrive(
            request.id, request.index, time, arrival.segments, None, request.max_outputs, arrival.encoder
        )
        said = _prompt(request, arrival) | {"do": "add", "max_tokens": arrival.max_tokens, "external": arrival.external}
        self.child.ask(said, ADDED)
        self._loads = self._loads or arrival.external > 0
        self.requests[request.id] = request

    def _refuse(self, said: Options | Arrival, place: str) -> None:
        if reasons := "; ".join(refused(said, place)):
            raise RefusedError(f"{self.child.name} cannot run this: {reasons}")

    def abort(self, name: str, late: bool = False) -> bool:
        """Take a request away before the next step; False if it is not here (any more).

        ``late``: behind the next step's decisions, before the scheduler hears what an earlier one sampled.
        """
        if name not in self.requests:
            return False
        self._aborted[name] = late
        return True

    def reset(self, running: bool = False) -> None:
        """Empty the release's prefix cache before the next step; ``running``: those that run are put back first."""
        self._reset = "running" if running else "idle"

    def change(self, change: StateChange, arrival: Arrival) -> None:
        """Evict a state by name before the next step; nobody can give a release a state that it did not compute."""
        if change.places:
            raise RefusedError(f"{self.child.name} cannot run this: {change.where}: a release cannot be given a state")
        self._evict.append((change, _spoken(Request(arrival, self.options, self.seed), arrival)))

    @property
    def free_blocks(self) -> int:
        """Blocks in the free queue."""
        return self._free

    @property
    def aborting(self) -> bool:
        """True if somebody is to be taken away in the next step."""
        return bool(self._aborted)

    @property
    def idle(self) -> bool:
        return not self.requests and not self.in_flight

    def jump(self, step: int) -> int:
        """No step is skipped: the child decides each."""
        return 0

    def step(self, index: int, time: int, budget: int) -> Step:
        """One step as vLLM's ``EngineCore`` takes it: the child schedules, and once as many steps are under way as may
        be it is told what the oldest of them sampled."""
        self.observer.step(index, time, budget)
        result = Step()
        aborted = self._taken_away(late=False)
        reset, self._reset = self._reset, ""
        evict, self._evict = self._evict, []
        asked = {"do": "step", "budget": budget, "abort": aborted, "reset": reset}
        if evict:
            asked["evict"] = [{"group": change.group, "offset": change.offset} | spoken for change, spoken in evict]
        said = self.child.ask(asked, STEP)
        evicted = said.get("evicted", [])
        for i, (change, _) in enumerate(evict):
            if not evicted[i : i + 1] or not evicted[i]:
                raise ChangeError(
                    f"{change.where}: {not_there(self.options, change.request, change.group, change.offset)}"
                )
        self._gone(aborted, said["aborted"], result)
        self._hear(said["log"])
        rows = self._rows(index, said["rows"])
        self._check.moves([*said["copies"], *said["let_go"]], said["given"], self.requests)
        batch = Batch(index, rows, [CopyOnWrite(*copy) for copy in said["copies"]], given=said["given"])
        if self.in_flight.waits and not self._loads:
            # What is copied is free, though the copy may have to wait.
            for name, group, source, _ in said["let_go"]:
                if self.options.groups[group].recurrent:
                    self.observer.release(name, group, [source])
        if self.in_flight.ahead:
            self._launch(batch)
        oldest = self.in_flight.push(batch)
        result.filled = oldest is None
        if aborted := self._taken_away(late=True):
            self._gone(aborted, self.child.ask({"do": "abort", "abort": aborted}, ABORTED)["log"], result)
        if oldest is not None:
            if not self.in_flight.ahead:
                self._launch(oldest)
            self._commit(oldest, result)
        if self.idle and self.in_flight.clear():
            self.child.ask({"do": "drain"}, ADDED)
        return result

    def _taken_away(self, late: bool) -> list[str]:
        """Requests that are to be taken away now, if they are here still."""
        names = [name for name, when in self._aborted.items() if when == late]
        for name in names:
            del self._aborted[name]
        return [name for name in names if name in self.requests]

    def _gone(self, names: Sequence[str], log: Sequence[Event], result: Step) -> None:
        self._hear(log)
        for name in names:
            self.in_flight.end(self.requests.pop(name))
            self.observer.abort(name)
            result.finished.append(name)

    def _rows(self, index: int, said: Sequence[RowSaid]) -> list[Row[Request]]:
        rows = []
        exports = self._exports[index] = {}
        self._check.names([row[0] for row in said], self.requests)
        for name, counted, upto, drafts, table, more, heard, export, offered in said:
            request = self.requests[name]
            self._check.blocks(name, table, more)
            if table is not None:
                request.worker.pages = table
            elif more is not None:
                for pages, blocks in zip(request.pages, more, strict=True):
                    pages += blocks
            start, end = counted, upto
            if self.in_flight.ahead:
                start, end = request.at, request.at + upto - counted
                # A decode that the scheduler takes to be elsewhere exports nothing.
                export = export if start == counted else 0
            drafted = len(drafts)
            self._check.chunk(request, start, end, drafted, export)
            if not request.discards:
                self._check.start(name, counted, self.in_flight.start(request))
            drafts = self.in_flight.drafts(request, drafts, end - start, table is not None)
            if export:
                exports[name] = export
            stop = self._stop(request, start, end, heard, offered)
            self.observer.chunk(name, start, end, drafted, stop, 0, ())
            # Placeholders that the split clipped are judged, but not run.
            rows.append(Row(request, start, end, drafts, drafted))
        return rows

    def _stop(self, request: Request, start: int, end: int, heard: str, offered: int) -> str:
        """The rule that ended a chunk; of a split the one that the preset's names, of the same facts."""
        if start >= request.prefill_end:
            return "decode"
        if heard and heard != "split":
            return heard
        named = self.sizing.name(request, start, offered, end) if offered else ""
        return named or ("prompt-end" if end >= request.num_tokens else "budget")

    def _launch(self, batch: Batch[Request]) -> None:
        """Run a batch on the worker."""
        if self.in_flight.waits:
            self.observer.launch(batch.index)
        self._exporting = self._exports.pop(batch.index)
        self.worker.before(batch.index, batch.rows, batch.copies, batch.given)
        asked = self.options.speculative.drafts_behind(len(batch.rows))
        for row in batch.rows:
            verify(row, asked, self.observer)
        self.worker.after(batch.rows)

    def _commit(self, batch: Batch[Request], result: Step) -> None:
        """Tell the child what a batch sampled, and hear what it makes of that."""
        sampled: dict[str, list[int]] = {}
        drafts: dict[str, list[int]] = {}
        asked = self.options.speculative.drafts_behind(len(batch.rows))
        for row in batch.rows:
            request, known = row.request, row.end - len(row.drafts)
            if row.start < request.prefill_end:
                result.prefill_tokens += row.end - row.start
            else:
                result.decode_tokens += row.end - row.start
            sampled[request.id] = _ids(request.tokens.ids[known : known + row.emitted])
            known += row.emitted
            hands_over = row.emitted and asked and not (self.in_flight.ahead or row.stale)
            if hands_over and known < request.num_prompt + request.max_outputs:
                right = request.acceptance.of(request.proposals - 1)
                drafts[request.id] = request.draft_ids(known, right, request.proposed)
        said = self.child.ask({"do": "commit", "sampled": sampled, "drafts": drafts}, COMMIT)
        for row in batch.rows:
            self._take(row, said["taken"].get(row.request.id, 0))
        self._hear(said["log"])
        self._free = said["free"]
        finished = dict.fromkeys(said["finished"])
        for name in [row.request.id for row in batch.rows if row.request.id in finished]:
            self.in_flight.end(self.requests.pop(name))
            del finished[name]
            self.observer.finish(name)
            result.finished.append(name)
        if finished:
            raise EngineError(f"{self.child.name} ended requests that it did not run: {', '.join(finished)}")
        self.in_flight.over(batch)

    def _take(self, row: Row[Request], count: int) -> None:
        """Hear how many of a row's tokens the scheduler took: none of a request that has ended, and of one that was
        preempted meanwhile what the release makes of that."""
        request = row.owner or row.request
        self._check.taken(request.id, count, row.emitted)
        if row.end > request.furthest:
            request.furthest = row.end
            self.preempted_in_vain = 0
        if count:
            request.outputs += count
            self.observer.output(request.id, count, None)
        elif row.emitted and not (row.stale or request.gone):
            # vLLM 0.26 drops as many outputs behind a reset as it expected tokens, and counts on as if there were none.
            request.discards += 1

    # What the child heard, in order.

    def _hear(self, log: Sequence[Event]) -> None:
        for event in log:
            self._check.event(event, self.requests)
            getattr(self, f"_on_{event[0]}")(*event[1:])

    def _on_defer(self, name: str, offered: int, why: str) -> None:
        self.observer.defer(name, offered, why)

    def _on_refuse(self, name: str, reason: str) -> None:
        self.observer.refuse(name, reason)

    def _on_reset(self, done: bool) -> None:
        self.observer.reset(done)

    def _on_preempt(self, name: str) -> None:
        self.in_flight.preempt(self.requests[name])
        self.preempted_in_vain += 1
        self.observer.preempt(name)

    def _on_admit(
        self,
        name: str,
        hit: int,
        external: int,
        resumed: bool,
        slots: Sequence[Sequence[int]],
        junction: int,
        loads: Sequence[tuple[int, int]],
    ) -> None:
        request = self.requests[name]
        request.junction = junction
        request.started = True
        request.resume(hit + external)
        self.observer.admit(name, hit, external, resumed)
        for group, slot in loads:
            self.observer.load(name, group, name, slot, hit + external)
        if external or not hit:
            return
        sizes = [group.block_size for group in self.options.groups]
        hits = [min(hit, last[1] * size) if last else 0 for last, size in zip(slots, sizes, strict=True)]
        for group in self.options.recurrent:
            column = (hit - 1) // sizes[group]
            # As many columns as the hit has in this group, and no state where these end before it.
            slot = slots[group][0] if slots[group] and slots[group][1] > column else 0
            self.observer.restore(name, group, slot, column, hit, hits)

    def _on_allocate(self, name: str, group: int, column: int, slots: Sequence[int]) -> None:
        if any(slots):
            self.observer.allocate(name, group, column, slots)

    def _on_release(self, name: str, group: int, slots: Sequence[int]) -> None:
        self.observer.release(name, group, slots)

    def _on_claim(self, group: int, slot: int, name: str, column: int, offset: int, key: str) -> None:
        self.observer.claim(group, slot, name, column, offset, _key(key))

    def _on_unclaim(self, group: int, slot: int, key: str, why: str) -> None:
        self.observer.unclaim(group, slot, _key(key), why)


def _prompt(request: Request, arrival: Arrival) -> dict[str, Any]:
    """A request as a worker makes one; where it has items the tokens are a text's, and the items are named apart."""
    prompt = base64.b64encode(segment_ids(arrival.segments).astype("<i4").tobytes()).decode()
    items = [(item.start, item.length, item.key.hex()) for item in request.items]
    return {"id": request.id, "prompt": prompt, "encoder": items}


def _spoken(request: Request, arrival: Arrival) -> dict[str, Any]:
    """A request as a worker makes one, with all that it will say."""
    return _prompt(request, arrival) | {"outputs": _ids(request.tokens.ids[request.num_prompt :])}


def _key(text: str) -> bytes:
    """A release's hash, less its group: the first 128 bits."""
    return bytes.fromhex(text[:32])


def _ids(tokens: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    ids: list[int] = tokens.tolist()
    return ids
