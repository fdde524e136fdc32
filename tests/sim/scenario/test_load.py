"""The scenario file: reading, messages, precedence, expansion."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.errors import InputError
from stateat.sim.options import Options
from stateat.sim.releases.presets import PRESETS
from stateat.sim.scenario.load import Run, json_schema, load, runs, warned

FIRST = """\
schema: stateat/1
name: fragmented-first-chunk
title: A 364-token first chunk poisons slot 0
source: vLLM PR 51113
engine:
  preset: vllm-0.27.0
  max_num_batched_tokens: 8192
  max_num_seqs: 128
  num_blocks: 10000
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16, eagle: true}
    - {name: gdn, kind: recurrent, block_size: 1600, mamba_cache_mode: align}
  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [2, 0, 3]}
  clock: steps
workload:
  budgets: [364, 2002]
  requests:
    - {id: a, arrive: 0, prompt: [[1, 2002]], max_tokens: 1}   # prompt: [[seed, length], ...]
oracle: {state: digest}
variants:
  old gate:   {preset: vllm-0.26.0, expect: {poisoned: 1, findings: [{column: 0, claimed: 1600, held: 364}]}}
  fixed gate: {expect: {poisoned: 0, deferred: 1, ends: {a: [2002]}, vacuous: one request}}
"""

HEAD = """\
schema: stateat/1
name: small
engine:
  groups:
    - {name: gdn, kind: recurrent, block_size: 64}
workload:
  requests:
    - {id: a, prompt: [[1, 100]]}
"""


SINCE_30 = {"vllm-0.30.0", "vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0"}
SINCE_29 = {"vllm-0.29.0", *SINCE_30}
TO_31 = {*PRESETS} - {"vllm-0.32.0", "vllm-0.33.0"}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> Path:
        file = tmp_path / "s.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write


def refusal(file: Path) -> list[str]:
    """The lines of the message, without the folder."""
    with pytest.raises(InputError) as caught:
        load(file)
    return str(caught.value).replace(f"{file.parent}/", "").splitlines()


# -- what a good file becomes ------------------------------------------------------------------------------------


def test_the_example_of_a_fragmented_first_chunk(written: Any) -> None:
    scenario = load(written(FIRST))
    assert (scenario.schema, scenario.name, scenario.source, scenario.seed) == (
        "stateat/1", "fragmented-first-chunk", "vLLM PR 51113", 0,
    )  # fmt: skip
    old, fixed = runs(scenario)
    assert (old.variant, fixed.variant) == ("old gate", "fixed gate")
    assert (old.options.preset, fixed.options.preset) == ("vllm-0.26.0", "vllm-0.27.0")
    assert old.budgets == (364, 2002)
    assert old.options.groups[1].block_size == 1600 and old.options.groups[0].eagle
    assert old.options.speculative.accepted_drafts == (2, 0, 3)
    assert not old.options.partial_hits
    assert old.expect == {
        "poisoned": 1,
        "findings": [{"column": 0, "claimed": 1600, "held": 364}],
    }
    assert [(a.id, a.segments, a.max_tokens) for a in old.arrivals()] == [("a", ((1, 2002),), 1)]


def test_what_is_not_said_is_the_engine_s_default(written: Any) -> None:
    [run] = runs(load(written(HEAD)))
    assert run.options == Options(groups=run.options.groups)
    assert (run.truth.state, run.seed, run.budgets, run.case, run.expect) == ("digest", 0, (), "", None)


def test_without_variants_the_one_variant_is_named_after_its_preset(written: Any) -> None:
    [run] = runs(load(written(HEAD + "expect: {poisoned: 1}\n")))
    assert run.variant == run.options.preset == "vllm-0.27.0"
    assert run.expect == {"poisoned": 1}


def test_every_engine_key_arrives(written: Any) -> None:
    text = HEAD.replace(
        "engine:\n",
        """engine:
  preset: vllm-0.33.0
  rules: {grid: recurrent-group}
  num_blocks: 77
  num_state_blocks: 66
  group_times_to_live: {gdn: 5}
  group_retention_intervals: {gdn: 0}
  max_num_batched_tokens: 1000
  max_num_seqs: 5
  max_concurrent_batches: 3
  async_scheduling: true
  kv_consumer: true
  max_model_len: 3000
  long_prefill_token_threshold: 10
  enable_prefix_caching: false
  partial_hits: false
  decode_context_parallel_size: 2
  prefix_match_unit: 32
  cache_config_block_size: 48
  initial_block_size: 8
  watermark: 0.25
  scheduler_reserve_full_isl: false
  num_prefill_checkpoint_blocks: 1
  prefill_checkpoint_alignment: 16
  prefix_cache_retention_interval: 128
  shared_prefix_checkpoint: true
  encoder_cache_size: 200
  max_num_encoder_input_tokens: 300
  mamba_chunk_size: 128
  disable_chunked_mm_input: true
  speculative:
    method: mtp
    num_speculative_tokens: 2
    acceptance_rate: 0.5
    num_speculative_tokens_per_batch_size: [[1, 4, 2], [7, 9, 0]]
    proposed_drafts: [2, 0]
    draft_slots: 3
    multi_module: true
    block_drop: false
    hash_lookahead: false
  clock: steps
  costs: {base: 1, per_prefill_token: 2, per_decode_token: 0.5}
