"""What becomes of each option on a live release: sent, ours, or refused by name."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

import pytest

from stateat.sim.adapters.vllm.config import ALONE, OURS, PARTS, PHYSICAL, REACH, SENT, refused, wire
from stateat.sim.events import Group
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.releases.rules import RULES
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32))
OPTIONS = Options(GROUPS, speculative=Speculative("mtp", 2))
ARRIVAL = Arrival("a", 0, 0, ((1, 16),))

OTHERS: dict[type, dict[str, Any]] = {
    Options: {
        "preset": "vllm-0.33.0",
        "rules": {"worker": "v1"},
        "num_blocks": 99,
        "num_state_blocks": 9,
        "group_retention_intervals": {"gdn": 64},
        "group_times_to_live": {"gdn": 5},
        "max_num_batched_tokens": 99,
        "max_num_seqs": 9,
        "max_concurrent_batches": 2,
        "async_scheduling": True,
        "kv_consumer": True,
        "max_model_len": 999,
        "long_prefill_token_threshold": 9,
        "enable_prefix_caching": False,
        "partial_hits": False,
        "decode_context_parallel_size": 2,
        "prefix_match_unit": 8,
        "cache_config_block_size": 64,
        "initial_block_size": 32,
        "watermark": 0.5,
        "scheduler_reserve_full_isl": False,
        "num_prefill_checkpoint_blocks": 1,
        "prefill_checkpoint_alignment": 16,
        "prefix_cache_retention_interval": 0,
        "shared_prefix_checkpoint": True,
        "encoder_cache_size": 9,
        "max_num_encoder_input_tokens": 9,
        "mamba_chunk_size": 8,
        "disable_chunked_mm_input": True,
        "clock": "steps",
        "costs": None,
    },
    Group: {
        "name": "other",
        "kind": "recurrent",
        "block_size": 64,
        "eagle": True,
        "sliding_window": 8,
        "prefix_cacheable": False,
    },
    Speculative: {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "accepted_drafts": (1,),
        "acceptance_rate": 0.5,
        "num_speculative_tokens_per_batch_size": ((1, 4, 1),),
        "proposed_drafts": (1, 0),
        "draft_slots": 1,
        "multi_module": True,
        "block_drop": False,
        "hash_lookahead": False,
    },
    Offload: {"blocks": 8},
}
"""Of each option a value that is not its default."""


def with_part(part: type, name: str, value: Any) -> Options:
    """The options with one field of them, or of one of their parts, changed."""
    change: dict[str, Any] = {name: value}
    if part is Options:
        return replace(OPTIONS, **change)
    if part is Group:
        return replace(OPTIONS, groups=(replace(GROUPS[0], **change), GROUPS[1]))
    if part is Offload:
        return replace(OPTIONS, offload=Offload(**change))
    return replace(OPTIONS, speculative=replace(OPTIONS.speculative, **change))


CHANGES = [(part, name, value) for part, values in OTHERS.items() for name, value in values.items()]


@pytest.mark.parametrize("part", REACH, ids=lambda part: part.__name__)
def test_every_field_of_every_part_is_in_the_table(part: type) -> None:
    """A new option fails here until somebody says what a live release makes of it."""
    assert set(REACH[part]) == {field.name for field in fields(part)}
    whole = {name for name, reach in REACH[part].items() if reach != PARTS}
    assert part is Arrival or set(OTHERS[part]) == whole - {"mamba_cache_mode"}


@pytest.mark.parametrize(("part", "name", "value"), CHANGES, ids=[f"{p.__name__}.{n}" for p, n, _ in CHANGES])
def test_what_is_sent_reaches_the_wire_and_what_is_not_is_refused_unless_it_is_ours(
    part: type, name: str, value: Any
) -> None:
    options = with_part(part, name, value)
    reach = REACH[part][name]
    assert len(list(refused(options, "engine"))) == (reach == ALONE)
    if reach != ALONE:
        assert (wire(options) != wire(OPTIONS)) == (reach == SENT)
        assert reach in (SENT, OURS)


def test_a_mode_of_a_recurrent_group_is_sent() -> None:
    mode = replace(GROUPS[1], mamba_cache_mode="all")
    assert wire(replace(OPTIONS, groups=(GROUPS[0], mode)))["groups"][1]["mamba_cache_mode"] == "all"


def test_what_only_the_reference_engine_has_has_a_default_to_be_at() -> None:
    for part, table in REACH.items():
        for field in fields(part):
            assert table[field.name] != ALONE or field.default is not MISSING or field.default_factory is dict


def test_what_is_refused_is_named_with_what_was_found_and_is_allowed() -> None:
    options = replace(
        OPTIONS,
        offload=Offload(8),
        groups=(replace(GROUPS[0], prefix_cacheable=False), GROUPS[1]),
        rules={"split": "no", "worker": "v1"},
    )
    assert list(refused(options, "engine")) == [
        "engine.groups.0.prefix_cacheable: found false, allowed true: it is the reference engine's alone",
        "engine.offload.blocks: found 8, allowed 0: it is the reference engine's alone",
        "engine.rules.split: found no, allowed none: a release decides by rules of its own",
    ]
    assert list(refused(OPTIONS, "engine")) == list(refused(ARRIVAL, "request a")) == []
    assert list(refused(replace(ARRIVAL, load_error=True), "request a")) == [
        "request a.load_error: found true, allowed false: it is the reference engine's alone"
    ]


def test_rules_of_the_physical_model_are_rules() -> None:
    assert set(PHYSICAL) <= set(RULES)


def test_options_are_told_under_their_own_names() -> None:
    said = wire(OPTIONS)
    assert said["groups"][1] == {
        "name": "gdn", "recurrent": True, "block_size": 32, "rank_block_size": 32, "eagle": False,
        "sliding_window": 0, "mamba_cache_mode": "align",
    }  # fmt: skip
    assert (said["hash_unit"], said["scheduler_block_size"], said["cache_config_block_size"]) == (16, 32, 32)


def test_a_release_is_told_the_block_of_one_rank() -> None:
    groups = (GROUPS[0], GROUPS[1], replace(GROUPS[0], name="window", sliding_window=9))
    said = wire(replace(OPTIONS, groups=groups, decode_context_parallel_size=2))
    sizes = [(group["block_size"], group["rank_block_size"]) for group in said["groups"]]
    assert sizes == [(16, 8), (32, 32), (16, 16)] and said["decode_context_parallel_size"] == 2


@pytest.mark.parametrize(
    ("method", "slots", "told"),
    [
        ("eagle3", 0, "eagle3"),
        ("eagle3", 2, "eagle3"),
        ("dflash", 3, "dflash"),
        ("ngram", 0, "ngram"),
        ("suffix", 0, "suffix"),
        ("ngram", 1, "draft_model"),
    ],
)
def test_slots_leave_a_drafter_its_method(method: str, slots: int, told: str) -> None:
    """Without a look ahead, who fills slots has a model of its own."""
    options = replace(OPTIONS, speculative=Speculative(method, 3, draft_slots=slots))
    assert wire(options)["method"] == told
