"""The outcome of a step, as the scheduler hears of it: what was sampled, published and stored, and who ended."""

from __future__ import annotations

from collections.abc import Callable

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.fast_forward import Quiet
from stateat.sim.engine.in_flight import InFlight
from stateat.sim.engine.request import Request
from stateat.sim.engine.sampling import settle
from stateat.sim.engine.step import Step
from stateat.sim.events import Observer
from stateat.sim.releases.rules import Rules
from stateat.sim.worker.pipeline import Batch
from stateat.sim.worker.worker import Row


class Outcomes:
    """Hears what became of a step's rows, at once or once other steps have been decided."""

    def __init__(
        self,
        cache: Cache,
        rules: Rules,
        observer: Observer,
        in_flight: InFlight,
        encoder: Encoder,
        quiet: Quiet,
        leave: Callable[[Request], None],
        rest: Callable[[Request], None],
    ) -> None:
        """``leave``: takes a request that ended off the scheduler's lists; ``rest``: a quiet one off the active."""
        self.cache, self.rules, self.observer = cache, rules, observer
        self.in_flight, self.encoder, self.quiet = in_flight, encoder, quiet
        self.leave, self.rest = leave, rest

    def hear(self, batch: Batch[Request], result: Step) -> bool:
        """Hear of a batch; return True if a request is further than it ever was."""
        rows, in_flight = batch.rows, self.in_flight
        result.decode_tokens = batch.quiet_tokens
        in_flight.hear(batch)
        further = False
        heard: list[tuple[Row[Request], Request]] = []
        for row in rows:
            request = row.request
            if row.start < request.prefill_end:
                result.prefill_tokens += row.end - row.start
            else:
                result.decode_tokens += row.end - row.start
            if in_flight.several:
                listener = in_flight.returns(row)
                if listener is None:
                    self._unheard(row.owner or request)
                    continue
                request = listener
            elif request.gone:
                # Taken away while its step ran.
                continue
            else:
                request.computed = row.end
            heard.append((row, request))
            further = settle(row, request, self.observer) or further
        for row, request in heard:
            self._publish(row, request)
        prefills = [(row.request, row.end) for row in rows if row.start < row.request.num_prompt and not row.void]
        self.cache.lower_tier.store(prefills, batch.full)
        for row, request in heard:
            self._end(row, request, batch.index, result)
        in_flight.forget(rows)
        self.cache.commit(batch.published)
        return further

    def _unheard(self, request: Request) -> None:
        """Let go of what a request has passed, where outputs that it does not get are counted all the same."""
        if request.items and self.rules.stale_output.counted and not request.gone:
            self.encoder.passed(request, request.computed - request.placeholders)

    def _publish(self, row: Row[Request], request: Request) -> None:
        """Publish what a row's outcome has made known, where that is not left to the next chunk."""
        if not row.emitted or row.stale or request.order < 0:
            return
        asynchronous = self.in_flight.asynchronous
        if self.rules.publish.at_commit and (asynchronous or self.in_flight.speculative.num_speculative_tokens):
            # What a stop trims was computed and is not the request's; its last token never is.
            known = min(request.computed - request.in_flight, request.num_tokens - 1)
        elif asynchronous:
            known = request.computed - request.placeholders
        else:
            return
        self.cache.learn(request, known, row.emitted)

    def _end(self, row: Row[Request], request: Request, index: int, result: Step) -> None:
        """End a request whose last token a row has sampled, or see whether it is quiet from now on."""
        if not self.in_flight.several:
            request.prefilling = not row.emitted
        if row.emitted and not (self.in_flight.asynchronous or row.stale):
            request.drafts = request.proposed
        if request.items:
            # What the row sampled counts among the placeholders yet when items are freed.
            sampled = row.emitted if self.in_flight.asynchronous and not row.stale else 0
            self.encoder.passed(request, request.computed - request.placeholders - sampled)
        if request.outputs >= request.max_outputs:
            self.leave(request)
            self.in_flight.end(request)
            self.encoder.free(request)
            self.observer.finish(request.id)
            result.finished.append(request.id)
        elif not (request.prefilling or self.encoder.holds(request)) and self.quiet.enter(request, index + 1):
            self.rest(request)