""",
    )
    [run] = runs(load(written(text)))
    options = run.options
    default = Options(groups=options.groups)
    # `slots` dataclasses: compare field by field, so that a forgotten one shows by name.
    same = [name for name in Options.__slots__ if getattr(options, name) == getattr(default, name)]
    # A tier needs prefix caching: tests/sim/cache/test_tier.py.
    assert same == ["groups", "offload"]
    drafting = options.speculative
    same = [name for name in type(drafting).__slots__ if getattr(drafting, name) == getattr(default.speculative, name)]
    assert same == ["accepted_drafts"]
    assert (options.watermark, options.prefix_match_unit, options.cache_config_block_size) == (0.25, 32, 48)
    assert (options.prefill_checkpoint_alignment, options.prefix_cache_retention_interval) == (16, 128)
    assert (drafting.acceptance_rate, drafting.draft_slots) == (0.5, 3)
    assert (options.costs.base, options.costs.per_prefill_token, options.costs.per_decode_token) == (1, 2.0, 0.5)


@pytest.mark.parametrize(
    ("key", "option", "having"),
    [
        ("num_prefill_checkpoint_blocks", "num_prefill_checkpoint_blocks: 1", SINCE_29),
        ("shared_prefix_checkpoint", "shared_prefix_checkpoint: true", SINCE_30),
        ("speculative.multi_module", "speculative: {method: mtp, multi_module: true}", SINCE_29),
        ("speculative.block_drop", "speculative: {block_drop: false}", SINCE_30),
        (
            "groups[0].mamba_cache_mode",
            "groups: [{name: m, kind: recurrent, block_size: 64, mamba_cache_mode: all}]",
            TO_31,
        ),
    ],
)
def test_an_option_is_refused_where_the_release_lacks_it(written: Any, key: str, option: str, having: set[str]) -> None:
    groups = "" if "groups" in option else "\n  groups: [{name: gdn, kind: recurrent, block_size: 64}]"
    for preset in PRESETS:
        text = re.sub(r"engine:\n.*\n.*", f"engine:\n  preset: {preset}\n  {option}{groups}", HEAD)
        file = written(text)
        if preset in having:
            assert load(file).expanded
        else:
            [line] = refusal(file)
            assert f": engine.{key}: found " in line
            assert f": {preset} has no such thing (rule " in line


# -- precedence --------------------------------------------------------------------------------------------------

LAYERED = (
    HEAD.replace("engine:\n", "engine:\n  rules: {grid: min-over-groups, publish: at-schedule}\n  num_blocks: 100\n")
    + """\
variants:
  plain: {}
  ruled: {rules: {grid: recurrent-group}, engine: {num_blocks: 200}}
cases:
  first: {workload: {budgets: [10]}}
  second: {preset: vllm-0.26.0, rules: {grid: cache-config}, engine: {max_num_seqs: 3}, workload: {budgets: [20]}}
