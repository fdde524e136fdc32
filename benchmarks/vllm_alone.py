"""A release's own scheduler without pipe and without listeners: what ``versus_vllm.py`` times.

Runs under the Python that has vLLM. It replays a tape (what a live run was asked, line by line) and times the release's
calls alone: creating requests (hashes included) and adding them, ``schedule()``, ``update_from_output()`` with the
drafts handed over. Decoding the tape, building sampled outputs and checking decisions stay outside the clock.

The folder ``sim/adapters/vllm_child`` is on its path. Argument: the tape. Each line on standard input asks for one run;
its answer is a line of JSON.
"""

# mypy: ignore-errors
# It runs under another Python, with packages that no checker of ours sees.

from __future__ import annotations

import base64
import gc
import json
import logging
import sys
from array import array
from time import perf_counter

from configuration import Configuration
from conversation import load
from objects import call, make
from stand_ins import stub


def main() -> None:
    logging.disable(logging.WARNING)
    stub()
    load()
    with open(sys.argv[1], encoding="utf-8") as file:
        tape = [json.loads(line) for line in file]
    for said, _ in tape:
        if said["do"] == "add":
            tokens = array("i")
            tokens.frombytes(base64.b64decode(said["prompt"]))
            said["prompt"] = tokens.tolist()
    # The tape is not the scheduler's: the collector must not walk it.
    gc.collect()
    gc.freeze()
    for _ in sys.stdin:
        print(json.dumps(replay(tape)), flush=True)


def replay(tape) -> dict[str, float]:
    """Seconds of each part; raises AssertionError where a decision is not that of the tape."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
    from vllm.v1.request import Request

    init = next(said for said, _ in tape if said["do"] == "init")
    scheduler, hasher = Configuration(init["config"]).scheduler()
    seconds = {"create": 0.0, "schedule": 0.0, "update": 0.0}
    output = None
    gc.collect()
    for said, answer in tape:
        match said["do"]:
            case "add":
                prompt = list(said["prompt"])
                started = perf_counter()
                request = call(
                    Request,
                    request_id=said["id"],
                    prompt_token_ids=prompt,
                    sampling_params=SamplingParams(max_tokens=said["max_tokens"], ignore_eos=True, temperature=0.0),
                    pooling_params=None,
                    arrival_time=0.0,
                    block_hasher=hasher,
                )
                scheduler.add_request(request)
                seconds["create"] += perf_counter() - started
            case "step":
                started = perf_counter()
                output = scheduler.schedule()
                seconds["schedule"] += perf_counter() - started
                assert output.num_scheduled_tokens == dict(answer), "another decision than on the tape"
            case "commit":
                sampled, drafts = said["sampled"], said["drafts"]
                names = list(sampled)
                known = {
                    "req_ids": names,
                    "req_id_to_index": {name: i for i, name in enumerate(names)},
                    "sampled_token_ids": [list(sampled[name]) for name in names],
                }
                result = make(ModelRunnerOutput, known)
                proposed = DraftTokenIds(list(drafts), [list(ids) for ids in drafts.values()]) if drafts else None
                started = perf_counter()
                scheduler.update_from_output(output, result)
                if proposed is not None:
                    scheduler.update_draft_token_ids(proposed)
                seconds["update"] += perf_counter() - started
    assert not scheduler.requests, "requests are left"
    return seconds


if __name__ == "__main__":
    main()
