"""The scenario file: what it may say, what is wrong with it, and the runs that it asks for.

:func:`load` reads and checks a file as a whole; :func:`runs` gives a run for each variant and case. A value comes from
the last of these that says it: the preset, ``engine.rules``, the variant, the case, the command line. Maps merge
and lists replace; a map of another ``kind`` replaces too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stateat.sim.arguments import path, whole
from stateat.sim.errors import InputError
from stateat.sim.options import RECORDS, Options
from stateat.sim.printable import few, short
from stateat.sim.releases.async_default import resolved
from stateat.sim.releases.departures import departures, refused_blocks
from stateat.sim.releases.presets import table
from stateat.sim.releases.support import lacks
from stateat.sim.scenario import checks as scenario_checks
from stateat.sim.scenario import messages as scenario_errors
from stateat.sim.scenario import trust
from stateat.sim.scenario.models import SCHEMA, File, VariantExpectation, Whole
from stateat.sim.scenario.shipped import named
from stateat.sim.scenario.tree import INLINE, Node, Problem, failure, locate, merge, of_plain, place, plain, read
from stateat.sim.scenario.truth import DIGEST, Truth
from stateat.sim.scenario.truth import changed as changed_truth
from stateat.sim.scenario.truth import wrong as wrong_truth
from stateat.sim.schema import Complaint, choice, described
from stateat.sim.workload import Arrival
from stateat.sim.workload.generate import Workload, requests
from stateat.sim.workload.inline import arrivals_of, too_long
from stateat.sim.workload.named_states import StateChange

M = TypeVar("M", bound=BaseModel)
SHOWN_VARIANTS = 10
"""Variants of a scenario that are printed, at most."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """One variant (and case) of a scenario, ready to be simulated."""

    scenario: str
    """The scenario's name."""
    variant: str
    case: str
    """'' for a scenario without cases."""
    options: Options
    budgets: tuple[int, ...]
    """The token budget of step 0, 1, ...; later steps have the configured one."""
    seed: int
    truth: Truth
    """State family and arithmetic of the oracle."""
    expect: Mapping[str, Any] | None
    """Expectation of the *variant*, cases included: the same for all its runs (:mod:`stateat.sim.run.expect`)."""
    workload: Workload
    base: Path
    """The scenario file's folder."""
    where: str = ""
    """File, line and key of the workload, for messages."""
    changes: tuple[StateChange, ...] = ()
    """States that are evicted or placed by name, in order."""
    elsewhere: bool = False
    """True if it runs on a release for which the file expects nothing."""
    compared: bool = True
    """True if it is held to anything; not where a release ignores the rules that make it what it is."""
    engine: str = ""
    """The label of the live engine that runs it; '' for the reference engine."""

    @property
    def name(self) -> str:
        """``variant``, or ``variant, case NAME``: for messages."""
        return self.variant + (f", case {self.case}" if self.case else "")

    def arrivals(self) -> tuple[Arrival, ...]:
        """Requests of the run: those that wait for none by (time, index), then those that wait for another, by index.

        The same for the same run on every machine. Raises InputError for a trace or table that is missing, empty
        or broken, and for a prompt that is too long.
        """
        longest = self.options.max_model_len
        made = requests(self.workload, self.seed, self.options.clock, self.base, self.where)
        for arrival in made:
            if arrival.num_prompt_tokens > longest - 1:
                text = too_long(arrival.id, arrival.num_prompt_tokens, longest)
                raise InputError(f"{self.where}: {text} (variant {self.name})")
        return tuple(sorted(made, key=lambda a: (a.after is not None, 0 if a.after is not None else a.time, a.index)))

    def __repr__(self) -> str:
        return f"<Run {short(self.scenario)}, variant {short(self.name)} ({self.options.preset}, seed {self.seed})>"