"""
)


def test_variants_are_crossed_with_cases_and_the_later_wins(written: Any) -> None:
    made = {(r.variant, r.case): r for r in runs(load(written(LAYERED)))}
    assert list(made) == [("plain", "first"), ("plain", "second"), ("ruled", "first"), ("ruled", "second")]
    grids = {key: run.options.rules["grid"] for key, run in made.items()}
    assert grids == {
        ("plain", "first"): "min-over-groups",
        ("plain", "second"): "cache-config",
        ("ruled", "first"): "recurrent-group",
        ("ruled", "second"): "cache-config",
    }
    # Maps merge: what the later one does not mention stays.
    assert all(run.options.rules["publish"] == "at-schedule" for run in made.values())
    assert made["ruled", "second"].options.num_blocks == 200
    assert made["ruled", "second"].options.max_num_seqs == 3
    assert made["ruled", "second"].options.preset == "vllm-0.26.0"
    assert made["ruled", "first"].budgets == (10,)


def test_the_command_line_wins_over_all(written: Any) -> None:
    made = runs(load(written(LAYERED)), rules={"grid": "min-over-groups"}, truth={"state": "ring"})
    assert {run.options.rules["grid"] for run in made} == {"min-over-groups"}
    assert {run.truth.state for run in made} == {"ring"}


@pytest.mark.parametrize("name", ["I15", "I99", "I03", "J1"])
def test_an_invariant_that_does_not_exist_is_refused(written: Any, name: str) -> None:
    for wanted in (f"invariants: {{{name}: 0}}", f"findings: [{{invariant: {name}}}]"):
        assert any(
            f"found {name!r}, allowed I1, I2," in line for line in refusal(written(f"{HEAD}expect: {{{wanted}}}\n"))
        )


def test_only_some_variants(written: Any) -> None:
    scenario = load(written(LAYERED))
    assert {run.variant for run in runs(scenario, only=["ruled"])} == {"ruled"}
    with pytest.raises(InputError, match=r"found 'rulde', allowed plain, ruled \(did you mean ruled"):
        runs(scenario, only=["rulde"])


def test_wrong_names_on_the_command_line(written: Any) -> None:
    scenario = load(written(HEAD))
    with pytest.raises(InputError, match=r"--rule grid=recurrent-grup: .*recurrent-group"):
        runs(scenario, rules={"grid": "recurrent-grup"})
    with pytest.raises(InputError, match=r"--rule grd=x: .*grid"):
        runs(scenario, rules={"grd": "x"})
    with pytest.raises(InputError, match=r"--state: found 'digset', allowed digest"):
        runs(scenario, truth={"state": "digset"})


def test_a_rule_of_the_command_line_does_not_take_away_what_an_option_needs(written: Any) -> None:
    text = HEAD.replace("engine:\n", "engine:\n  preset: vllm-0.32.0\n  num_prefill_checkpoint_blocks: 1\n")
    assert runs(load(written(text)), rules={"skipped_states": "walks-gaps"})
    with pytest.raises(InputError, match=r"--rule: variant \S+: num_prefill_checkpoint_blocks: found 1, allowed 0"):
        runs(load(written(text)), rules={"checkpoint": "none"})


def test_a_plug_in_is_not_imported(written: Any) -> None:
    made = runs(load(written(HEAD)), rules={"split": "no_such_module:Split"})
    assert made[0].options.rules["split"] == "no_such_module:Split"


def test_lists_replace(written: Any) -> None:
    text = HEAD + "variants:\n  two: {workload: {requests: [{id: b, prompt: [[2, 5]]}]}}\n"
    [run] = runs(load(written(text)))
    assert [a.id for a in run.arrivals()] == ["b"]


def test_a_map_of_another_kind_replaces(written: Any) -> None:
    text = (
        HEAD.split("workload:")[0]
        + """\
workload:
  arrivals: {kind: poisson, rate: 5.0}
  count: 4
  prompt: {kind: fixed, length: 100}
variants:
  faster: {workload: {arrivals: {rate: 50.0}}}
  closed: {workload: {arrivals: {kind: closed-loop, clients: 2}}}
"""
    )
    faster, closed = runs(load(written(text)))
    assert faster.workload.arrivals.rate == 50.0
    assert closed.workload.arrivals.clients == 2


def test_a_variant_may_bring_the_workload(written: Any) -> None:
    head, workload = HEAD.split("workload:\n")
    text = head + "variants:\n  v:\n    workload:\n" + "\n".join(f"    {line}" for line in workload.splitlines())
    [run] = runs(load(written(text)))
    assert [a.id for a in run.arrivals()] == ["a"]


def test_a_short_form_and_its_long_form_are_not_both_given(written: Any) -> None:
    text = HEAD + "variants:\n  v: {preset: vllm-0.26.0, engine: {preset: vllm-0.27.0}}\n"
    assert refusal(written(text)) == [
        "s.yaml:10: variants.v.preset: found it here and in engine.preset, allowed in one place"
    ]


# -- expectations ------------------------------------------------------------------------------------------------


def test_cases_carry_expectations_and_a_variant_s_word_on_a_case_wins(written: Any) -> None:
    text = (
        HEAD
        + """\
variants:
  v: {expect: {steps: 9, cases: {one: {poisoned: 5}}}}
  w: {}
cases:
  one: {expect: {poisoned: 1, chunks: 2}}
  two: {}
