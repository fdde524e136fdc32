"""The table of a result at a terminal and in a pipe."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from stateat.sim.report.terminal.table import (
    poisoned_text,
    print_result,
)
from stateat.sim.run.result import Failure, Result

FINDING = "I1 poison  step 1  gdn column 0 (slot 17, request a) is hashed as state@1600 but holds state@364"


def printed(result: Result, width: int = 80, verbose: bool = False) -> str:
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=width), verbose)
    return stream.getvalue()


def row(text: str, label: str) -> list[str]:
    """The cells of a row, which are two or more blanks apart."""
    line = next(line for line in text.splitlines() if line.startswith(label))
    return [cell for cell in line[len(label) :].split("  ") if cell.strip()]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_finding_is_one_whole_line_at_any_width(told: SimpleNamespace, width: int) -> None:
    assert f"  {FINDING}\n" in printed(told.result(), width)


def test_a_pipe_gets_no_escape_codes_and_a_terminal_does(told: SimpleNamespace) -> None:
    assert "\x1b" not in printed(told.result())
    stream = io.StringIO()
    print_result(told.result(), Console(file=stream, force_terminal=True, color_system="standard", width=80), False)
    assert "\x1b[" in stream.getvalue()


def test_the_table_fits_the_width_by_putting_variants_below_each_other(told: SimpleNamespace) -> None:
    names = [f"variant number {i}" for i in range(7)]
    text = printed(told.result(**{name: told.clean(name) for name in names}))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(name in text for name in names)
    assert text.count("hit rate") > 1


def test_one_long_name_does_not_break_the_width(told: SimpleNamespace) -> None:
    text = printed(told.result(x=told.clean("n" * 200)))
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_comparison_says_what_the_outcomes_say(told: SimpleNamespace) -> None:
    text = printed(told.result())
    assert [cell.strip() for cell in row(text, "preset")] == ["vllm-0.26.0", "vllm-0.27.0"]
    assert [cell.strip() for cell in row(text, "poisoned")] == ["1 (1 root)", "0"]
    assert [cell.strip() for cell in row(text, "hit rate")] == ["40.0 %", "0.0 %"]
    assert [cell.strip() for cell in row(text, "requests on a wrong state")] == ["1 (50.0 %)", "0"]
    assert [cell.strip() for cell in row(text, "deferred")] == ["0", "1"]
    assert [cell.strip() for cell in row(text, "TTFT p95 (steps)")] == ["2", "2"]


def test_first_token_times_are_milliseconds_under_a_clock_of_microseconds(told: SimpleNamespace) -> None:
    outcome = told.outcome(ttft_us={"p50": 12_345.0, "p95": 2_000_000.0})
    text = printed(Result("s", "", "", "", "us", {"v": outcome}))
    assert row(text, "TTFT p50 (ms)")[0].strip() == "12.3"
    assert row(text, "TTFT p95 (ms)")[0].strip() == "2,000.0"
    assert row(text, "TTFT p99 (ms)")[0].strip() == "-"


def test_nothing_is_divided_by_nothing(told: SimpleNamespace) -> None:
    text = printed(told.result(x=told.clean(requests=0, finished=0, prompt_tokens=0)))
    assert row(text, "hit rate")[0].strip() == "-"


def test_poisoned_is_never_without_its_roots(told: SimpleNamespace) -> None:
    assert poisoned_text(told.outcome(poisoned=3)) == "3 (1 root)"
    assert poisoned_text(told.outcome(poisoned=3000, poisoned_roots=2)) == "3,000 (2 roots)"


def test_hits_and_ends_are_written_as_a_file_expects_them(told: SimpleNamespace) -> None:
    outcome = told.outcome(hits={"b": 2112}, ends={"b": (3000,)}, loads={"b": 1408})
    assert "  b: hit 2112, loaded 1408, ends 3000\n" in printed(told.result(x=outcome), verbose=True)


def test_many_findings_are_summarised_and_all_shown_when_verbose(told: SimpleNamespace) -> None:
    findings = (*(told.finding(i, slot=i) for i in range(12)), told.finding(12, verdict="tainted", root=0))
    result = told.result(x=told.outcome(findings=findings))
    assert printed(result).count(FINDING) == 10
    assert "… and 3 more; in all: I1 tainted 1, I1 wrong offset 12" in printed(result)
    assert printed(result, verbose=True).count(FINDING) == 13


def test_a_cause_carries_the_number_by_which_its_consequence_names_it(told: SimpleNamespace) -> None:
    findings = (told.finding(7), told.finding(8, root=7, message="downstream"))
    text = printed(told.result(x=told.outcome(findings=findings)))
    assert f"{FINDING}  (#7)" in text
    assert "caused    by finding #7" in text


def test_markup_and_control_characters_in_names_are_text(told: SimpleNamespace) -> None:
    finding = told.finding(message="[red]slot[/red] \x1b[31m of\nr", readers=("[/]",))
    text = printed(told.result(x=told.outcome("[bold]v[/bold]", findings=(finding,))), width=120)
    assert "[bold]v[/bold]" in text
    assert "[red]slot[/red] \\x1b[31m of r" in text
    assert "\x1b" not in text


def test_cases_are_counted_and_their_findings_named(told: SimpleNamespace) -> None:
    outcome = told.outcome(cases={"resume at 331": told.outcome(), "alone": told.clean()}, findings=(told.finding(),))
    text = printed(told.result(x=outcome))
    assert row(text, "cases violated")[0].strip() == "1 of 2"
    assert "old gate / resume at 331" in text
    assert text.count(FINDING) == 1
    assert row(printed(told.result(x=outcome), verbose=True), "poisoned in alone")[0].strip() == "0"


def test_a_failed_expectation_is_a_diff_and_silence_is_not_success(told: SimpleNamespace) -> None:
    failed = printed(told.result(Failure("old gate", "resume", "poisoned", 0, 1)))
    assert "old gate / resume: poisoned\n    expected  0\n    found     1\n1 expectation failed" in failed
    assert "as expected" not in failed
    assert printed(told.result()).endswith("as expected\n")
    assert printed(told.result(expected=False)).endswith("poisoned, and the file expects nothing\n")
    clean = printed(told.result(x=told.clean(), expected=False))
    assert clean.endswith(
        "nothing poisoned, but nothing was hit either: that proves nothing; the file expects nothing\n"
    )


def test_a_finding_that_comes_again_step_by_step_is_one_line(told: SimpleNamespace) -> None:
    steps = (1, 2, 3, 5)
    findings = tuple(told.finding(i, step=step, message="it stands") for i, step in enumerate(steps))
    text = printed(told.result(x=told.outcome(findings=findings)))
    assert ": 4 findings" in text
    assert text.count("it stands") == 1
    assert "I1 poison  steps 1 to 3, 5  it stands" in text


def test_what_differs_in_more_than_the_step_is_not_put_together(told: SimpleNamespace) -> None:
    findings = (told.finding(0, step=1), told.finding(1, step=2, readers=("c",)), told.finding(2, step=2))
    text = printed(told.result(x=told.outcome(findings=findings)))
    assert text.count(FINDING.replace("step 1", "steps 1 to 2")) == 1
    assert text.count(FINDING.replace("step 1", "step 2")) == 1


def test_ten_are_shown_however_often_each_came(told: SimpleNamespace) -> None:
    findings = tuple(
        told.finding(12 * step + i, step=step, message=f"wrong {i}") for step in range(3) for i in range(12)
    )
    text = printed(told.result(x=told.outcome(findings=findings)))
    assert text.count("steps 0 to 2  wrong") == 10
    assert "… and 6 more; in all: I1 wrong offset 36" in text


def test_what_is_no_number_is_shown_before_a_hazard_and_after_poison(told: SimpleNamespace) -> None:
    severities = ("loss", "shape", "hazard", "numerics", "poison")
    findings = tuple(told.finding(i, severity=severity, message=severity) for i, severity in enumerate(severities))
    text = printed(told.result(x=told.outcome(findings=findings)))
    places = [text.index(f"  {severity}\n") for severity in ("poison", "numerics", "hazard", "shape", "loss")]
    assert places == sorted(places)


def test_claims_that_were_not_judged_have_a_row_and_are_never_clean(told: SimpleNamespace) -> None:
    clean = printed(told.result(x=told.clean(restores=1), expected=False))
    assert "not judged" not in clean and "nothing poisoned" in clean
    text = printed(told.result(x=told.clean(restores=1, not_judged=3, not_asked=("hits",)), expected=False))
    assert row(text, "not judged")[0].strip() == "3"
    assert "nothing poisoned of what was judged" in text
    assert "3 claim or hits not judged" not in text and "3 claims or hits not judged" in text
    assert ": not asked: hits" in text