@dataclass(frozen=True, slots=True, repr=False)
class Scenario:
    """A checked scenario file. The mappings are as written, before merging."""

    schema: str
    name: str
    title: str
    mechanism: tuple[str, ...]
    """Classes of fault."""
    source: str
    seed: int
    engine: Mapping[str, Any]
    workload: Mapping[str, Any]
    oracle: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    """Empty for a file without variants."""
    cases: Mapping[str, Mapping[str, Any]]
    expect: Mapping[str, Any] | None
    path: Path
    expanded: tuple[Run, ...] = field(default=(), repr=False)
    """Every variant and case, in the order of the file."""

    def __repr__(self) -> str:
        names = few([short(name) for name in dict.fromkeys(run.variant for run in self.expanded)], SHOWN_VARIANTS)
        return f"<Scenario {short(self.name)} ({short(str(self.path))}): {names or 'no variants'}>"

    @property
    def inputs(self) -> list[Path]:
        """The files that it is read from: its own, traces and tables."""
        read = (file for run in self.expanded for file in run.workload.files(run.base))
        return list(dict.fromkeys([self.path, *read]))

    def reseeded(self, seed: int) -> Scenario:
        """The same with another seed; what the file expects is of its own, so nothing is expected."""
        seed = whole("seed", seed, 0, 2**63 - 1)
        runs = tuple(replace(run, seed=seed, expect=None) for run in self.expanded)
        return replace(self, seed=seed, expanded=runs)


def load(source: str | Path | Mapping[str, Any], allow_code: bool = False) -> Scenario:
    """Read and check a scenario file, or what would be in one as plain data (its paths: from the current folder).

    Where there is no such path, the name of a scenario that comes with stateat will do (``"s02-anatomy"``).

    Both are data, which may be somebody else's: with ``allow_code`` they may name rules as ``module:Class``, which are
    imported when they run. Which files it names outside its folder is said on standard error. Raises InputError with
    one line for each problem: ``FILE:LINE: key.path: found X, allowed Y``.
    """
    if isinstance(source, Mapping):
        file, root, wrong = INLINE, of_plain(INLINE, source), list[Problem]()
    else:
        file = named(path("source", source, "a path or a mapping"))
        root, wrong = read(file)
    scenario = checked(file, root, [*wrong, *(() if allow_code else trust.code(root))])
    trust.show(file, (path for run in scenario.expanded for path in run.workload.paths), file.parent)
    return scenario


def checked(file: Path, root: Node, unreadable: Sequence[Problem] = ()) -> Scenario:
    """The scenario of a tree that was read from ``file``; ``unreadable``: what is wrong with single values of it."""
    schema = root.get("schema")
    if schema is not None and str(schema.value).startswith("stateat-sweep/"):
        raise InputError(f"{place(file, schema.line)}: is a sweep, allowed a scenario; to run it: stateat sweep {file}")
    shape, wrong = _validated(File, root)
    expanded: list[Run] = []
    for item in _expand(file, root, shape):
        if isinstance(item, Run):
            expanded.append(item)
        else:
            wrong.append(item)
    if unreadable or wrong:
        # A value that could not be read is there as text: what the models say of it is no news.
        known = {p.path for p in unreadable}
        raise failure(file, [*unreadable, *(p for p in wrong if p.path not in known)])
    assert shape is not None
    data = plain(root)
    return Scenario(
        schema=SCHEMA,
        name=shape.name,
        title=shape.title,
        mechanism=tuple(shape.mechanism),
        source=shape.source,
        seed=shape.seed,
        engine=data.get("engine") or {},
        workload=data.get("workload") or {},
        oracle=data.get("oracle") or {},
        variants=data.get("variants") or {},
        cases=data.get("cases") or {},
        expect=data.get("expect"),
        path=file,
        expanded=tuple(expanded),
    )


