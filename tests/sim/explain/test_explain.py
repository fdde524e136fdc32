"""`stateat explain`: exit codes, what goes where, and one message for each bad usage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stateat.sim.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
S02 = str(ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml")
S01 = str(ROOT / "scenarios" / "seeds" / "s01-pr51113-cases.yaml")

SMALL = """\
schema: stateat/1
name: small
engine:
  preset: vllm-0.26.0
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16, eagle: true}
    - {name: gdn, kind: recurrent, block_size: 64}
  speculative: {method: mtp, num_speculative_tokens: 3}
  clock: steps
workload:
  budgets: [20, 100]
  requests:
    - {id: a, prompt: [[1, 100]]}
"""
"""One claim, state@64, of a slot that holds state@20; nobody reads it."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # The command line adds the current folder, for plug-ins.
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def run(*args: str) -> Result:
    result = CliRunner().invoke(main, ["explain", *args], prog_name="stateat", env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_the_chain_of_s2_is_told() -> None:
    result = run(S02)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for part in (
        "old gate: 1 root",
        "gdn column 0 (slot 24, request a) is hashed as state@1600 but holds state@364",
        "step 0: a's chunk [0, 364) of 2,002 prompt tokens, ended by `budget`: the step had 364 tokens",
        "364 is no multiple of the block, 1,600",
        "step 1: a's chunk [364, 2002) ran past 1,600 without stopping there; the cache hashed slot 24 as state@1600",
        "it has absorbed [0, 364) of a: [364, 1600) is missing, 1,236 of 1,600 tokens (77%)",
        "b (step 3), c (step 6) started at 1,600 from it, and never saw [364, 1600)",
        "no other finding follows from it",
        "fixed gate: no poison finding",
        "fixed gate: 1 request hit nothing although an earlier request begins alike",
        "b (step 3) shares 2,000 tokens with a: no boundary of gdn in it was ever published (1 of 1 null);",
        "hit under drafter_drop=look-ahead-hash (vllm-0.33.0): 1,600",
    ):
        assert part in words
    assert "drift" not in words
    assert "old gate: following its findings" in result.stderr


def test_without_a_poison_finding_it_says_so(here: Path) -> None:
    (here / "clean.yaml").write_text(SMALL.replace("vllm-0.26.0", "vllm-0.27.0"))
    result = run("clean.yaml")
    assert result.exit_code == 0
    assert result.stdout == "vllm-0.27.0: no poison finding; nothing to explain\n"


def test_a_variant_whose_only_trouble_is_that_nothing_is_hit_is_told_why() -> None:
    result = run(S02, "--variant", "fixed gate", "--no-remedy", "--json", "-")
    assert "hit under" not in result.stderr and "shares 2,000 tokens with a" in result.stderr
    tree = json.loads(result.stdout)
    (miss,) = tree["misses"]
    assert tree["findings"] == [] and miss["hit_under"] is None
    assert (miss["request"], miss["earlier"], miss["shared"]) == ("b", "a", 2000)
    assert [(had["group"], had["null"], had["left"]) for had in miss["groups"]] == [
        ("attention", 0, 1600),
        ("gdn", 1, 0),
    ]
    searched = json.loads(run(S02, "--variant", "fixed gate", "--json", "-").stdout)["misses"][0]["hit_under"]
    assert {
        "rule": "drafter_drop",
        "value": "look-ahead-hash",
        "releases": "vllm-0.33.0",
        "hit": 1600,
    } in searched


def test_as_many_misses_as_asked_for(here: Path) -> None:
    """Prompts sent twice that end no chunk at their only boundary."""
    ids = [(f"{name}{i}", i) for i in range(4) for name in "ab"]
    requests = "".join(
        f"    - {{id: {name}, {f'after: a{i}, ' if name[0] == 'b' else ''}prompt: [[{i}, 128]]}}\n" for name, i in ids
    )
    plain = SMALL[: SMALL.index("  speculative")] + "  clock: steps\nworkload:\n  requests:\n"
    (here / "many.yaml").write_text(plain + requests)
    result = run("many.yaml", "--findings", "2", "--no-remedy")
    assert "4 requests hit nothing although an earlier request begins alike" in result.stdout
    assert result.stdout.count("shares 128 tokens with a") == 2
    assert result.stdout.endswith("  … and 2 more\n")


def test_as_many_findings_as_asked_for_over_all_cases() -> None:
    result = run(S01, "--variant", "old gate", "--findings", "2")
    assert result.exit_code == 0
    assert "old gate: 14 roots in 20 cases, 2 of them below; more with --findings 14" in result.stdout
    assert result.stdout.count("is hashed as") == 2


def test_a_drift_is_told_and_drawn(here: Path) -> None:
    result = run("small.yaml", "--drift", "--tokens", "6", "--plot", "drift.png")
    assert result.exit_code == 0
    assert "drift: a request that sends a's prompt again, restored at 64 of 100 prompt tokens" in result.stdout
    assert "after 6 more" in result.stdout
    assert "on the same text greedy decoding picks another token" in result.stdout
    assert (here / "drift.png").read_bytes().startswith(b"\x89PNG")
    assert "drift: a, 100 prompt tokens" in result.stderr


def test_without_a_drift_no_picture_is_written(here: Path) -> None:
    result = run(S02, "--variant", "fixed gate", "--drift", "--plot", "drift.png")
    assert result.exit_code == 0
    assert "nothing to draw" in result.stderr
    assert not (here / "drift.png").exists()


def test_a_prompt_that_is_too_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateat.sim.explain.drift.LONGEST_DRIFT", 99)
    result = run("small.yaml", "--drift")
    assert result.exit_code == 0
    assert "drift: not computed: a has 100 prompt tokens, the model here reads at most 99" in result.stdout


def test_json_goes_to_stdout_alone() -> None:
    result = run("small.yaml", "--drift", "--tokens", "3", "--json", "-")
    assert result.exit_code == 0
    tree = json.loads(result.stdout)
    assert "is hashed as state@64" in result.stderr
    (told,) = tree["findings"]
    assert (told["variant"], told["finding"]["claimed"], told["finding"]["held"]) == ("vllm-0.26.0", 64, 20)
    assert told["held"] == [{"request": "a", "start": 0, "end": 20, "wrong_drafts": []}]
    assert told["missing"] == [[20, 64]]
    assert (told["chunk"]["stop"], told["chunk"]["budget"]) == ("budget", 20)
    assert told["claim"]["chunk"]["end"] == 100
    drifted = told["drift"]
    assert drifted["hypothetical"] and (drifted["offset"], drifted["prompt"]) == (64, 100)
    assert len(drifted["tokens"]) == len(drifted["true_text"]) == 3
    assert all(token["logit_distance"] > 0 for token in drifted["tokens"])


def test_a_wrong_read_is_read_by_its_request_in_text_and_json() -> None:
    result = run(str(ROOT / "docs" / "examples" / "forgetful-worker.yaml"), "--no-remedy", "--json", "-")
    (told,) = json.loads(result.stdout)["findings"]
    assert told["finding"]["invariant"] == "I12"
    assert "readers  c itself goes on from it" in result.stderr
    assert [(r["request"], r["step"], r["offset"]) for r in told["readers"]] == [("c", told["finding"]["step"], 36)]
    # A claim that nobody read has none.
    (unread,) = json.loads(run("small.yaml", "--no-remedy", "--json", "-").stdout)["findings"]
    assert unread["finding"]["invariant"] == "I1" and unread["readers"] == []


def test_a_read_of_the_null_block_is_told_as_such() -> None:
    file = str(ROOT / "scenarios" / "field" / "accepted-count-out-of-range.yaml")
    words = " ".join(run(file, "--variant", "one too many", "--no-remedy").stdout.split())
    assert "from gdn slot 0, the null block, which holds a zero state: state@24 belongs in column 0" in words
    assert "write nobody ever wrote this slot: it is the null block, what a column without a slot names" in words
    assert "really a zero state: no token at all" in words


def test_a_copy_is_told_in_words() -> None:
    file = str(ROOT / "docs" / "examples" / "forgetful-worker.yaml")
    result = run(file, "--no-remedy")
    assert not [kind for kind in ("(pre,", "(post,", "(cow,") if kind in result.stdout]


def test_json_without_a_drift_has_none(here: Path) -> None:
    assert run("small.yaml", "--json", "told.json").exit_code == 0
    (told,) = json.loads((here / "told.json").read_text())["findings"]
    assert told["drift"] is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("missing.yaml",), "missing.yaml: no such file"),
        ((S02, "--variant", "nobody"), "found 'nobody', allowed old gate, fixed gate"),
        ((S02, "--plot", "a.png"), "--plot draws the drift: found no --drift"),
        ((S02, "--drift", "--plot", "a.gif"), "found '.gif', allowed: .png, .svg, .pdf"),
        ((S02, "--drift", "--plot", "no/a.png"), "there is no folder no"),
        ((S02, "--json", S02), "that is the input"),
        ((S02, "--drift", "--plot", "-"), "only --json writes to standard output"),
        ((S02, "--tokens", "0"), "0 is not in the range"),
        ((S02, "--findings", "0"), "0 is not in the range"),
        ((), "Missing argument 'FILE'"),
    ],
)
def test_bad_usage(here: Path, args: Sequence[str], said: str) -> None:
    before = set(here.iterdir())
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert set(here.iterdir()) == before


def test_a_real_process_prints_the_same_bytes_under_every_hash_seed(here: Path) -> None:
    printed = set()
    for seed in ("1", "2"):
        child = subprocess.run(
            [
                sys.executable,
                "-c",
                "from stateat.sim.cli.main import main; main()",
                "explain",
                "small.yaml",
                "--drift",
                "--json",
                "-",
            ],
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        )
        assert b"Traceback" not in child.stderr
        printed.add(child.stdout)
    assert len(printed) == 1
