"""Executes the notebooks, or takes their outputs out: ``python notebooks/run.py [--strip] [NAME...]``.

Executed copies go to ``build/notebooks``; the files here keep no outputs. ``STATEAT_QUICK=1`` makes them small. Exits
with 1 when a cell fails, and with 2 for a name that is not there.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "notebooks"
LIMIT_S = 600
"""Of a cell."""


def stripped(notebook: Any) -> Any:
    """The same without outputs, execution counts, and what an editor noted."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def execute(path: Path, to: Path) -> None:
    """Run a notebook in its own folder and write the copy, also when a cell fails. Raises CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    to.parent.mkdir(parents=True, exist_ok=True)
    # The kernel finds the package of this checkout, installed or not.
    found = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH", "")]))
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=LIMIT_S,
        extra_arguments=["--log-level=ERROR"],  # it would warn of its local sockets
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute(env=os.environ | {"PYTHONPATH": found})
    finally:
        nbformat.write(notebook, to)


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(
        prog="notebooks/run.py",
        description="Executes the notebooks: copies with outputs go to build/notebooks.",
        epilog="STATEAT_QUICK=1 makes them small. Exits with 1 when a cell fails, with 2 for a name that is not there.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="01-anatomy-of-a-poisoned-slot and so on; default: all"
    )
    parser.add_argument("--strip", action="store_true", help="take the outputs out of the files here instead")
    asked = parser.parse_args(arguments)
    paths = [HERE / f"{Path(name).stem}.ipynb" for name in asked.names] or sorted(HERE.glob("*.ipynb"))
    if missing := [path.name for path in paths if not path.exists()]:
        allowed = ", ".join(sorted(path.stem for path in HERE.glob("*.ipynb")))
        print(f"found no notebook {', '.join(missing)}, allowed: {allowed}", file=sys.stderr)
        return 2
    failed = 0
    for path in paths:
        if asked.strip:
            nbformat.write(stripped(nbformat.read(path, as_version=4)), path)
            continue
        print(f"{path.name} ...", file=sys.stderr, flush=True)
        try:
            execute(path, BUILD / path.name)
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
