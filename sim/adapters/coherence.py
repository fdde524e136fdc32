"""Coherence of a log: each event of a log, held against those before it.

A log is evidence only as far as it can be true. An engine may do what it should not (that is what the oracle finds);
but no engine takes a chunk that nobody decided, writes past a chunk's end, or ends a request that never came. Where a
log says so it was cut, edited or written by a recorder at fault, and no verdict follows from it.

Asked are groups, slots, columns, requests, ranges and order. What an invariant says is left to it: where a chunk starts
(I6), what is read (I10, I12), who may write which slot (I8, I9), what was reported (I17).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateat.sim.adapters.heard import ANY, Impossible, Life, PendingChunk
from stateat.sim.adapters.log_options import faults, faults_of_groups
from stateat.sim.adapters.outcomes import Outcomes
from stateat.sim.events import NULL, CopyKind, Group, Refusal, Withdrawal, decided_ahead, in_flight
from stateat.sim.tokens import Segments, Spans


class Coherence(Outcomes):
    """Listens to one run of a log. Raises Impossible at an event that cannot be, or when what it lacks is seen."""

    # The run, and who comes.

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        for name, found, allowed in faults(options):
            self._check(False, f"run.options.{name}", found, allowed)
        self.groups, self.num_drafts = groups, num_speculative_tokens
        self.recurrent = [i for i, group in enumerate(groups) if group.recurrent]
        self._check(bool(groups), "run.groups", [], "one group or more")
        self._check(num_speculative_tokens >= 0, "run.num_speculative_tokens", num_speculative_tokens, "0 or more")
        for key, found, allowed in faults_of_groups(groups, options):
            self._check(False, f"run.groups{key}", found, allowed)
        self.num_blocks = options.get("num_blocks") and options["num_blocks"] + options.get("num_state_blocks", 0)
        self.depth = 1 + decided_ahead(options)
        self.lag = in_flight(options) - decided_ahead(options)
        self.cap = options["max_num_batched_tokens"]

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        if self._ended:
            raise Impossible("arrive: after end, allowed is another run", self.line)
        self._check(bool(request), "arrive.request", request, "an id")
        self._check(request not in self._lives, "arrive.request", request, "an id that no request had before")
        self._check(index >= 0 and index not in self._indices, "arrive.index", index, "one that no request had before")
        self._check(time_us >= 0, "arrive.time_us", time_us, "0 or more")
        if tokens is None:
            wrong = next((pair for pair in segments if pair[1] < 0), None)
            self._check(wrong is None, "arrive.segments", wrong, "lengths of 0 or more")
        else:
            wrong_id = next((token for token in tokens if token < 0), None)
            self._check(wrong_id is None, "arrive.tokens", wrong_id, "ids of 0 or more")
        prompt = sum(length for _, length in segments) if tokens is None else len(tokens)
        self._check(prompt > 0, "arrive: tokens of the prompt", prompt, "1 or more")
        self._check(max_tokens >= 0, "arrive.max_tokens", max_tokens, "0 or more")
        ends = [0, *(start + length for start, length in encoder)]
        outside = next(
            (span for span, end in zip(encoder, ends, strict=False) if not end <= span[0] < sum(span) <= prompt), None
        )
        self._check(outside is None, "arrive.encoder", outside, f"items that follow each other, within [0, {prompt})")
        self._indices.add(index)
        self._arrived = max(self._arrived, time_us)
        self._lives[request] = Life(prompt, max_tokens, tokens is None)

    # Steps.

    def step(self, index: int, time_us: int, budget: int) -> None:
        if self._ended:
            raise Impossible("step: after end, allowed is another run", self.line)
        self._tells("step")
        self._check(not self._open, "step.index", index, f"none before step {self._step} has its commit")
        self._check(index > self._step, "step.index", index, f"more than that of the step before ({self._step})")
        least = max(self._time, self._arrived)
        self._check(time_us >= least, "step.time_us", time_us, f"{least} or more, which it has been")
        self._check(0 <= budget <= self.cap, "step.budget", budget, f"0 to max_num_batched_tokens ({self.cap})")
        self._step, self._open, self._time, self._budget = index, True, time_us, budget
        self._runs = index if self.depth == 1 else -1
        self._before.append(index)
        self._hears = self._before.popleft() if self.depth == 1 and len(self._before) > self.lag else -1

    def launch(self, index: int) -> None:
        self._within("launch")
        modes = "asynchronous scheduling, or max_concurrent_batches of 1"
        self._check(self.depth > 1, "launch", index, f"none with {modes}")
        decided = self._launched < index <= self._step
        self._check(decided, "launch.index", index, f"a step after {self._launched}, up to {self._step}")
        self._runs = self._hears = self._launched = index

    def commit(self, time_us: int) -> None:
        self._within("commit")
        self._check(time_us >= self._time, "commit.time_us", time_us, f"{self._time} or more, which it has been")
        self._check(not self._never, "commit", None, f"an abort of {self._never}, which is refused for good, before")
        for name, row in [*self._batches.get(self._runs, {}).items(), *self._quiet.items()]:
            self._all_ran("commit", name, row)
        for name, row in [*self._batches.pop(self._hears, {}).items(), *self._quiet.items()]:
            self._all_heard("commit", name, row)
        self._quiet.clear()
        self._put_back.clear()
        self._copied.clear()
        for slot, (step, _, error) in list(self._unplaced.items()):
            if step <= self._runs:
                del self._unplaced[slot]
                self._lacking.setdefault("allocate", error)
                if "allocate" in self._told:
                    raise error
        self._open, self._time = False, time_us

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self._check(not self._open and not self._ended, "end", steps, "none before the last step's commit, and one")
        self._check(steps > self._step, "end.steps", steps, f"more than the last step's index ({self._step})")
        self._check(time_us >= self._time, "end.time_us", time_us, f"{self._time} or more, which it has been")
        stuck = any(life.state in ("waiting", "running") for life in self._lives.values())
        self._check(stuck or not livelock, "end.livelock", livelock, "false where all have ended")
        for name in self._lives:
            self._pays("end", name)
        self._ended = True

    # Decisions.

    def defer(self, request: str, offered: int, why: str) -> None:
        self._within("defer")
        self._life("defer", request)
        self._check(0 < offered <= self.cap, "defer.offered", offered, f"1 to max_num_batched_tokens ({self.cap})")
        self._check(bool(why), "defer.why", why, "a rule's name")

    def refuse(self, request: str, reason: str) -> None:
        self._within("refuse")
        self._check(reason in list(Refusal), "refuse.reason", reason, ", ".join(Refusal))
        if Refusal(reason).final:
            self._life("refuse", request)
            self._never = request
        else:
            self._life("refuse", request, "waiting")

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self._within("admit")
        life = self._life("admit", request)
        if life.state == "running":
            # A log need not tell that it was preempted.
            self._check(resumed, "admit.request", request, "one that waits")
            life.leave("waiting")
        self._check(resumed == life.admitted, "admit.resumed", resumed, str(life.admitted).lower())
        for key, count in (("hit", hit), ("external", external)):
            self._check(0 <= count <= life.known, f"admit.{key}", count, f"0 to {life.known}, its tokens")
        self._check(hit + external <= life.known, "admit.external", external, f"0 to {life.known - hit}")
        life.state, life.admitted, life.hit = "running", True, hit + external > 0
        life.sampled = life.outputs
        life.released.clear()
        life.starts = set(self.recurrent) if life.hit else set()
        life.restores = hit > 0 and not external

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        self._within("restore")
        self._tells("restore")
        life, size = self._life("restore", request, "running"), self._group("restore", group).block_size
        self._start(life, "restore", request, group)
        self._slot("restore.slot", slot, 0)
        self._check(0 < offset <= life.known, "restore.offset", offset, f"1 to {life.known}")
        right = (offset - 1) // size
        self._check(column == right, "restore.column", column, f"{right}, which holds the state at {offset}")
        self._check(len(group_hits) == len(self.groups), "restore.group_hits", list(group_hits), "one for each group")
        wrong = next((hit for hit in group_hits if not 0 <= hit <= life.known), None)
        self._check(wrong is None, "restore.group_hits", wrong, f"0 to {life.known}, its tokens")
        if slot != NULL:
            # Known or not: it was advertised, perhaps before this log began.
            life.tables.setdefault(group, {}).setdefault(column, slot)
            self._met.add(slot)
            life.sources[group] = slot

    def _start(self, life: Life, kind: str, request: str, group: int) -> None:
        """A state from which a request is to start: one for each recurrent group."""
        self._check(group in life.starts, f"{kind}.request", request, "one that was admitted with a hit, once a group")
        life.starts.discard(group)

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        self._within("store")
        self._group("store", group)
        self._slot("store.slot", slot, 0)
        self._check(offset > 0, "store.offset", offset, "1 or more")
        self._handed("store.slot", slot)
        stored = self._stored.setdefault((group, key), offset)
        self._check(offset == stored, "store.offset", offset, f"{stored}, as under this key before")

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        self._within("load")
        life, size = self._life("load", request, "running"), self._group("load", group).block_size
        self._start(life, "load", request, group)
        self._slot("load.slot", slot)
        self._check(0 < offset <= life.known, "load.offset", offset, f"1 to {life.known}")
        # A tier may start a request below the end of what was stored, but not past it.
        stored = self._stored.get((group, key), offset)
        self._check(offset <= stored, "load.offset", offset, f"{stored} at most, which was stored under this key")
        self._known.setdefault(slot, self._step)
        column = (offset - 1) // size
        self._place(slot, column)
        life.tables.setdefault(group, {}).setdefault(column, slot)
        life.sources[group] = slot

    def preempt(self, request: str) -> None:
        self._within("preempt")
        life = self._life("preempt", request, "running")
        self._pays("preempt", request)
        self._preempted(request, life)
        life.leave("waiting")

    def finish(self, request: str) -> None:
        self._within("finish")
        # One that was preempted may end on what it had in flight.
        late = self._life("finish", request).heard == self._step
        life = self._life("finish", request, "running", *["waiting"] * late)
        least = life.max_tokens if life.simulated else 1
        self._check(life.outputs >= least, "finish.request", request, f"none before its output of {least} tokens")
        self._all_told("finish", request)
        for group, table in life.tables.items():
            table = {at: slot for at, slot in table.items() if slot != NULL and (group, slot) not in life.copies}
            if table:
                self._lacks(
                    "release", "finish.request", request, f"a release before of {sorted(table.values())}, group {group}"
                )
        life.leave("gone")

    def abort(self, request: str) -> None:
        life = self._life("abort", request)
        self._pays("abort", request)
        if (row := self._batches.get(self._runs, {}).get(request)) is not None:
            self._all_ran("abort", request, row)
        life.leave("gone")
        self._never = "" if self._never == request else self._never

    def reset(self, done: bool) -> None:
        self._within("reset")
        self._forgets()
        if done:
            left = next(iter(self._claims), None)
            self._check(left is None, "reset.done", done, "false while a claim stands")
            running = next((name for name, life in self._lives.items() if life.state == "running"), None)
            self._check(running is None, "reset.done", done, f"false while {running} runs")

    # Slots and claims.

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        self._within("allocate")
        recurrent = self._group("allocate", group, None).recurrent
        self._check(bool(slots), "allocate.slots", [], "one or more")
        for slot in slots:
            self._slot("allocate.slots", slot, 0 if recurrent else 1)
        given = [slot for slot in slots if slot != NULL]
        self._check(len(set(given)) == len(given), "allocate.slots", list(slots), "each once")
        if not recurrent:
            self._check(not request, "allocate.request", request, "'' for attention")
            self._check(column == -1, "allocate.column", column, "-1 for attention")
            return
        life = self._life("allocate", request)
        self._tells("allocate")
        table = life.tables.setdefault(group, {})
        # Where a connector's state was to come into a block that is told last, the columns behind it are told before.
        free = column > max(table, default=-1) or (group in life.starts and 0 <= column not in table)
        self._check(free, "allocate.column", column, f"a column that {request} has no slot in")
        for i, slot in enumerate(slots):
            self._place(slot, column + i)
            life.released.discard((group, slot))
            self._known.setdefault(slot, self._step)
        table.update((column + i, slot) for i, slot in enumerate(slots))

    def release(self, request: str, group: int, slots: Sequence[int]) -> None:
        self._within("release")
        self._tells("release")
        life = self._life("release", request)
        self._group("release", group)
        table = life.tables.get(group, {})
        self._check(bool(slots), "release.slots", [], "one or more")
        for slot in slots:
            self._slot("release.slots", slot)
            columns = [column for column, held in table.items() if held == slot]
            for column in columns:
                table[column] = NULL
            if slot not in self._unplaced:
                # Else the copy into it waits for the step.
                self._handed("release.slots", slot)
            # Of what was hit only the state that it starts from is named.
            shared = life.hit or (group, slot) in self._claims or (group, slot) in life.copies
            if not (columns or (shared and (group, slot) not in life.released)):
                self._lacks("allocate", "release.slots", slot, f"a slot that {request} holds")
            life.released.add((group, slot))

    def place(self, request: str, group: int, slot: int, offset: int) -> None:
        self._within("place")
        life = self._life("place", request, *ANY)
        self._group("place", group)
        self._slot("place.slot", slot)
        self._check(0 < offset <= life.prompt, "place.offset", offset, f"1 to {life.prompt}, its prompt")
        self._known.setdefault(slot, self._step)
        self._placed.add((group, slot))

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._within("claim")
        life = self._life("claim", request, *ANY)
        self._group("claim", group)
        self._slot("claim.slot", slot)
        self._check(offset > 0, "claim.offset", offset, "1 or more")
        self._check(column >= 0, "claim.column", column, "0 or more")
        self._check(bool(hash), "claim.hash", "", "a hash")
        claims = self._claims.setdefault((group, slot), {})
        self._check(hash not in claims, "claim.hash", hash.hex(), "one that does not lead to this slot already")
        slots = self._hashes.setdefault((group, hash), {})
        other = next(iter(slots.values()), offset)
        self._check(offset == other, "claim.offset", offset, f"{other}, as of the same hash")
        claims[hash] = slots[slot] = offset
        placed = life.tables.get(group, {}).get(column) == slot or (group, slot) in life.copies | self._placed
        if life.state != "gone" and not placed:
            # The column's block, or a copy of it that this step is to make.
            error = self._impossible("claim.slot", slot, f"the one that {request} has in column {column}")
            self._unplaced.setdefault(slot, (self._step, column, error))

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self._within("unclaim")
        self._group("unclaim", group)
        self._slot("unclaim.slot", slot)
        self._check(why in list(Withdrawal), "unclaim.why", why, ", ".join(Withdrawal))
        claims = self._claims.get((group, slot), {})
        if hash not in claims and self._known.get(slot, self._step) == self._step:
            # It was advertised before this log began, which had not handed it out by then.
            return
        self._check(hash in claims, "unclaim.hash", hash.hex(), f"one that leads to slot {slot}")
        del claims[hash]
        if not claims:
            del self._claims[group, slot]
        slots = self._hashes[group, hash]
        del slots[slot]
        if not slots:
            del self._hashes[group, hash]

    # What is launched, and what comes of it.

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self._within("chunk")
        life = self._life("chunk", request, "running")
        for group in sorted(life.starts) if life.restores else ():
            self._lacks("restore", "chunk.request", request, f"a restore in group {group} before, after its hit")
        life.starts.clear()
        self._check(0 <= start < end, "chunk.start", start, f"0 to {end - 1}, below its end")
        self._check(0 <= drafts <= self.num_drafts, "chunk.drafts", drafts, f"0 to {self.num_drafts}")
        self._check(steps >= 0, "chunk.steps", steps, "0 or more")
        run = min(drafts, end - start - 1)
        if steps:
            self._check(len(accepted) == steps, "chunk.accepted", list(accepted), f"one for each of {steps} steps")
            wrong = next((count for count in accepted if not 0 <= count <= drafts), None)
            self._check(wrong is None, "chunk.accepted", wrong, f"0 to {drafts}")
            least = self._step - life.covered - 1
            self._check(steps <= least, "chunk.steps", steps, f"1 to {least}, the steps since its last chunk")
            right = start + sum(accepted[:-1]) + steps + drafts
            self._check(end == right, "chunk.end", end, f"{right}, as start, accepted and drafts say")
            self._decoded(
                request,
                life,
                PendingChunk(
                    start, end, drafts, drafts, steps, life.era, True, sum(accepted) + steps, set(self.recurrent)
                ),
                accepted[-1],
            )
            return
        self._check(not accepted, "chunk.accepted", list(accepted), "none without steps")
        self._pays("chunk", request)
        batch = self._batches.setdefault(self._step, {})
        self._check(request not in batch, "chunk.request", request, "one chunk in a step")
        last, emits = self._reaches(life, request, end - run)
        self._check(end - run <= last, "chunk.end", end, f"{start + 1} to {last + run}, as far as tokens are known")
        if self._budget is not None:
            self._budget -= end - start
            self._check(self._budget >= 0, "chunk.end", end, "what the step's budget has left")
        for group in self.recurrent:
            column = (end - 1) // self.groups[group].block_size
            if column not in life.tables.get(group, {}):
                self._lacks("allocate", "chunk.end", end, f"where group {group} has a block: column {column} has none")
        batch[request] = PendingChunk(start, end, drafts, run, 0, life.era, emits, 1 + drafts, set(self.recurrent))
        life.sampled += emits
        life.covered = max(life.covered, self._step)

    def seed(self, request: str, group: int, column: int, width: int, slot: int) -> None:
        self._within("seed")
        self._group("seed", group)
        row, life = self._row("seed", request), self._life("seed", request, *ANY)
        self._check(column >= 0, "seed.column", column, "0 or more")
        self._check(width > 0, "seed.width", width, "1 or more")
        self._slot("seed.slot", slot, -1)
        self._handed("seed.slot", slot)
        table = life.tables.get(group, {})
        given = table.get(column)
        mine = slot == given or (group, slot) in life.copies
        # Behind a request's own columns a row has what others left there, be it a slot that is its own by now.
        inside = slot > NULL and slot in table.values() and column <= max(table)
        if row.era == life.era and (given or inside):
            self._check(mine, "seed.slot", slot, f"what {request} has in column {column}")

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        self._within("copy")
        self._check(kind in list(CopyKind), "copy.kind", kind, ", ".join(CopyKind))
        recurrent = self._group("copy", group, None).recurrent
        life = self._life("copy", request, *ANY)
        for key, slot, least in (("src", src, -1), ("dst", dst, 0), ("conv_src", conv_src, -1)):
            self._slot(f"copy.{key}", slot, least)
        top = self.num_drafts
        self._check(-top <= shift <= top, "copy.shift", shift, f"{-top} to {top}")
        if not recurrent:
            return
        self._handed("copy.src", src)
        told = (self._runs, request, group, kind, src, dst, conv_src, shift)
        self._check(told not in self._copied, "copy", list(told[1:]), "each once in a step")
        self._copied.add(told)
        if kind == CopyKind.COW:
            self._known.setdefault(dst, self._step)
            self._unplaced.pop(dst, None)
            life.copies |= {(group, src), (group, dst)}
            if life.sources.get(group) == src:
                # What was shared makes room for the copy.
                table = life.tables.get(group, {})
                table.update((column, dst) for column, slot in tuple(table.items()) if slot == src)
                del life.sources[group]
        else:
            self._handed("copy.dst", dst)

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        self._within("advance")
        self._group("advance", group)
        row = self._quiet.get(request) if steps else self._row("advance", request)
        if row is None or group not in row.left:
            raise self._impossible("advance.request", request, "one whose chunk is to run, once a group")
        row.left.discard(group)
        if not steps:
            self._lives[request].sources.pop(group, None)
        self._check(end == row.end, "advance.end", end, f"{row.end}, where its chunk ends")
        self._check(start == row.start, "advance.start", start, f"{row.start}, where its chunk starts")
        self._check(steps == row.steps, "advance.steps", steps, f"{row.steps}, as its chunk says")
        self._all_drafts(request, row, drafts)
        self._check(len(drafts) == row.run, "advance.drafts", list(drafts), f"{row.run}, as its chunk says")
        self._slot("advance.read", read, -1)
        self._handed("advance.read", read)
        self._check(len(set(writes)) == len(writes), "advance.writes", list(map(list, writes)), "each once")
        first = end - len(drafts) - 1 if steps else start
        for offset, slot in writes:
            self._check(first < offset <= end, "advance.writes", offset, f"{first + 1} to {end}, within the chunk")
            self._slot("advance.writes", slot, 0)
            self._handed("advance.writes", slot)
        column = (end - 1) // self.groups[group].block_size
        # Kernels leave the null block alone, and drafts behind the K-th have no column.
        ends = any(offset == end for offset, _ in writes) or not self._lives[request].tables.get(group, {}).get(column)
        self._check(
            ends or row.run > self.num_drafts,
            "advance.writes",
            list(map(list, writes)),
            f"one at {end}, where the chunk ends",
        )