def runs(
    scenario: Scenario, *, only: Sequence[str] = (), rules: Mapping[str, str] = {}, truth: Mapping[str, str] = {}
) -> list[Run]:
    """A run for each variant and case, in the order of the file.

    ``only`` names the variants wanted (all if empty); ``rules`` and ``truth`` (keys of a file's ``oracle``) override
    those of the file. Raises InputError for a name that does not exist, or a rule that takes away what an option
    needs.
    """
    variants = list(dict.fromkeys(run.variant for run in scenario.expanded))
    for name in only:
        if name not in variants:
            raise InputError(f"{scenario.path}: variant: {choice(name, variants)}")
    for name, value in rules.items():
        wrong = scenario_checks.rule(name, value)
        if wrong:
            raise InputError(f"--rule {name}={value}: {wrong}")
    check_truth(changed_truth(DIGEST, truth))
    return [_overridden(run, rules, truth) for run in scenario.expanded if not only or run.variant in only]


FLAGS = {"state": "--state", "dtype": "--state-dtype"}
"""Flags of the command line; the others are named like their key."""


def check_truth(truth: Truth, recurrent: bool = True, where: str = "") -> None:
    """Raises InputError unless the oracle can compute with this."""
    found = wrong_truth(truth, recurrent)
    if found is not None:
        key, text = found
        raise InputError(f"{FLAGS.get(key, f'--{key}')}: {where}{text}")


def _overridden(run: Run, rules: Mapping[str, str], changes: Mapping[str, str]) -> Run:
    options = replace(run.options, rules={**run.options.rules, **rules}) if rules else run.options
    if rules:
        for key, text in lacks(options, table(options.preset, options.rules)):
            raise InputError(f"--rule: variant {run.variant}: {'.'.join(map(str, key))}: {text}")
    options = resolved(options, table(options.preset, options.rules))
    truth = changed_truth(run.truth, changes)
    if changes:
        check_truth(truth, bool(options.recurrent), f"variant {run.variant}: ")
    return replace(run, options=options, truth=truth)


def warnings(run: Run) -> list[str]:
    """Return what to warn of in a run: what the preset's own release would refuse (it runs here nevertheless) or decide
    otherwise, and what is likely a slip."""
    options = run.options
    texts = refused_blocks(options) + departures(options, arrivals_of(run.workload.requests or ()))
    trace = run.workload.trace
    if trace and trace.format != "jsonl" and trace.time_scale == 1 and options.clock == "steps":
        texts.append("the trace's microseconds become step numbers: set trace.time_scale (0.0001: steps of 10 ms)")
    return texts


