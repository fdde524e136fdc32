"""The scheduler: one step in the order of vLLM V1.

Running requests in order, then, unless this step preempted, waiting ones in order while the budget and
``max_num_seqs`` last. Requests that only decode, within blocks that they have, are *quiet*: nothing that anybody
could see changes until a known step, so until then they only take their tokens off each step's budget
(:mod:`stateat.sim.engine.fast_forward`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from stateat.sim.cache.interface import Cache
from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.alone import outgrows
from stateat.sim.engine.computed_prefix import ComputedPrefix, find, tell
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.fast_forward import Quiet
from stateat.sim.engine.in_flight import InFlight
from stateat.sim.engine.named_states import NamedStates
from stateat.sim.engine.outcome import Outcomes
from stateat.sim.engine.request import Request, placeholders
from stateat.sim.engine.sizing import Sizing
from stateat.sim.engine.step import Step
from stateat.sim.events import Observer, Refusal
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.rules import Rules
from stateat.sim.rules.restore_column import config_block
from stateat.sim.worker.block_tables import BlockTables, widths
from stateat.sim.worker.state import Asked
from stateat.sim.worker.worker import Row
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


class Scheduler:
    """The reference engine's state between steps."""

    def __init__(
        self,
        policy: Policy,
        observer: Observer,
        seed: int,
        fast_forward: bool,
        make_cache: Callable[[Options, Rules, Observer], Cache] = KVCache,
    ) -> None:
        """``make_cache``: another cache in the place of the releases'."""
        options, rules = policy.options, policy.rules
        self.policy = policy
        self.options = options
        self.rules = rules
        self.observer = observer
        self.seed = seed
        self.num_drafts = options.speculative.num_speculative_tokens
        # Where a batch's size says how many are drafted, rows have no common width.
        self.padded = self.num_drafts > 0 and options.speculative.num_speculative_tokens_per_batch_size is None
        """True if placeholders may make a row as wide as those beside it."""
        self.most = rules.running.most(options)
        """Requests that may run at once."""
        self.threshold = options.long_prefill_token_threshold
        self.cap = policy.step_tokens
        taken = options.max_num_batched_tokens - self.cap
        self.slots = 0 if taken else options.speculative.draft_slots
        """Slots that a drafter adds for each request that is scheduled."""
        self.make_cache = make_cache
        self.cache = make_cache(options, rules, observer)
        self.encoder = Encoder(policy)
        self.sizing = Sizing(policy, self.cache, self.encoder)
        self.worker = rules.worker(
            options.groups,
            self.num_drafts,
            seed=rules.restore_column,
            config_block=config_block(rules.restore_column, options, self.sizing.grid),
            observer=observer,
            block_tables=BlockTables(
                widths(options.groups, options.max_model_len, self.num_drafts), options.max_num_seqs
            ),
            export=self._exported if options.num_prefill_checkpoint_blocks else None,
            kernel=rules.state_writes,
            undrafted_are_plain=rules.undrafted_rows,
            mamba_chunk_size=options.mamba_chunk_size,
        )
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.active: list[Request] = []
        """The running requests that are not quiet, in order."""
        # A threshold below a decode row would cut it: such rows are never quiet.
        whole = not (0 < self.threshold < 1 + self.num_drafts or self.slots)
        whole = whole and self.worker.merges and not rules.state_slots.with_look_ahead
        self.in_flight = InFlight(self.cache, self.worker, rules, observer, options)
        self.pipeline = self.in_flight.pipeline
        self.asynchronous = self.in_flight.asynchronous
        # A pipeline's steps run late, and who is in it is seldom quiet.
        fast_forward = fast_forward and whole and self.pipeline.depth == 1 + self.asynchronous
        pipeline = self.pipeline if self.asynchronous else None
        self.quiet = Quiet(self.cache, self.worker, observer, self.num_drafts, fast_forward, pipeline)
        self.outcomes = Outcomes(
            self.cache, rules, observer, self.in_flight, self.encoder, self.quiet, self._leave, self._rest
        )
        self.admissions = 0
        self.preempted_in_vain = 0
        """Preemptions since some request last got further than it had ever been."""
        self._aborted: dict[str, bool] = {}
        """Requests to take away, and if so once the next step is decided."""
        self._outgrown: set[str] = set()
        """Waiting requests that want more blocks than there are."""
        self._rejected: list[str] = []
        """Requests that were refused for good in this step."""
        self._reset_asked = False
        self._reset_running = False
        self.named = NamedStates(self.cache, options, seed)

    def _exported(self, request: Asked, start: int, end: int, block: int) -> tuple[int, int]:
        """Return the offset of the state that a chunk exports on its way (0: none), and its column."""
        return self.cache.exported(start, end, block) if start < request.prefill_end else (0, 0)

    # Arrivals.

    def add(self, arrival: Arrival, time: int) -> None:
        """Take a request in."""
        request = Request(arrival, self.options, self.seed)
        self.observer.arrive(
            request.id, request.index, time, arrival.segments, None, request.max_outputs, arrival.encoder
        )
        if self.idle:
            self.pipeline.clear()
        self.waiting.append(request)
        self.cache.lower_tier.expect(arrival.external)
        self.in_flight.loads = self.in_flight.loads or arrival.external > 0
        if self.rules.admission.rejects and outgrows(arrival, self.policy, self._alone):
            self._outgrown.add(request.id)

    def _alone(self, policy: Policy, observer: Observer) -> Scheduler:
        """Return another scheduler, for a request alone."""
        return Scheduler(policy, observer, self.seed, True, self.make_cache)

    def abort(self, name: str, late: bool = False) -> bool:
        """Take a request away before the next step, or ``late``, once that is decided and before an outcome is heard
        of; False if it is not here (any more)."""
        if all(request.id != name for request in (*self.running, *self.waiting)):
            return False
        self._aborted[name] = late
        return True

    def reset(self, running: bool = False) -> None:
        """Empty the prefix cache of the pool before the next step, if nothing uses its blocks then.

        ``running``: put those that run back first, so that nothing does (vLLM's ``reset_running_requests``).
        """
        self._reset_asked = True
        self._reset_running = running

    def change(self, change: StateChange, arrival: Arrival) -> None:
        """Evict or place a state by name in the next step."""
        self.named.ask(change, arrival)

    @property
    def free_blocks(self) -> int:
        """Blocks in the free queue."""
        return self.cache.free_blocks

    @property
    def aborting(self) -> bool:
        """True if a request is to be taken away in the next step."""
        return bool(self._aborted)

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting and not self.pipeline

    def jump(self, step: int) -> int:
        """Return for how many steps from ``step`` on every request is quiet, so that all of them can be skipped."""
        if (
            self.quiet.tokens > self.cap
            or self.active
            or not self._rests_alone
            or self._aborted
            or self._reset_asked
            or self.named.asked
            or (self.waiting and len(self.running) < self.most)
        ):
            return 0
        return self.quiet.until() - step

    @property
    def _rests_alone(self) -> bool:
        """True if nothing is in flight but what is fast-forwarded, as much as there will be."""
        last = self.pipeline.last
        return not self.pipeline and (last is None or last.quiet_tokens == self.quiet.tokens)

    @property
    def quiet_tokens(self) -> int:
        """Tokens that quiet requests take off each step's budget."""
        return self.quiet.tokens

    # One step.

    def step(self, index: int, time: int, budget: int) -> Step:
        """Decide, run and commit one step; the caller says what it lasts (:meth:`Observer.commit`)."""
        self.observer.step(index, time, budget)
        result = Step()
        if self.pipeline.last is not None:
            # Steps that were skipped were alike.
            self.pipeline.last.index = index - 1
        if self._aborted:
            for request in [r for r in self.running if r.id in self._aborted]:
                self._wake(request, index)
            self._abort(index, result, late=False)
        if self._reset_asked:
            self._reset_asked = False
            while self._reset_running and self.running:
                self._preempt(self.running[-1], index, self.worker.forgets_on_reset, drops=True)
            self.observer.reset(self.cache.reset())
        self.cache.new_step(time)
        self.encoder.new_step()
        self.named.change()
        for request in self.quiet.due(index):
            self._wake(request, index)
        if self.quiet.tokens > min(budget, self.cap):
            self._wake_after(-1, index)
        rows: list[Row[Request]] = []
        used, preempted = self._schedule_running(index, budget, rows)
        if not preempted:
            prefills = any(row.request.prefilling for row in rows)
            decodes = bool(rows or self.quiet.tokens) and not prefills
            self._schedule_waiting(budget - used - self.quiet.tokens, rows, decodes, prefills)
        result.finished += self._rejected
        self._rejected.clear()
        batch = self.in_flight.add(index, rows)
        batch.quiet_tokens = self.quiet.tokens
        if self.asynchronous:
            self.in_flight.launch(batch)
        # Who is taken away late is so once a step has run, before its outcome is heard.
        oldest = self.in_flight.done() if self.in_flight.several else batch
        result.filled = oldest is None
        if oldest is not None and not self.asynchronous:
            self.in_flight.launch(oldest)
        if self._aborted:
            self._abort(index, result, late=True)
        if oldest is not None and self.outcomes.hear(oldest, result):
            self.preempted_in_vain = 0
        return result

    def _rest(self, request: Request) -> None:
        self.active.remove(request)

    def _leave(self, request: Request) -> None:
        """Take a request that ended off the lists."""
        if request.order >= 0:
            self.running.remove(request)
            self.active.remove(request)
        else:
            self.waiting.remove(request)

    def _abort(self, index: int, result: Step, late: bool) -> None:
        names = [name for name, when in self._aborted.items() if when == late]
        here = {r.id: r for r in (*self.running, *self.waiting) if r.id in names}
        # In the order in which they were asked for: in it blocks are freed.
        for request in [here[name] for name in names if name in here]:
            if request.order >= 0:
                self.cache.lower_tier.save_cancelled(request, request.in_flight)
                self._leave(request)
                self.in_flight.drop(request)
                self.in_flight.end(request)
            else:
                self._leave(request)
                request.gone = True
            self.encoder.free(request)
            self.observer.abort(request.id)
            result.finished.append(request.id)
        for name in names:
            del self._aborted[name]

    def _schedule_running(self, index: int, budget: int, rows: list[Row[Request]]) -> tuple[int, bool]:
        """Return the tokens used, and True if a request was preempted."""
        used, position, preempted = 0, 0, False
        while position < len(self.active):
            request = self.active[position]
            before = self.quiet.tokens_before(request.order)
            left = min(budget - used - before, self._room(used + before, rows))
            if left <= 0:
                break
            position += 1
            if self.asynchronous and self.in_flight.rests(request, index):
                continue
            count, why = self._running_tokens(request, left)
            if count <= 0 and request.in_flight and why == "decode":
                # Its next token is not known yet.
                continue
            if count <= 0:
                self.observer.defer(request.id, left, why)
                continue
            if left - count < self.quiet.tokens_after(request.order):
                self._wake_after(request.order, index)
            unconfirmed = request.in_flight if self.rules.deferred_free.confirmed else 0
            while not self.cache.grow(request, count, unconfirmed_tokens=unconfirmed):
                if len(self.running) == 1 and self.rules.admission.rejects and not self.pipeline:
                    # Nobody else holds a block that it could wait for.
                    self.running.clear()
                    self.active.clear()
                    self._reject(request, Refusal.NEVER_BLOCKS)
                    return used, True
                victim = self.running[-1]
                if self.rules.deferred_free.guards and self.in_flight.fenced(victim):
                    # What it has would not be free yet.
                    return used, preempted
                preempted = True
                self._preempt(victim, index)
                if victim is request:
                    return used, True
            self._chunk(request, count, rows, why)
            used += count
        return used, preempted

    def _running_tokens(self, request: Request, left: int) -> tuple[int, str]:
        """Return how many tokens a running request takes of those left, and the rule that ended its chunk."""
        wanted = request.num_tokens + request.drafts + request.placeholders - request.computed
        count, stop = wanted, ""
        if 0 < self._threshold() < count:
            count, stop = self.threshold, "threshold"
        if left < count:
            count, stop = left, "budget"
        room = self.options.max_model_len - request.computed - 1
        if room < count:
            count, stop = room, "max-model-len"
        return self.sizing.cut(request, request.computed, count, stop)

    def _room(self, used: int, rows: list[Row[Request]]) -> int:
        """Return the tokens that the batch has left for one more request, beside the slots that drafters add."""
        return self.cap - used - self.slots * (len(rows) + 1)

    def _threshold(self) -> int:
        """Return ``long_prefill_token_threshold`` where it applies, else 0."""
        if self.rules.threshold.beside_others_only and len(self.running) + len(self.waiting) <= 1:
            return 0
        return self.threshold

    def _chunk(self, request: Request, count: int, rows: list[Row[Request]], stop: str) -> None:
        """Put a running request's chunk into the batch, with the drafts that fit."""
        start = request.computed
        drafted = 0
        drafts: list[int] = []
        if request.drafts:
            drafted = max(start + count - request.num_tokens - request.placeholders, 0)
            if drafted:
                right = request.acceptance.of(request.proposals - 1)
                drafts = request.draft_ids(request.num_prompt + request.sampled, right, drafted)
                if count != drafted + 1 or not request.proposed:
                    # Behind placeholders that a split clipped it counts from too early: a worker takes all tokens but
                    # one for drafts, none for the request's last, and has no proposal behind it.
                    drafts = placeholders(count - 1)
            request.drafts = 0
        if self.asynchronous:
            # The worker knows which drafts in flight were rejected.
            start = request.at
        self._encode(request)
        self.observer.chunk(request.id, start, start + count, drafted, stop, 0, ())
        rows.append(Row(request, start, start + count, drafts, drafted))

    def _schedule_waiting(self, left: int, rows: list[Row[Request]], only_decodes: bool, prefills: bool) -> None:
        """Admit waiting requests. ``only_decodes``: running ones were scheduled, and none of them is a prefill;
        ``prefills``: one of them is."""
        limit = left
        place = 0
        """Place in the queue: those before it got nothing, and stepped aside."""
        while place < len(self.waiting) and len(self.running) < self.most:
            taken = self.quiet.tokens + sum(row.end - row.start for row in rows)
            left = min(limit, self._room(taken, rows))
            if left <= 0:
                return
            request = self.waiting[place]
            if self.rules.admission.rejects and (why := self._never(request)):
                del self.waiting[place]
                self._reject(request, why)
                continue
            if request.stale and self.rules.stale_output.waits and not request.drops_stale:
                # What it computes next could be what is still to come.
                request.aside = self.rules.stale_output.keeps_turn
                place += 1
                continue
            prefix = find(request, self.cache, self.rules.load_failure)
            start = prefix.tokens
            count, stop = request.num_tokens - start, ""
            drafted = 0
            alone = self.rules.padding.alone and not prefills and start > 0
            roomy = self.rules.padding.waits or start + count + self.num_drafts < self.options.max_model_len
            if self.padded and count == 1 and (only_decodes or alone) and roomy:
                # Placeholders make it as wide as the rows beside it, so that a full CUDA graph fits.
                drafted = self.num_drafts
                count += drafted
                if count > left or start + count > self.options.max_model_len:
                    return
            if 0 < self._threshold() < count:
                count, stop = self.threshold, "threshold"
            if left < count:
                count, stop = left, "budget"
            offered = count
            count, stop = self.sizing.cut(request, start, count, stop)
            if count <= 0:
                self.observer.defer(request.id, offered, stop)
                if not self.rules.blocked.steps_aside(stop):
                    return
                place += 1
                continue
            if count <= drafted and self.rules.padding.drops_clipped:
                count, drafted, stop = 1, 0, "prompt-end"
            reason = self.cache.admit(
                request,
                count,
                hit=prefix.hit,
                external_tokens=prefix.external_tokens,
                reserve_full_sequence=self.options.scheduler_reserve_full_isl,
                beside_others=bool(self.running),
            )
            if reason:
                self.observer.refuse(request.id, reason)
                self.encoder.free(request)
                if (
                    self.rules.admission.rejects
                    and reason != Refusal.SAME_STEP
                    and not self.running
                    and not self.pipeline
                ):
                    # Every block is free: it is all that there is.
                    del self.waiting[place]
                    self._reject(request, Refusal.NEVER_BLOCKS)
                    continue
                if not self.rules.blocked.steps_aside(""):
                    return
                place += 1
                continue
            del self.waiting[place]
            self._admit(request, prefix)
            self._encode(request)
            limit -= count
            self.observer.chunk(request.id, start, start + count, drafted, stop, 0, ())
            rows.append(Row(request, start, start + count, placeholders(min(drafted, count - 1)), drafted))

    def _admit(self, request: Request, prefix: ComputedPrefix) -> None:
        """Let a waiting request run."""
        request.aside = False
        start = prefix.tokens
        tell(request, prefix, self.cache, self.options, self.rules.connector.whole, self.observer)
        request.started = True
        request.computed = start
        request.resume(start)
        request.order = self.admissions
        self.admissions += 1
        self.running.append(request)
        self.active.append(request)

    def _encode(self, request: Request) -> None:
        """Encode what the chunk that it was just given needs; a decode needs nothing."""
        if request.items and request.computed < request.prefill_end:
            self.encoder.commit(request)

    def _never(self, request: Request) -> Refusal | None:
        """Return why a request can never be served, if it cannot: an item, or what it wants alone, is more than there
        is."""
        if self.encoder.never(request):
            return Refusal.NEVER_ENCODER
        return Refusal.NEVER_BLOCKS if request.id in self._outgrown else None

    def _reject(self, request: Request, reason: Refusal) -> None:
        """Refuse for good a request that can never fit."""
        self.cache.free(request)
        self.encoder.free(request)
        self.observer.refuse(request.id, reason)
        self.observer.abort(request.id)
        self._rejected.append(request.id)

    def _preempt(self, request: Request, index: int, told: bool = True, drops: bool = False) -> None:
        """Put the last running request back to the head of the queue; ``told``: the worker hears of it; ``drops``:
        what its steps in flight sample is dropped."""
        self._wake(request, index)
        self.running.pop()
        self.active.pop()
        self.in_flight.preempt(request, told, drops)
        self.encoder.free(request)
        # Who stepped aside is at the head of the queue.
        self.waiting.insert(sum(other.aside for other in self.waiting), request)
        self.preempted_in_vain += 1
        self.observer.preempt(request.id)

    # Quiet requests.

    def _wake(self, request: Request, index: int) -> None:
        """Bring a quiet request up to date, so that it can take part in step ``index``."""
        if request.quiet_since < 0:
            return
        self.quiet.leave(request, index)
        orders = [r.order for r in self.active]
        self.active.insert(bisect_left(orders, request.order), request)

    def _wake_after(self, order: int, index: int) -> None:
        for request in self.quiet.later_than(order):
            self._wake(request, index)
