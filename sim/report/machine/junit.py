"""Results as JUnit XML, for whoever keeps a CI: a suite per scenario file, a case per variant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from xml.etree import ElementTree as ET

from stateat.sim.events import GRAVE, Finding, Severity
from stateat.sim.printable import plural
from stateat.sim.report.words.failures import case_name, failure_lines, failure_name
from stateat.sim.report.words.findings import (
    SHOWN_FINDINGS,
    evidence_lines,
    finding_line,
    repeats,
    roots_first,
    summary,
)
from stateat.sim.run.result import Failure, Outcome, Result

COUNTS = ("tests", "failures", "errors", "skipped")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot carry, not even escaped."""


def to_junit(
    results: Sequence[Result],
    seconds: Mapping[str, float] | None = None,
    refused: Mapping[str, str] | None = None,
    skipped: Mapping[str, str] | None = None,
) -> str:
    """JUnit XML: one suite per scenario file, one case per variant and per ``variant / case``.

    ``seconds`` says how long each scenario took, by ``Result.path``; ``refused`` and ``skipped`` why a file has no
    result, by its path: a suite with an error, or with a case that is skipped. Suites or cases that would be called the
    same have their path, or their number, beside it. A case fails when an expectation failed or, where none is, when
    something was poisoned or the run never ends; it is an error when it could not be run.
    """
    root = ET.Element("testsuites", name="stateat")
    names = Counter(result.scenario for result in results)
    suites = [
        (
            f"{result.scenario} ({result.path})" if names[result.scenario] > 1 and result.path else result.scenario,
            result,
        )
        for result in results
    ]
    files = [(path, "refused", why) for path, why in (refused or {}).items()]
    files += [(path, "skipped", why) for path, why in (skipped or {}).items()]
    called = _apart([*(_xml(name) for name, _ in suites), *(_xml(path) for path, _, _ in files)])
    for name, (_, result) in zip(called[: len(suites)], suites, strict=True):
        root.append(_suite(name, result, (seconds or {}).get(result.path)))
    for name, (path, kind, message) in zip(called[len(suites) :], files, strict=True):
        root.append(_without_result(name, _xml(path), kind, message))
    for each in COUNTS:
        root.set(each, str(sum(int(suite.get(each, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="utf-8"?>\n', "\n")
    )


def _apart(names: Sequence[str]) -> list[str]:
    """The names, with a number behind each that was there before: whoever reads the file keys by them."""
    taken = set(names)
    found: list[str] = []
    for name in names:
        other = name
        if name in found:
            other = next(text for n in count(2) if (text := f"{name} ({n})") not in taken)
            taken.add(other)
        found.append(other)
    return found


def _without_result(name: str, path: str, kind: str, message: str) -> ET.Element:
    suite = ET.Element("testsuite", {"name": name, "file": path})
    case = ET.SubElement(suite, "testcase", classname=name, name=kind)
    _stopped(case, "skipped" if kind == "skipped" else "error", kind, message)
    return _counted(suite)


def _stopped(case: ET.Element, tag: str, kind: str, message: str) -> None:
    """Say in a case why it has no outcome."""
    first = message.partition("\n")[0]
    about = {"message": _xml(first)} if tag == "skipped" else {"type": kind, "message": _xml(first)}
    ET.SubElement(case, tag, about).text = _xml(message)


def _counted(suite: ET.Element) -> ET.Element:
    """A suite that says how many cases it has, and how many of them came to what."""
    suite.set("tests", str(len(suite)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    return suite


def _suite(name: str, result: Result, seconds: float | None) -> ET.Element:
    suite = ET.Element("testsuite", name=name)
    if result.path:
        suite.set("file", _xml(result.path))
    if seconds is not None:
        suite.set("time", f"{seconds:.3f}")
    cases = dict(_cases(result))
    stopped = {(each.variant, each.case): each for each in result.not_run}
    labels = _apart([_xml(case_name(variant, case)) for variant, case in cases])
    for label, ((variant, case), outcome) in zip(labels, cases.items(), strict=True):
        element = ET.SubElement(suite, "testcase", classname=name, name=label)
        if (variant, case) in stopped:
            each = stopped[variant, case]
            known = "also in the baseline: " if each.known else ""
            _stopped(element, each.kind, type(each.error).__name__, known + each.why)
            continue
        failures = [f for f in result.failed_expectations if (f.variant, f.case) == (variant, case)]
        if variant in result.uncompared:
            ET.SubElement(element, "skipped", message="not compared: the engine does not run this variant's rules")
        elif variant in result.unheld and not failures:
            ET.SubElement(element, "skipped", message="not compared: what the file expects of it is of something else")
        findings = () if outcome is None or variant not in result.wrong_where_silent else outcome.findings
        kind = "new" if result.baseline else "expectation"
        _fail(element, failures, [f for f in findings if f.severity in (*GRAVE, Severity.LIVENESS)], kind)
        known_here = [f for f in result.in_baseline if (f.variant, f.case) == (variant, case)]
        if known_here:
            told = [["also in the baseline  " + failure_name(f), *failure_lines(f)] for f in known_here]
            text = "\n".join("\n  ".join(lines) for lines in told)
            ET.SubElement(element, "system-out").text = _xml(text)
    return _counted(suite)


def _cases(result: Result) -> Iterator[tuple[tuple[str, str], Outcome | None]]:
    """Every variant and case that ran, then those that only a failure names: none is lost."""
    known: dict[tuple[str, str], Outcome | None] = {}
    for variant, outcome in result.variants.items():
        known[variant, ""] = outcome
        known.update({(variant, name): case for name, case in outcome.cases.items()})
    for stopped in result.not_run:
        known.setdefault((stopped.variant, stopped.case), None)
    for failure in result.failed_expectations:
        known.setdefault((failure.variant, failure.case), None)
    yield from known.items()


def _fail(element: ET.Element, failures: Sequence[Failure], findings: Sequence[Finding], said: str) -> None:
    if not failures and not findings:
        return
    lines = []
    for failure in failures:
        lines += [failure_name(failure), *(f"  {line}" for line in failure_lines(failure))]
    ordered = [finding for _, finding in roots_first(("", finding) for finding in findings)]
    told = repeats(("", finding) for finding in ordered)
    for _, (finding, *again) in told[:SHOWN_FINDINGS]:
        lines += [finding_line(finding, again), *(f"  {line}" for line in evidence_lines(finding))]
    if len(told) > SHOWN_FINDINGS:
        lines.append(f"all {len(ordered):,}: {summary(ordered)}")
    kind = said if failures else ordered[0].severity
    noun = "new failure" if said == "new" else "failed expectation"
    message = plural(len(failures), noun) if failures else plural(len(findings), f"{kind} finding")
    ET.SubElement(element, "failure", type=kind, message=message).text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """The text with what XML cannot carry written as an escape: ``\\x00``, ``\\ud800``."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
