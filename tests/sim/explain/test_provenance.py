"""What led to a finding, collected from a second run: against what the oracle says of the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateat.sim.events import Finding
from stateat.sim.explain.drift import drift
from stateat.sim.explain.explanation import Coverage, Piece, Reader, Story, roots
from stateat.sim.explain.provenance import Chronicle, explain
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run, load, runs

ROOT = Path(__file__).resolve().parents[3]
S02 = "scenarios/seeds/s02-anatomy.yaml"
FILES = (
    S02,
    "scenarios/seeds/s01-pr51113-cases.yaml",
    "scenarios/seeds/s03-resume-mid-block.yaml",
    "scenarios/field/external-tokens-inside-a-block.yaml",
    "scenarios/field/drafts-wider-than-a-block.yaml",
    "scenarios/field/padded-clipped.yaml",
    "scenarios/field/padded-one-token-prompt.yaml",
    "scenarios/field/aborted-writer.yaml",
    "scenarios/field/freed-while-in-flight.yaml",
    "scenarios/field/copies-ahead-of-steps-in-flight.yaml",
    "scenarios/field/retired-ahead-of-steps-in-flight.yaml",
    "scenarios/field/kernel-chunk-that-does-not-divide-the-block.yaml",
    "scenarios/field/chunk-grid-of-the-flattened-batch.yaml",
    "scenarios/field/drafts-in-all-mode.yaml",
    "scenarios/field/offload-exact-multiple-in-align-mode.yaml",
    "scenarios/field/connector-stores-speculative-scratch.yaml",
    "docs/examples/forgetful-worker.yaml",
    "docs/examples/same-step-hit.yaml",
)


def told(file: str, variant: str = "", every: bool = False) -> list[tuple[Run, Story]]:
    """The stories of a file's roots, or of all its poison findings."""
    found = []
    for run in runs(load(ROOT / file), only=[variant] if variant else []):
        outcome = simulate(run)
        chosen = [f for f in outcome.findings if f.severity == "poison"] if every else roots(outcome.findings)
        found += [(run, story) for story in explain(run, outcome, chosen)]
    return found


@pytest.fixture(scope="module")
def anatomy() -> Story:
    ((_, story),) = told(S02, "old gate")
    return story


def test_the_write_the_claim_and_the_readers_of_s2(anatomy: Story) -> None:
    assert anatomy.chunk is not None and anatomy.claim is not None and anatomy.claim.chunk is not None
    wrote = anatomy.chunk
    assert (wrote.request, wrote.step, wrote.start, wrote.end) == ("a", 0, 0, 364)
    assert (wrote.stop, wrote.budget, wrote.others) == ("budget", 364, 0)
    assert (anatomy.claim.request, anatomy.claim.step, anatomy.claim.offset) == ("a", 1, 1600)
    assert (anatomy.claim.chunk.start, anatomy.claim.chunk.end) == (364, 2002)
    assert anatomy.held == (Piece("a", 0, 364),)
    assert anatomy.coverage == Coverage(missing=((364, 1600),))
    assert anatomy.readers == (Reader("b", 3, 3, 1600, 2002), Reader("c", 6, 6, 1600, 2402))
    assert anatomy.downstream == 0
    assert anatomy.prompts == {"a": 2002, "b": 2002, "c": 2402}


def test_the_reader_with_the_shortest_prompt_is_continued(anatomy: Story) -> None:
    subject = anatomy.subject
    assert subject is not None
    assert (subject.request, subject.hypothetical, subject.prompt.size, subject.offset) == ("b", False, 2002, 1600)
    ((ids, start),) = subject.held
    assert start == 0 and ids.tolist() == subject.prompt[:364].tolist()


def test_others_of_the_step_are_counted() -> None:
    (_, story), *_ = told("scenarios/seeds/s05-concurrency.yaml", "8 clients")
    assert story.chunk is not None
    assert (story.chunk.budget, story.chunk.others, story.chunk.end - story.chunk.start) == (8192, 8000, 192)
    assert story.downstream == 8


QUIET = """\
schema: stateat/1
name: quiet
engine:
  preset: vllm-0.26.0
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
    - {name: gdn, kind: recurrent, block_size: 128, eagle: true}
  SPECULATIVE
  max_num_batched_tokens: 512
  clock: steps
  rules: {admission: piecemeal}
workload:
  requests:
    - {id: quiet, prompt: [[1, 129]], max_tokens: 40}
    - {id: a, prompt: [[2, LENGTH]], max_tokens: 9, arrive: 9, external: 53}
"""


