"""One scheduler, from its configuration to its end: requests, steps and what they sampled."""

from __future__ import annotations

import base64
from array import array
from collections import deque

from checkpoints import Checkpoints
from configuration import Configuration, hash_lookahead
from listeners import Ears
from objects import Unsupported, attribute, call, make
from placeholders import Connector, features


class Session:
    """One scheduler, from its configuration to its end."""

    def __init__(self, wanted):
        configuration = Configuration(wanted)
        self.scheduler, self.hasher = configuration.scheduler()
        self.warnings = configuration.warnings
        self.ears = Ears(self.scheduler, wanted)
        self.checkpoints = Checkpoints(self.scheduler, wanted)
        self.connector = Connector()
        self.unit = wanted["hash_unit"]
        self.depth = self.scheduler.vllm_config.max_concurrent_batches
        self.outputs = deque()
        """Outputs of the scheduler whose steps are under way, the oldest first; an empty one too."""
        if wanted["kv_consumer"]:
            self._connect("engine.kv_consumer")

    def about(self):
        """Return what came of the configuration."""
        return {
            "free": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "warnings": self.warnings,
            "depth": self.depth,
            "ahead": bool(self.scheduler.scheduler_config.async_scheduling),
        }

    def add(self, said):
        """A request arrives."""
        if said["external"]:
            self._connect("external tokens")
            self.connector.external[said["id"]] = said["external"]
        self.scheduler.add_request(self._request(said, said["max_tokens"]))
        return {}

    def _request(self, said, max_tokens):
        """A request of these tokens, with the hashes of its prompt."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        tokens = array("i")
        tokens.frombytes(base64.b64decode(said["prompt"]))
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0)
        return call(
            Request,
            request_id=said["id"],
            prompt_token_ids=tokens.tolist(),
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=0.0,
            mm_features=features(said["encoder"]) or None,
            block_hasher=self.hasher,
        )

    def _evict(self, said):
        """Evict what is published in a group under a prefix; False if nothing is."""
        request = self._request(said, max(len(said["outputs"]), 1))
        for token in said["outputs"]:
            # One by one: what fills a block with outputs is hashed when it comes.
            request.append_output_token_ids(token)
        hashes, index = request.block_hashes, said["offset"] // self.unit - 1
        return index < len(hashes) and self.ears.evict(said["group"], hashes[index])

    def _connect(self, why):
        """Attach the connector, if there is none. Who gets tokens from one is a consumer of KV transfers, and with
        several steps under way its release frees no block that one of them may still write."""
        scheduler = self.scheduler
        if scheduler.connector is not None:
            return
        if hash_lookahead(scheduler.vllm_config):
            # A server with a connector has such hashes no more, and this one is configured already.
            raise Unsupported(
                f"{why} beside hashes that look ahead, which a server of this release with a connector has not "
                "(engine.speculative.hash_lookahead: false runs it)"
            )
        scheduler.connector = self.connector
        scheduler._connector_finished = lambda request: (False, None)
        if self.depth == 1:
            return
        attribute(scheduler, "defer_block_free")
        scheduler.defer_block_free = True
        # It has counted no step so far; those that are under way fence their requests too.
        for output in self.outputs:
            if output.total_num_scheduled_tokens:
                scheduler.sched_step_seq += 1
                for name in output.num_scheduled_tokens.keys() & scheduler.requests.keys():
                    scheduler.requests[name].last_sched_seq = scheduler.sched_step_seq

    def step(self, said):
        """Schedule: what runs, with whatever was decided and claimed on the way."""
        scheduler, ears = self.scheduler, self.ears
        aborted = self.abort(said)["log"]
        if said["reset"]:
            ears.log.append(["reset", self._reset(said["reset"] == "running")])
        evicted = [self._evict(each) for each in said.get("evict", ())]
        ears.stops.clear()
        ears.offered.clear()
        scheduler.max_num_scheduled_tokens = min(said["budget"], ears.cap)
        try:
            output = scheduler.schedule()
        finally:
            scheduler.max_num_scheduled_tokens = ears.cap
        self.outputs.append(output)
        given, copies = ears.take_step()
        return {
            "aborted": aborted,
            "evicted": evicted,
            "log": ears.take(),
            "rows": self._rows(output),
            "given": given,
            "copies": copies,
        }

    def abort(self, said):
        """Take requests away, one after the other: of several at once a release frees the blocks in the order of a set
        of names, which is another in each process."""
        from vllm.v1.request import RequestStatus

        for name in said["abort"]:
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        return {"log": self.ears.take()}

    def _reset(self, running):
        try:
            return bool(self.scheduler.reset_prefix_cache(reset_running_requests=running))
        except RuntimeError:
            # Steps under way hold blocks of those that were put back, too.
            if not self.outputs:
                raise
            return False

    def _rows(self, output):
        """[id, start, end, draft ids, whole table or None, appended blocks or None, stop, checkpoint, offered]"""
        places = {}
        for new in output.scheduled_new_reqs:
            places[new.req_id] = (new.num_computed_tokens, new.block_ids, None)
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            blocks = cached.new_block_ids[i]
            resumed = name in cached.resumed_req_ids
            places[name] = (cached.num_computed_tokens[i], blocks if resumed else None, None if resumed else blocks)
        rows = []
        for name, count in output.num_scheduled_tokens.items():
            start, whole, more = places[name]
            drafts = list(output.scheduled_spec_decode_tokens.get(name, ()))
            stop = self.ears.stops.get(name, "")
            export = self.checkpoints.of(start, start + count)
            offered = self.ears.offered.get(name, 0)
            rows.append([name, start, start + count, drafts, whole, more, stop, export, offered])
        return rows

    def commit(self, said):
        """Hand over what the oldest step under way sampled, and the drafts that the worker has not kept."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        scheduler, sampled, output = self.scheduler, said["sampled"], self.outputs.popleft()
        names = list(sampled)
        running = dict(scheduler.requests)
        before = {name: running[name].num_output_tokens for name in names if name in running}
        known = {
            "req_ids": names,
            "req_id_to_index": {name: i for i, name in enumerate(names)},
            "sampled_token_ids": [sampled[name] for name in names],
        }
        scheduler.update_from_output(output, make(ModelRunnerOutput, known))
        if said["drafts"]:
            scheduler.update_draft_token_ids(DraftTokenIds(list(said["drafts"]), list(said["drafts"].values())))
        return {
            "log": self.ears.take(),
            "taken": {name: running[name].num_output_tokens - count for name, count in before.items()},
            "finished": sorted(running.keys() - scheduler.requests.keys()),
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }

    def drain(self, said):
        """Hand over the empty steps that are left under way when nobody is here any more."""
        from vllm.v1.outputs import ModelRunnerOutput

        while self.outputs:
            self.scheduler.update_from_output(self.outputs.popleft(), make(ModelRunnerOutput, {}))
        return {}