"""
    )
    v1, v2, w1, w2 = runs(load(written(text)))
    assert v1.expect == v2.expect == {"steps": 9, "cases": {"one": {"poisoned": 5, "chunks": 2}}}
    assert w1.expect == w2.expect == {"cases": {"one": {"poisoned": 1, "chunks": 2}}}


@pytest.mark.parametrize("zero", ["0", "{max: 0}", "{min: 0, max: 0}"])
def test_clean_must_expect_hits(written: Any, zero: str) -> None:
    assert "proves nothing" in refusal(written(HEAD + f"expect: {{poisoned: {zero}}}\n"))[0]


@pytest.mark.parametrize(
    "more", ["hit_tokens: 64", "hit_tokens: {min: 1}", "resume_hit_tokens: 1", "hits: {a: 64}", "vacuous: because"]
)
def test_clean_with_hits_or_a_reason(written: Any, more: str) -> None:
    [run] = runs(load(written(HEAD + f"expect: {{poisoned: 0, {more}}}\n")))
    assert run.expect is not None and run.expect["poisoned"] == 0


@pytest.mark.parametrize("more", ["hit_tokens: 0", "hit_tokens: {max: 9}", "hits: {a: 0}", "hits: {a: {min: 0}}"])
def test_clean_with_no_positive_hit_is_refused(written: Any, more: str) -> None:
    assert "proves nothing" in refusal(written(HEAD + f"expect: {{poisoned: 0, {more}}}\n"))[0]


def test_a_hit_in_a_case_serves_the_whole_variant(written: Any) -> None:
    text = HEAD + "cases:\n  one: {expect: {hit_tokens: 64}}\n  two: {}\nexpect: {poisoned: 0}\n"
    assert len(runs(load(written(text)))) == 2


def test_clean_in_a_case_is_checked_at_its_line(written: Any) -> None:
    text = HEAD + "cases:\n  one: {}\n  two:\n    expect:\n      poisoned: 0\n"
    [line] = refusal(written(text))
    assert line.startswith("s.yaml:13: cases.two.expect.poisoned: found poisoned pinned to 0")


# -- messages ----------------------------------------------------------------------------------------------------


def test_every_problem_has_a_line(written: Any) -> None:
    text = HEAD.replace("name: small", "nmae: small").replace("block_size: 64", "block_size: 0")
    text += "expect: {poisoned: -1, findings: [{requst: a}]}\n"
    found = refusal(written(text))
    assert [line.split(": ")[:2] for line in found] == [
        ["s.yaml:1", "name"],
        ["s.yaml:2", "nmae"],
        ["s.yaml:5", "engine.groups[0].block_size"],
        ["s.yaml:9", "expect.poisoned"],
        ["s.yaml:9", "expect.findings[0].requst"],
    ]
    assert "did you mean name?" in found[1] and "did you mean request?" in found[4]


def test_an_error_of_the_file_is_told_once_and_not_for_each_variant(written: Any) -> None:
    text = HEAD.replace("block_size: 64", "block_size: 64, egale: true") + "variants: {v: {}, w: {}}\n"
    assert len(refusal(written(text))) == 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("1.0", "found 1.0, allowed a whole number"),
        ("yes", "found true (written yes, which YAML 1.1 reads so"),
        ("1e3", "write 1000"),
        ("'5'", "found the text '5', allowed a whole number"),
        ("1:30", "reads as 90 (base 60)"),
        ("010", "reads as 8 (octal)"),
        ("0x0", "found 0 (written 0x0), allowed at least 1"),
        ("~", "found nothing, allowed a whole number"),
        ("[1]", "found a list of 1, allowed a whole number"),
        ("{a: 1}", "found a mapping, allowed a whole number"),
        ("99999999999999999999999", "found a number of 77 bits, allowed 64"),
        ("!!int x", "found 'x' with the tag"),
        ("!thing x", "found 'x' with the tag '!thing'"),
        (".inf", "found inf"),
    ],
)
def test_what_yaml_made_of_a_value_is_said(written: Any, value: str, says: str) -> None:
    found = refusal(written(HEAD.replace("engine:\n", f"engine:\n  num_blocks: {value}\n")))
    assert len(found) == 1
    assert found[0].startswith("s.yaml:4: engine.num_blocks: ") and says in found[0]


def test_hexadecimal_is_a_number(written: Any) -> None:
    [run] = runs(load(written(HEAD.replace("engine:\n", "engine:\n  num_blocks: 0x40\n"))))
    assert run.options.num_blocks == 64


def test_names_are_read_as_written(written: Any) -> None:
    text = HEAD + "variants: {on: {}, 1600: {}, 1:30: {}, 0x10: {}}\n"
    assert [run.variant for run in runs(load(written(text)))] == ["on", "1600", "1:30", "0x10"]


def test_a_segment_is_a_pair(written: Any) -> None:
    assert refusal(written(HEAD.replace("[1, 100]", "[1]")))[0].endswith(
        "workload.requests[0].prompt[0]: found a list of 1, allowed 2 entries"
    )
    assert "found 3, allowed a list" in refusal(written(HEAD.replace("[1, 100]", "3")))[0]
    assert "allowed at most 2 entries" in refusal(written(HEAD.replace("[1, 100]", "[1, 2, 3]")))[0]
    assert "found true, allowed a whole number" in refusal(written(HEAD.replace("[1, 100]", "[1, true]")))[0]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ("{id: b, prompt: [[1, 0]]}", "[1].prompt: found an empty prompt of 'b', allowed at least one token"),
        (
            "{id: b, arrive: 5, abort: 4, prompt: [[1, 9]]}",
            "[1].abort: found 4, allowed no time before its arrival at 5",
        ),
        ("{id: b, accepted_drafts: [0, 1], prompt: [[1, 9]]}", "[1].accepted_drafts[1]: found 1, allowed 0 to 0"),
        ("{id: b, proposed_drafts: [0, 1], prompt: [[1, 9]]}", "[1].proposed_drafts[1]: found 1, allowed 0 to 0"),
        ("{id: b, proposed_drafts: [], prompt: [[1, 9]]}", "[1].proposed_drafts: found an empty list"),
        ("{id: b, external: 9, prompt: [[1, 9]]}", "[1].external: found 9, allowed less than the prompt's 9 tokens"),
        ("{id: b, max_tokens: 0, prompt: [[1, 9]]}", "[1].max_tokens: found 0, allowed at least 1"),
        ("{id: b, prompt: [[2147483648, 9]]}", "[1].prompt[0][0]: found 2147483648, allowed less than 2147483648"),
        ('{id: "", prompt: [[1, 9]]}', "[1].id: found '', allowed a name of printable characters"),
    ],
)
def test_what_a_request_may_not_say(written: Any, request_: str, says: str) -> None:
    [line] = refusal(written(HEAD + f"    - {request_}\n"))
    assert line.startswith(f"s.yaml:9: workload.requests{says}")


def test_a_request_may_end_as_it_arrives_and_use_all_its_room(written: Any) -> None:
    text = HEAD + "    - {id: b, arrive: 5, abort: 5, external: 8, accepted_drafts: [0], prompt: [[1, 9]]}\n"
    assert len(runs(load(written(text)))[0].arrivals()) == 2


@pytest.mark.parametrize(
    ("finding", "says"),
    [
        ("{group: gdm}", "group: found 'gdm', allowed gdn"),
        ("{request: b}", "request: found 'b', allowed a"),
        ("{severity: poisen}", "severity: found the text 'poisen', allowed poison, numerics"),
    ],
)
def test_a_finding_names_what_exists(written: Any, finding: str, says: str) -> None:
    [listed] = refusal(written(HEAD + f"expect: {{findings: [{finding}]}}\n"))
    assert listed.startswith(f"s.yaml:9: expect.findings[0].{says}")
    [among] = refusal(written(HEAD + f"expect: {{findings: {{contains: [{finding}]}}}}\n"))
    assert among.startswith(f"s.yaml:9: expect.findings.contains[0].{says}")


def test_text_that_is_expected_is_no_number(written: Any) -> None:
    # The advice on exponents is for numbers alone.
    assert "write" not in refusal(written(HEAD.replace("kind: recurrent", "kind: 1e5")))[0]
    assert "write" not in refusal(written(HEAD.replace("prompt: [[1, 100]]", "prompt: 1e5")))[0]


def test_merge_keys_and_anchors_keep_their_lines(written: Any) -> None:
    text = HEAD.replace(
        "- {name: gdn, kind: recurrent, block_size: 64}", "- &g {name: gdn, kind: recurrent, block_size: 64}"
    )
    text += "variants:\n  two: {engine: {groups: [*g, {<<: *g, name: other, block_size: 0}]}}\n"
    assert refusal(written(text)) == [
        "s.yaml:10: variants.two.engine.groups[1].block_size: found 0, allowed at least 1"
    ]
    fine = runs(load(written(text.replace("block_size: 0", "block_size: 64"))))
    assert [g.kind for g in fine[0].options.groups] == ["recurrent", "recurrent"]


def test_states_of_two_sizes_are_refused_unless_a_rule_takes_them(written: Any) -> None:
    text = HEAD.replace("- {name: gdn,", "- {name: other, kind: recurrent, block_size: 32}\n    - {name: gdn,")
    [said] = refusal(written(text))
    assert "found 64 in group 'gdn' beside 32 in 'other', allowed one block size" in said
    assert runs(load(written(text.replace("engine:\n", "engine:\n  rules: {state_blocks: any}\n", 1))))
    assert runs(load(written(text.replace("block_size: 32}", "block_size: 32, mamba_cache_mode: all}", 1))))


def test_a_long_list_of_problems_is_cut(written: Any) -> None:
    many = "".join(f"    - {{id: r{i}, prompt: [[1, -1]]}}\n" for i in range(80))
    found = refusal(written(HEAD + many))
    assert len(found) == 51 and found[-1] == "... and 30 more"


# -- files that are none -----------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml") == ["none.yaml: no such file"]


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "s.yaml: the file is empty"),
        (b"# nothing\n", "s.yaml: the file is empty"),
        (b"~\n", "s.yaml:1: found nothing, allowed a mapping"),
        (b"- a\n- b\n", "s.yaml:1: found a list of 2, allowed a mapping"),
        (b"hello\n", "s.yaml:1: found text, allowed a mapping"),
        (b"other: secret\n", "s.yaml:1: schema: allowed and required: stateat/1"),
        (b"schema: other/1\nkey: secret\n", "s.yaml:1: schema: allowed and required: stateat/1"),
        (b"name: a\n\xff\n", "s.yaml:2: not UTF-8: byte 0xff"),
        (b"a: [1\nb: 2\n", "s.yaml:2: not YAML"),
        (b"a: 1\n---\nb: 2\n", "not YAML: expected a single document"),
        (b"a: *b\n", "s.yaml:1: not YAML"),
        (b"a: \x01\n", "s.yaml:1: not YAML: the character"),
        (b'a: "\\UFFFFFFFF"\n', "not YAML"),
        (b"%YAML " + b"9" * 5000 + b".1\n---\na: 1\n", "not YAML"),
        (b'schema: stateat/1\na: "\\uD800"\n', "s.yaml:2: a: found an unpaired surrogate"),
        (b"[" * 100_000, "s.yaml: nested too deeply"),
        (b"a: " + b"[" * 60 + b"]" * 60, "s.yaml:1: nested too deeply, allowed 50 levels"),
        (b"{" * 100_000, "nested too deeply"),
        (b"schema: stateat/1\na: 0x" + b"f" * 5000, "found a number of 20000 bits"),
        (b"schema: stateat/1\n? [a]\n: b\n", "s.yaml:2: found a mapping or list as a key"),
        (b"x" * (4 * 2**20 + 1), "found more than 4194304 bytes"),
    ],
)
def test_not_a_scenario_at_all(written: Any, content: bytes, says: str) -> None:
    assert says in "\n".join(refusal(written(content)))


def test_a_byte_order_mark_is_no_matter(written: Any) -> None:
    assert load(written(b"\xef\xbb\xbf" + HEAD.encode())).name == "small"


# -- warnings ----------------------------------------------------------------------------------------------------


def test_what_0_26_refuses_is_a_warning_and_only_there(written: Any) -> None:
    text = FIRST.replace(
        "max_num_batched_tokens: 8192", "max_num_batched_tokens: 1500\n  long_prefill_token_threshold: 800"
    )
    text = text.replace("budgets: [364, 2002]", "budgets: [364]")
    old, fixed = runs(load(written(text)))
    assert [w.split(": ")[0] for w in warned([old])] == ["old gate", "old gate"]
    assert "above max_num_batched_tokens" in warned([old])[0] and "threshold (800) below" in warned([old])[1]
    assert warned([fixed]) == []


def test_a_trace_under_steps_without_a_scale_is_a_warning(written: Any) -> None:
    text = HEAD.split("workload:")[0] + "  clock: steps\nworkload: {trace: {format: azure, path: x.csv}}\n"
    [run] = runs(load(written(text)))
    assert "time_scale" in warned([run])[0]
    [scaled] = runs(load(written(text.replace("x.csv", "x.csv, time_scale: 0.001"))))
    assert warned([scaled]) == []


# -- the JSON Schema ---------------------------------------------------------------------------------------------


def test_json_schema_describes_every_key() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert schema["$schema"].startswith("https://json-schema.org/") and schema["title"].startswith("stateat")
    assert schema["required"] == ["schema", "name"]
    assert all("description" in part for part in schema["properties"].values())
    for name, part in schema["$defs"].items():
        for key, value in part.get("properties", {}).items():
            assert key == "kind" or "description" in value, (name, key)


def test_json_schema_references_exist_and_overrides_require_nothing() -> None:
    schema = json_schema()
    names = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert names <= set(schema["$defs"])
    partial = [part for name, part in schema["$defs"].items() if name.startswith("Partial")]
    assert partial and not any("required" in part for part in partial)
    engine = schema["$defs"]["Override"]["properties"]["engine"]
    assert "num_blocks" in json.dumps(engine) and '"required"' not in json.dumps(engine)
    assert schema["$defs"]["GroupOptions"]["required"] == ["name", "kind", "block_size"]


# -- laws --------------------------------------------------------------------------------------------------------

EXAMPLE = yaml.safe_load(FIRST)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["poisson", "multi-turn", "kind", "groups", "vllm-0.26.0", "a", "mtp"]),
)
TREES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def loads_or_is_refused(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        scenario = load(file)
    except InputError as error:
        assert str(error).startswith(str(file))
    else:
        assert runs(scenario)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "s.yaml"


@given(st.text())
@settings(max_examples=150)
def test_any_text_loads_or_is_refused(scratch: Path, text: str) -> None:
    loads_or_is_refused(scratch, text)


@given(st.text(alphabet="[]{}:,-?&*!|>'\"%@#<~ \n\tab01.", max_size=80))
@settings(max_examples=300)
def test_any_yaml_like_text_loads_or_is_refused(scratch: Path, text: str) -> None:
    loads_or_is_refused(scratch, text)


@given(st.integers(0, len(FIRST)), st.integers(0, 12), st.text(alphabet="[]{}:,-?&*!|>'\"%@# \n\t0aé", max_size=4))
@settings(max_examples=200)
def test_a_damaged_file_loads_or_is_refused(scratch: Path, at: int, gone: int, put: str) -> None:
    loads_or_is_refused(scratch, FIRST[:at] + put + FIRST[at + gone :])


def places(tree: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [way, *(place for key, value in below for place in places(value, (*way, key)))]


@given(st.sampled_from([p for p in places(EXAMPLE) if p]), TREES)
@settings(max_examples=300)
def test_a_file_with_a_strange_value_loads_or_is_refused(scratch: Path, place: tuple[Any, ...], value: Any) -> None:
    tree = copy.deepcopy(EXAMPLE)
    parent = tree
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    loads_or_is_refused(scratch, yaml.safe_dump(tree, allow_unicode=True))


@given(st.sampled_from([p for p in places(EXAMPLE) if p]))
def test_a_file_without_a_value_loads_or_is_refused(scratch: Path, place: tuple[Any, ...]) -> None:
    tree = copy.deepcopy(EXAMPLE)
    parent = tree
    for key in place[:-1]:
        parent = parent[key]
    del parent[place[-1]]
    loads_or_is_refused(scratch, yaml.safe_dump(tree))


def test_loading_twice_gives_equal_runs(written: Any) -> None:
    file = written(FIRST)
    first: list[Run] = runs(load(file))
    assert first == runs(load(file))


# What is wrong because of a variant or a case names it.

BLAMED = """\
schema: stateat/1
name: blamed
engine:
  groups: [{name: gdn, kind: recurrent, block_size: 64}]
  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [3]}