def warned(runs: Iterable[Run]) -> list[str]:
    """Return the warnings of some runs, each once, with the variants (and cases) that it is true of."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for text in warnings(run):
            found.setdefault(text, []).append(f"{run.variant}{f' / {run.case}' if run.case else ''}")
    return [f"{few(list(dict.fromkeys(names)), SHOWN_VARIANTS)}: {text}" for text, names in found.items()]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors: completion, types and descriptions."""
    schema = described(File.model_json_schema(), {r.__name__: r for r in (*RECORDS, Truth)})
    _loosen_overrides(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"stateat scenario ({SCHEMA})",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _loosen_overrides(schema: dict[str, Any]) -> None:
    """Lets an override say only what it changes: its parts lose ``required``, lists keep whole entries."""
    definitions = schema["$defs"]

    def loose(part: Any) -> Any:
        if isinstance(part, list):
            return [loose(p) for p in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return {**part, "$ref": f"#/$defs/{partial(part['$ref'].rpartition('/')[2])}"}
        # An alternative that lacks its required keys no longer tells itself from the others by them.
        renamed = {"anyOf" if key == "oneOf" else key: value for key, value in part.items() if key != "discriminator"}
        return {
            key: value
            if key == "items"
            else {k: loose(v) for k, v in value.items()}
            if key == "properties"
            else loose(value)
            for key, value in renamed.items()
            if key != "required"
        }

    def partial(name: str) -> str:
        loosened = f"Partial{name}"
        if loosened not in definitions:
            definitions[loosened] = {}
            definitions[loosened].update(loose(deepcopy(definitions[name])))
        return loosened

    properties = definitions["Override"]["properties"]
    for key in ("engine", "workload", "oracle"):
        properties[key] = loose(properties[key])


def _validated(model: type[M], node: Node) -> tuple[M | None, list[Problem]]:
    try:
        return model.model_validate(plain(node)), []
    except ValidationError as error:
        return None, scenario_errors.problems(error, model, node)


def _placed(complaints: Iterator[Complaint], node: Node) -> Iterator[Problem]:
    for location, text in complaints:
        at, path = locate(node, location)
        yield Problem(at.line, path, text)


def _expand(file: Path, root: Node, shape: File | None) -> Iterator[Run | Problem]:
    """The runs of every variant and case, and what is wrong with each; also of a file whose head is wrong."""
    variants = _children(root, "variants")
    cases = _children(root, "cases")
    if variants and (expect := _given(root, "expect")) is not None:
        yield Problem(expect.line, expect.path, "found it beside variants, allowed in each variant instead")
    for override in (*variants.values(), *cases.values()):
        yield from _twice(override)
    base = Node({k: v for k in ("engine", "workload", "oracle") if (v := _given(root, k)) is not None}, root.line, "")
    levels = _Levels(base, variants, cases)
    expected_wrong: dict[str, list[Problem]] = {}
    for name, variant in (variants or {"": root}).items():
        expect = variant.get("expect")
        wanted: Node | None = _with_cases(expect, cases, variant)
        group: list[Run] = []
        for case in cases or ("",):
            node = levels.merged(name, case)
            whole, wrong = _checked(node)
            yield from (levels.blamed(problem, name, case) for problem in wrong)
            if whole is not None and not wrong:
                group.append(_run(file, node, shape, whole, name or whole.engine.preset, case))
        if wanted is not None:
            expected, expected_wrong[name] = _expected(wanted, group, list(cases))
            group = [replace(run, expect=expected or None) for run in group]
        yield from group
    for name, wrong in expected_wrong.items():
        everywhere = all(set(wrong) <= set(other) for other in expected_wrong.values())
        yield from (problem if everywhere else levels.named(problem, name, "") for problem in wrong)


def _checked(node: Node) -> tuple[Whole | None, list[Problem]]:
    """A variant and case as a whole, and what is wrong with it."""
    whole, wrong = _validated(Whole, node)
    return whole, wrong if whole is None else list(_placed(scenario_checks.whole(whole), node))


@dataclass(frozen=True, slots=True)
class _Levels:
    """The parts of a file that are merged to a run: what is wrong with a run is said of the part that makes it so."""

    base: Node
    variants: Mapping[str, Node]
    cases: Mapping[str, Node]
    known: dict[tuple[str, str], frozenset[Problem]] = field(default_factory=dict)

    def merged(self, variant: str, case: str) -> Node:
        """Return what a run of this variant and case says; '': without one."""
        node = self.base
        for part, name in ((self.variants, variant), (self.cases, case)):
            node = merge(node, override_of(part[name])) if name else node
        return node

    def blamed(self, problem: Problem, variant: str, case: str) -> Problem:
        """A problem of this variant and case, told with those of the two without which it is none."""
        for names in (("", ""), (variant, ""), ("", case)):
            if names not in self.known:
                self.known[names] = frozenset(_checked(self.merged(*names))[1])
            if problem in self.known[names]:
                return self.named(problem, *names)
        return self.named(problem, variant, case)

    def named(self, problem: Problem, variant: str, case: str) -> Problem:
        """A problem with the variant and the case in its path."""
        parts = {f"variants.{variant}": self.variants.get(variant), f"cases.{case}": self.cases.get(case)}
        told = {name: node for name, node in parts.items() if node is not None and not _is_below(problem.path, name)}
        if not told:
            return problem
        written = f" (line {problem.line})" if problem.line else ""
        path = ": ".join([", ".join(told), f"{problem.path}{written}"])
        return Problem(next(iter(told.values())).line, path, problem.text)


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))