@pytest.mark.parametrize(("drafts", "length"), [(0, 64), (3, 200)])
def test_others_that_decode_quietly_meanwhile_are_counted_too(tmp_path: Path, drafts: int, length: int) -> None:
    file = tmp_path / "quiet.yaml"
    drafter = f"speculative: {{method: mtp, num_speculative_tokens: {drafts}}}" if drafts else ""
    file.write_text(QUIET.replace("SPECULATIVE", drafter).replace("LENGTH", str(length)))
    (run,) = runs(load(file))
    outcome = simulate(run)
    by_step = Chronicle(roots(outcome.findings))
    simulate(run, [by_step], fast_forward=False)
    found = explain(run, outcome, roots(outcome.findings))
    assert found == by_step.stories(outcome.findings)
    chunks = [c for story in found for c in (story.chunk, story.claim and story.claim.chunk) if c is not None]
    assert {chunk.others for chunk in chunks} == {1 + drafts}


@pytest.mark.parametrize("file", FILES)
def test_what_was_absorbed_is_what_the_oracle_found(file: str) -> None:
    """The pieces against the verdict, which comes from fingerprints and not from pieces."""
    seen = 0
    for _, story in told(file, every=True):
        finding, held = story.finding, story.held
        if finding.verdict == "wrong offset":
            assert held is not None and finding.held is not None and finding.claimed is not None
            assert story.coverage.foreign == 0 and story.coverage.twice == ()
            assert sum(p.end - p.start for p in held) == finding.held
            few, many = sorted((finding.held, finding.claimed))
            span = ((few, many),)
            assert (story.coverage.missing or story.coverage.ahead) == span
            assert bool(story.coverage.missing) == (finding.held < finding.claimed)
        elif finding.verdict in ("never written", "unknown"):
            assert held is None
        elif finding.verdict == "tainted":
            assert held is not None
            assert sum(p.end - p.start + len(p.drafts) for p in held) == finding.held
            assert story.coverage != Coverage()
        elif finding.verdict == "foreign":
            assert held is not None and {p.request for p in held} != {finding.request}
            assert story.coverage.foreign == finding.held
        else:
            assert finding.invariant == "I6" and held is None
        assert {r.request for r in story.readers} == set(finding.readers)
        seen += 1
    assert seen


def test_a_finding_of_another_step_is_told_otherwise() -> None:
    """Negative control: what a slot holds is looked at in the finding's step, not at the end of the run."""
    (run, story), *_ = told("scenarios/field/external-tokens-inside-a-block.yaml", "when given a block")
    outcome = simulate(run)
    from dataclasses import replace

    (early,) = explain(run, outcome, [replace(story.finding, step=0)])
    assert story.held == (Piece("a", 0, 1000),)
    assert early.held == (Piece("a", 0, 992),)


def test_a_state_that_a_connector_brought_has_no_chunk() -> None:
    ((_, story),) = told("scenarios/seeds/s03-resume-mid-block.yaml", "old gate")
    assert story.chunk is None
    assert story.loaded == 0
    assert story.held == (Piece("a", 0, 2531),)


def test_without_readers_the_request_itself_comes_again() -> None:
    for _, story in told("scenarios/seeds/s01-pr51113-cases.yaml", "old gate"):
        subject = story.subject
        assert not story.readers and subject is not None
        assert subject.hypothetical and subject.request == story.finding.request
        assert subject.offset == story.finding.claimed and subject.prompt.size > subject.offset


def test_a_request_that_reads_what_nobody_claimed_is_continued_itself() -> None:
    ((_, story),) = told("docs/examples/forgetful-worker.yaml", "worker v1")
    assert story.finding.invariant == "I12"
    assert story.subject is not None and not story.subject.hypothetical
    assert story.subject.request == "c" and story.claim is None
    found = drift(story.subject, 4)
    assert found is not None and found.offset == 36 and max(found.approach[0][1]) > 0.01


def test_a_prompt_that_is_too_long_has_no_drift(anatomy: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateat.sim.explain.drift.LONGEST_DRIFT", 2001)
    assert anatomy.subject is not None
    assert drift(anatomy.subject, 1) is None


def test_it_is_the_same_again(anatomy: Story) -> None:
    assert told(S02, "old gate")[0][1] == anatomy


def test_read_claims_come_before_unread_ones_and_those_before_the_rest() -> None:
    def finding(id: int, invariant: str, readers: tuple[str, ...], root: int | None = None) -> Finding:
        severity = "shape" if invariant == "I2" else "poison"
        return Finding(id, invariant, severity, id, id, "a", "gdn", 0, 1, 2, 1, "", root, readers, "")

    findings = [
        finding(0, "I2", ()),
        finding(1, "I10", ()),
        finding(2, "I1", ()),
        finding(3, "I1", ("b",), root=2),
        finding(4, "I1", ("b",)),
        finding(5, "I1", ("c",)),
    ]
    assert [f.id for f in roots(findings)] == [4, 5, 2, 1]


def test_what_a_tier_brings_back_is_what_was_stored_there() -> None:
    ((_, story),) = told("scenarios/seeds/s17-offload-all-mode.yaml", "before")
    assert (story.finding.claimed, story.finding.held, story.loaded) == (2815, 2816, 4)
    assert story.held is not None and [(p.request, p.end) for p in story.held] == [("a", 2816)]
    assert story.chunk is not None and (story.chunk.request, story.chunk.end) == ("a", 2816)