workload:
  requests: [{id: a, prompt: [[1, 200]]}]
variants:
  drafter on: {}
  drafter off: {engine: {speculative: {method: ngram, num_speculative_tokens: 0}}}
"""


def refused(written: Any, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(written(text))
    return [line.partition(":")[2] for line in str(caught.value).splitlines()]


def test_what_only_a_variant_makes_wrong_names_it_and_both_lines(written: Any) -> None:
    where = "variants.drafter off: engine.speculative.accepted_drafts[0] (line 5)"
    assert refused(written, BLAMED) == [f"10: {where}: found 3, allowed 0 to 0 (num_speculative_tokens)"]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("proposed_drafts: [3, 4]", "proposed_drafts[1]: found 4, allowed 0 to 3 (num_speculative_tokens)"),
        ("num_speculative_tokens_per_batch_size: [[2, 3, 1]]", "[0][0]: found 2, allowed 1 for the first range"),
        ("num_speculative_tokens_per_batch_size: [[1, 4, 3], [4, 9, 1]]", "[1][0]: found 4, allowed more than 4"),
        ("num_speculative_tokens_per_batch_size: [[3, 4, 3], [1, 3, 1]]", "[0][0]: found 3, allowed more than 3"),
        ("num_speculative_tokens_per_batch_size: [[1, 4, 3], [7, 6, 1]]", "[1][1]: found 6, allowed 7"),
        ("num_speculative_tokens_per_batch_size: [[1, 4, 4]]", "[0][2]: found 4, allowed 0 to 3"),
        ("num_speculative_tokens_per_batch_size: [[1, 4]]", "[0]"),
        ("num_speculative_tokens_per_batch_size: []", "num_speculative_tokens_per_batch_size: found an empty list"),
        ("method: suffix, num_speculative_tokens_per_batch_size: [[1, 4, 3]]", "allowed none with method suffix"),
    ],
)
def test_proposals_that_cannot_be(written: Any, found: str, says: str) -> None:
    text = BLAMED[: BLAMED.index("variants")].replace("method: mtp, ", "" if "method" in found else "method: mtp, ")
    [line] = refused(written, text.replace("accepted_drafts: [3]", found))
    assert says in line


def test_ranges_without_drafts_are_refused(written: Any) -> None:
    text = BLAMED[: BLAMED.index("variants")].replace(
        "num_speculative_tokens: 3, accepted_drafts: [3]", "num_speculative_tokens_per_batch_size: [[1, 4, 0]]"
    )
    [line] = refused(written, text)
    assert "found ranges, allowed none without drafts (num_speculative_tokens)" in line


def test_what_the_base_itself_has_wrong_is_told_once_and_names_nobody(written: Any) -> None:
    wrong = BLAMED.replace("[3]", "[4]").replace("drafter off: {engine", "other: {}\n  drafter off: {engine")
    found = refused(written, wrong)
    assert found[0] == "5: engine.speculative.accepted_drafts[0]: found 4, allowed 0 to 3 (num_speculative_tokens)"
    assert [line.split(": ")[1] for line in refused(written, wrong)] == [
        "engine.speculative.accepted_drafts[0]",
        "variants.drafter off",
    ]


def test_a_case_is_named_alone_or_beside_the_variant_that_it_does_not_go_with(written: Any) -> None:
    off = "{engine: {speculative: {num_speculative_tokens: 0}}}"
    case = BLAMED[: BLAMED.index("variants")] + f"cases:\n  off: {off}\n"
    assert refused(written, case)[0].startswith("9: cases.off: engine.speculative.accepted_drafts[0] (line 5): found 3")
    drafts = "{engine: {speculative: {accepted_drafts: [2]}}}"
    both = BLAMED.replace("[3]", "[0]") + f"cases:\n  two: {drafts}\n"
    where = "variants.drafter off: cases.two.engine.speculative.accepted_drafts[0] (line 12)"
    assert refused(written, both) == [f"10: {where}: found 2, allowed 0 to 0 (num_speculative_tokens)"]


def test_the_models_own_checks_and_expectations_name_the_variant_too(written: Any) -> None:
    group = "{engine: {groups: [{name: kda, kind: recurrent, block_size: 64}]}}"
    text = BLAMED[: BLAMED.index("variants")] + f"variants:\n  one: {{}}\n  two: {group}\n"
    text += "cases:\n  all: {expect: {poisoned: 1, findings: [{invariant: I1, group: gdn}]}}\n"
    where = "variants.two: cases.all.expect.findings[0].group (line 12)"
    assert refused(written, text) == [f"10: {where}: found 'gdn', allowed kda"]
    generated = BLAMED.replace(
        "{method: ngram, num_speculative_tokens: 0}}}", "{method: mtp}}, workload: {budgets: [-1]}}"
    )
    assert refused(written, generated)[0].startswith("10: variants.drafter off.workload.budgets[0]: ")
    source = BLAMED.replace("drafter off: {engine", "drafter off: {workload: {count: 3}, engine")
    assert any(line.startswith("10: variants.drafter off: workload (line 6): ") for line in refused(written, source))


def test_a_prompt_that_a_variant_has_no_room_for_names_it(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "prompt": [[1, 200]]}\n')
    text = BLAMED.replace("requests: [{id: a, prompt: [[1, 200]]}]", "trace: {format: jsonl, path: t.jsonl}")
    text = text.replace("[3]", "[0]").replace("drafter off: {engine: {", "drafter off: {engine: {max_model_len: 100, ")
    file = tmp_path / "s.yaml"
    file.write_text(text)
    on, off = load(file).expanded
    on.arrivals()
    with pytest.raises(InputError, match=r"\(variant drafter off\)"):
        off.arrivals()
