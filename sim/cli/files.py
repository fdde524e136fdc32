"""``stateat list`` and ``stateat new``: what scenario files there are, and one more to start from."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import click

from stateat.sim.cli.options import EXISTING, SCENARIO, code_option, console_on, write_text_or_stdout
from stateat.sim.errors import InputError
from stateat.sim.files import write_text


@click.command("list")
@click.argument("paths", nargs=-1, type=SCENARIO)
@click.option("--class", "classes", multiple=True, metavar="M3", help="Only of this class of fault (repeatable).")
@click.option("--source", "sources", multiple=True, metavar="TEXT", help="Only with this in the source (repeatable).")
@code_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--markdown", is_flag=True, help="As the page scenarios/README.md.")
def list_scenarios(
    paths: Sequence[Path],
    classes: Sequence[str],
    sources: Sequence[str],
    allow_code: bool,
    as_json: bool,
    markdown: bool,
) -> None:
    """The scenario files: title, source, classes of fault, variants, and what `stateat check` looks at.

    PATHS are files and folders, or names of stateat's own (default: the folder scenarios here, else stateat's own).
    Nothing is run; a file that `stateat check` would refuse is shown as refused and not counted, and the exit code is
    2.

    \b
    Examples:
      stateat list seeds
      stateat list field --class M3 --source 54076
    """
    from stateat.sim.report.terminal.catalog import print_catalog, to_json, to_markdown
    from stateat.sim.scenario.catalog import chosen, entries, scenario_files
    from stateat.sim.scenario.models import MECHANISMS
    from stateat.sim.scenario.shipped import here_or_shipped
    from stateat.sim.schema import choice

    for name in classes:
        if name not in MECHANISMS:
            raise InputError(f"--class: {choice(name, MECHANISMS)} (docs/mechanisms.md)")
    if as_json and markdown:
        raise InputError("--json and --markdown: name one of them")
    paths = paths or (here_or_shipped(),)
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise InputError(f"{path}: no such file")
    if markdown and not (len(paths) == 1 and paths[0].is_dir()):
        raise InputError("--markdown: takes one folder")
    found = chosen(entries(scenario_files(paths), allow_code), classes, sources)
    if as_json:
        write_text_or_stdout(Path("-"), json.dumps(to_json(found), indent=2, ensure_ascii=False) + "\n")
    elif markdown:
        write_text_or_stdout(Path("-"), to_markdown(found, paths[0]))
    else:
        print_catalog(found, console_on())
    sys.exit(2 if any(entry.wrong for entry in found) else 0)


@click.command()
@click.argument("file", type=EXISTING)
def new(file: Path) -> None:
    """Write a scenario file to start from, with comments; a file that is there already is left alone.

    \b
    Example:
      stateat new mine.yaml; stateat replay mine.yaml
    """
    from stateat.sim.printable import one_line
    from stateat.sim.scenario.catalog import SUFFIXES, is_named_so

    if one_line(str(file)) != str(file):
        raise InputError(f"{one_line(str(file))!r}: found a control character, allowed a name without")
    if not is_named_so(file) or not file.stem.strip():
        raise InputError(f"{file}: found {file.name!r}, allowed a name that ends in {' or '.join(SUFFIXES)}")
    if file.exists() or file.is_symlink():
        raise InputError(f"{file}: it is there already, allowed a new file")
    write_text(file, TEMPLATE.replace("NAME", json.dumps(file.stem, ensure_ascii=False), 1), "new")
    click.echo(f"{file}: written; next: stateat replay {quote(str(file))}", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of scenario files (for editors).

    \b
    Example:
      stateat schema > stateat.schema.json
    """
    from stateat.sim.scenario.load import json_schema

    write_text_or_stdout(Path("-"), json.dumps(json_schema(), indent=2) + "\n")


TEMPLATE = """\
# A scenario: an engine, a workload, and variants with what each must come to.
# Every key: docs/scenario-files.md. Rules: docs/rules.md. How to get here from a bug report: docs/write-a-scenario.md.
schema: stateat/1
name: NAME
title: A chunk that ends inside a block, and the next one that runs past its end
source: vLLM PR 51113
# Classes of fault, docs/mechanisms.md.
mechanism: [M1]
engine:
  preset: vllm-0.27.0
  # Tokens that a step may take, of all requests together.
  max_num_batched_tokens: 8192
  # Hits end at recurrent blocks only.
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16, eagle: true}
    - {name: gdn, kind: recurrent, block_size: 1600}
  # Without a drafter: leave this out.
  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [2, 0, 3]}
  # Times are numbers of steps.
  clock: steps
workload:
  # Budgets of the first steps: what other requests left over.
  budgets: [1600, 1000, 3602]
  requests:
    # A prompt is a list of [seed, length]; equal seeds are equal text.
    - {id: a, prompt: [[1, 3602]]}
    - {id: b, after: a, prompt: [[1, 3602], [2, 90]]}
variants:
  before:
    preset: vllm-0.26.0
    # Leave `expect` out at first: `stateat replay -v` prints what there is to expect.
    expect:
      poisoned: 1
      wrong_restores: 1
      ends: {a: [1600, 2600, 3602]}
      findings: [{request: a, column: 1, claimed: 3200, held: 2600}]
  after:
    # Clean says nothing unless something is hit. Whatever grave is found fails it, wrong reads too.
    expect: {poisoned: 0, deferred: 1, ends: {a: [1600, 3602]}, hits: {b: 1600}}
"""