def _children(root: Node, key: str) -> dict[str, Node]:
    node = root.get(key)
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _given(node: Node, key: str) -> Node | None:
    """The value of a key; None where it is not there, or says nothing (``oracle:`` and no more)."""
    child = node.get(key)
    return None if child is None or child.value is None else child


def _twice(override: Node) -> Iterator[Problem]:
    for key in ("preset", "rules"):
        short, engine = override.get(key), override.get("engine")
        if short is not None and engine is not None and engine.get(key) is not None:
            yield Problem(short.line, short.path, f"found it here and in engine.{key}, allowed in one place")


def override_of(node: Node) -> Node:
    """The parts of a variant or case that change the run, its short forms moved into the engine."""
    values = {k: v for k in ("engine", "workload", "oracle") if (v := _given(node, k)) is not None}
    short = {k: v for k in ("preset", "rules") if (v := _given(node, k)) is not None}
    if short:
        moved = Node(short, node.line, node.path)
        values["engine"] = merge(values["engine"], moved) if "engine" in values else moved
    return Node(values, node.line, node.path)


def _with_cases(expect: Node | None, cases: Mapping[str, Node], variant: Node) -> Node | None:
    """A variant's expectation with those of the cases under ``cases``; what the variant says of a case wins."""
    own = {name: wanted for name, case in cases.items() if (wanted := _given(case, "expect")) is not None}
    if not own:
        return expect
    base = Node({"cases": Node(own, variant.line, "cases")}, variant.line, variant.path)
    return base if expect is None or expect.value is None else _over(base, expect)


def _over(base: Node, expect: Node) -> Node:
    merged = merge(base, expect)
    return Node(merged.value, expect.line, expect.path)


def _expected(
    wanted: Node, group: Sequence[Run], cases: Sequence[str]
) -> tuple[Mapping[str, Any] | None, list[Problem]]:
    """The expectation as a mapping, checked against the requests, groups and cases of its runs."""
    if wanted.value is None:
        return None, []
    model, wrong = _validated(VariantExpectation, wanted)
    if model is None:
        return None, wrong
    expect = model.model_dump(exclude_unset=True)
    groups = dict.fromkeys(g.name for run in group for g in run.options.groups)
    written = [run.workload.requests for run in group]
    ids = None if None in written else dict.fromkeys(r.id for listed in written for r in listed or ())
    if not group:
        return expect, []
    tier = any(run.options.offload.blocks for run in group)
    return expect, list(_placed(scenario_checks.expectation(expect, ids, groups, cases, tier), wanted))


def _run(file: Path, node: Node, shape: File | None, whole: Whole, variant: str, case: str) -> Run:
    workload = node.get("workload") or node
    at = workload.get("trace") or workload
    return Run(
        scenario=shape.name if shape else "",
        variant=variant,
        case=case,
        options=whole.engine.over_ranks(),
        budgets=tuple(whole.workload.budgets),
        seed=shape.seed if shape else 0,
        truth=whole.oracle,
        expect=None,
        workload=whole.workload,
        base=file.parent,
        where=f"{place(file, at.line)}: {at.path}",
        changes=tuple(sorted(_changes(file, workload, whole), key=lambda change: (change.time, change.places))),
    )


def _changes(file: Path, node: Node, whole: Whole) -> Iterator[StateChange]:
    groups = [group.name for group in whole.engine.groups]
    for key, states in (("evict", whole.workload.evict), ("place", whole.workload.place)):
        for i, state in enumerate(states):
            at, path = locate(node, (key, i))
            where = f"{place(file, at.line)}: {path}"
            yield StateChange(state.at, key == "place", groups.index(state.group), state.request, state.offset, where)
