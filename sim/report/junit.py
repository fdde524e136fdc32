"""Results as JUnit XML, for whoever keeps a CI: a suite per scenario file, a case per variant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

from sim.events import GRAVE, Finding
from sim.report.text import (
    SHOWN_FINDINGS,
    case_name,
    evidence_lines,
    failure_lines,
    failure_name,
    finding_line,
    plural,
    repeats,
    roots_first,
    summary,
)
from sim.result import Failure, Outcome, Result

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot carry, not even escaped."""


def to_junit(
    results: Sequence[Result],
    seconds: Mapping[str, float] | None = None,
    refused: Mapping[str, str] | None = None,
) -> str:
    """JUnit XML: one suite per scenario file, one case per variant and per ``variant / case``.

    ``seconds`` says how long each scenario took, by ``Result.path``, and ``refused`` why a file has no result, by its
    path: a suite with an error. Files that share a name have their path beside it. A case fails when an expectation
    failed or, where none is, when something was poisoned or the run never ends.
    """
    root = ET.Element("testsuites", name="stateat")
    names = Counter(result.scenario for result in results)
    for result in results:
        shared = names[result.scenario] > 1 and result.path
        name = f"{result.scenario} ({result.path})" if shared else result.scenario
        root.append(_suite(_xml(name), result, (seconds or {}).get(result.path)))
    for path, message in (refused or {}).items():
        root.append(_refused(_xml(path), message))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="utf-8"?>\n', "\n")
    )


def _refused(path: str, message: str) -> ET.Element:
    counts = {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    suite = ET.Element("testsuite", {"name": path, "file": path, **counts})
    case = ET.SubElement(suite, "testcase", classname=path, name="refused")
    first = message.partition("\n")[0]
    ET.SubElement(case, "error", type="refused", message=_xml(first)).text = _xml(message)
    return suite


def _suite(name: str, result: Result, seconds: float | None) -> ET.Element:
    suite = ET.Element("testsuite", name=name, errors="0")
    if result.path:
        suite.set("file", _xml(result.path))
    if seconds is not None:
        suite.set("time", f"{seconds:.3f}")
    for (variant, case), outcome in _cases(result):
        element = ET.SubElement(suite, "testcase", classname=name, name=_xml(case_name(variant, case)))
        failures = [f for f in result.failures if (f.variant, f.case) == (variant, case)]
        if variant in result.uncompared:
            ET.SubElement(element, "skipped", message="not compared: the engine does not run this variant's rules")
        findings = () if outcome is None or variant not in result.unexpected else outcome.findings
        _fail(element, failures, [f for f in findings if f.severity in (*GRAVE, "liveness")])
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return suite


def _cases(result: Result) -> Iterator[tuple[tuple[str, str], Outcome | None]]:
    """Every variant and case that ran, then those that only a failure names: none is lost."""
    known: dict[tuple[str, str], Outcome | None] = {}
    for variant, outcome in result.variants.items():
        known[variant, ""] = outcome
        known.update({(variant, name): case for name, case in outcome.cases.items()})
    for failure in result.failures:
        known.setdefault((failure.variant, failure.case), None)
    yield from known.items()


def _fail(element: ET.Element, failures: Sequence[Failure], findings: Sequence[Finding]) -> None:
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
    kind = "expectation" if failures else ordered[0].severity
    message = plural(len(failures), "failed expectation") if failures else plural(len(findings), f"{kind} finding")
    ET.SubElement(element, "failure", type=kind, message=message).text = _xml("\n".join(lines))


def _xml(text: str) -> str:
    """The text with what XML cannot carry written as an escape: ``\\x00``, ``\\ud800``."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
