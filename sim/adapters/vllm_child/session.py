"""One scheduler, from its configuration to its end: requests, steps and what they sampled."""

from __future__ import annotations

import base64
from array import array

from checkpoints import Checkpoints
from configuration import Configuration, hash_lookahead
from listeners import Ears
from objects import Unsupported, call, make
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
        self.output = None

    def about(self):
        """Return what came of the configuration."""
        return {
            "free": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "warnings": self.warnings,
        }

    def add(self, said):
        """A request arrives."""
        if said["external"]:
            if hash_lookahead(self.scheduler.vllm_config):
                # A server with a connector has such hashes no more, and this one is configured already.
                raise Unsupported(
                    "external tokens beside hashes that look ahead, which a server of this release with a connector "
                    "has not (engine.speculative.hash_lookahead: false runs it)"
                )
            self.connector.external[said["id"]] = said["external"]
            self.scheduler.connector = self.connector
            self.scheduler._connector_finished = lambda request: (False, None)
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

    def step(self, said):
        """Schedule: what runs, with whatever was decided and claimed on the way."""
        from vllm.v1.request import RequestStatus

        scheduler, ears = self.scheduler, self.ears
        if said["abort"]:
            scheduler.finish_requests(said["abort"], RequestStatus.FINISHED_ABORTED)
        aborted = ears.take()
        if said["reset"]:
            done = scheduler.reset_prefix_cache(reset_running_requests=said["reset"] == "running")
            ears.log.append(["reset", bool(done)])
        evicted = [self._evict(each) for each in said.get("evict", ())]
        ears.stops.clear()
        ears.offered.clear()
        scheduler.max_num_scheduled_tokens = min(said["budget"], ears.cap)
        try:
            output = scheduler.schedule()
        finally:
            scheduler.max_num_scheduled_tokens = ears.cap
        self.output = output
        given, copies = ears.take_step()
        return {
            "aborted": aborted,
            "evicted": evicted,
            "log": ears.take(),
            "rows": self._rows(output),
            "given": given,
            "copies": copies,
        }

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
        """Hand over what the step sampled, and the drafts for the next one."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        scheduler, sampled = self.scheduler, said["sampled"]
        names = list(sampled)
        running = set(scheduler.requests)
        known = {
            "req_ids": names,
            "req_id_to_index": {name: i for i, name in enumerate(names)},
            "sampled_token_ids": [sampled[name] for name in names],
        }
        scheduler.update_from_output(self.output, make(ModelRunnerOutput, known))
        if said["drafts"]:
            scheduler.update_draft_token_ids(DraftTokenIds(list(said["drafts"]), list(said["drafts"].values())))
        self.output = None
        return {
            "log": self.ears.take(),
            "finished": sorted(running - set(scheduler.requests)),
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }
