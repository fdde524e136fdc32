"""Each count counts what docs/scenario-files.md says, and nothing else."""

from __future__ import annotations

import pytest

from stateat.sim.run.result import LISTED_REQUESTS
from stateat.sim.run.tally import Tally


def tally(*names: str, prompt: int = 40) -> Tally:
    made = Tally()
    for i, name in enumerate(names):
        made.arrive(name, i, 100 * i, ((1, prompt - 5), (2, 5)), None, 8)
    return made


def test_prompts_are_counted_as_segments_or_as_tokens() -> None:
    made = tally("a")
    made.arrive("b", 1, 0, (), (4, 5, 6), 8)
    assert (made.requests, made.prompt_tokens) == (2, 43)


def test_hits_of_first_admissions_and_of_resumes_are_apart() -> None:
    made = tally("a", "b")
    made.admit("a", 16, 0, False)
    made.admit("b", 0, 0, False)
    made.admit("a", 32, 0, True)
    made.admit("b", 0, 0, True)
    assert (made.hit_tokens, made.resume_hit_tokens, made.restores) == (16, 32, 2)
    assert made.hits == {"a": 16, "b": 0}


def test_what_a_connector_brings_is_no_hit() -> None:
    made = tally("a")
    made.admit("a", 0, 20, False)
    assert (made.hit_tokens, made.restores, made.hits) == (0, 0, {"a": 0})


def test_deferrals_and_refusals() -> None:
    made = tally("a", "b")
    made.defer("a", 7, "block-boundary")
    made.defer("a", 7, "block-boundary")
    for reason in ("same_step", "blocks", "watermark", "full_sequence", "same_step"):
        made.refuse("b", reason)
    assert (made.deferred, made.same_step_refused) == (2, 2)


def test_chunks_are_pairs_of_step_and_request_fast_forwarded_or_not() -> None:
    made = tally("a")
    made.chunk("a", 0, 40, 0, "", 0, ())
    made.output("a", 1, None)
    made.chunk("a", 40, 45, 0, "decode", 5, (0,) * 5)
    assert made.chunks == 6


def test_ends_are_those_of_prefill_chunks() -> None:
    made = tally("a")
    made.chunk("a", 0, 16, 0, "", 0, ())
    made.chunk("a", 16, 40, 0, "", 0, ())
    made.output("a", 1, None)
    for start in range(40, 43):
        made.chunk("a", start, start + 1, 0, "decode", 0, ())
        made.output("a", 1, None)
    # Preempted with four outputs, it runs up to 43 again before it decodes on.
    made.preempt("a")
    made.chunk("a", 0, 44, 0, "", 0, ())
    made.output("a", 1, None)
    made.chunk("a", 44, 45, 0, "decode", 0, ())
    assert made.ends == {"a": [16, 40, 44]}
    assert (made.preempted, made.output_tokens) == (1, 5)


def test_a_slot_is_evicted_once_whatever_its_claims_and_only_by_reallocation() -> None:
    made = tally("a")
    for slot, why in ((7, "evict"), (8, "move"), (9, "rekey"), (10, "evict")):
        for key in (b"x", b"y"):
            made.claim(1, slot, "a", 0, 16, key)
        for key in (b"x", b"y"):
            made.unclaim(1, slot, key, why)
    assert made.evicted == 2


def test_a_slot_with_a_claim_left_is_not_evicted_yet() -> None:
    made = tally("a")
    made.claim(1, 7, "a", 0, 16, b"x")
    made.claim(1, 7, "a", 0, 20, b"y")
    made.unclaim(1, 7, b"x", "evict")
    assert made.evicted == 0


def test_finished_and_aborted() -> None:
    made = tally("a", "b")
    made.finish("a")
    made.abort("b")
    assert (made.requests, made.finished) == (2, 1)


def test_the_first_token_counts_from_arrival_to_the_commit_of_its_step() -> None:
    made = tally("a", "b", "c")
    for name in ("a", "b"):
        made.output(name, 2, None)
    made.commit(1100)
    made.output("a", 1, None)
    made.commit(1200)
    # a waited 1100, b 1000; c had none.
    assert made.ttft_us() == {"p50": 1050.0, "p95": pytest.approx(1095), "p99": pytest.approx(1099)}
    assert all(type(value) is float for value in made.ttft_us().values())


def test_without_a_token_there_are_no_percentiles() -> None:
    assert tally("a").ttft_us() == {}


def test_the_end_says_how_long_it_was() -> None:
    made = tally("a")
    made.end(12, 3400, True)
    assert (made.steps, made.time_us, made.livelock) == (12, 3400, True)


def test_only_so_many_requests_are_listed_and_all_are_counted() -> None:
    made = tally(*(f"r{i}" for i in range(LISTED_REQUESTS + 5)))
    last = f"r{LISTED_REQUESTS + 4}"
    for name in ("r0", last):
        made.admit(name, 16, 0, False)
        made.chunk(name, 16, 40, 0, "", 0, ())
    assert len(made.ends) == LISTED_REQUESTS and last not in made.ends
    assert made.hits == {"r0": 16}
    assert (made.hit_tokens, made.chunks) == (32, 2)


def test_who_starts_from_a_state_has_it_from_a_hit_a_tier_or_a_connector() -> None:
    made = tally("a", "b", "c")
    made.admit("a", 0, 0, False)
    made.admit("b", 16, 0, False)
    made.admit("c", 0, 16, False)
    made.admit("a", 16, 8, True)
    assert (made.starts, made.restores) == (3, 2)
