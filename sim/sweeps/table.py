"""The rows of a sweep as a frame, and the frame as a file: in the order of the runs, whatever order they ended in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.files import atomic, check_apart, check_writable, nearby
from stateat.sim.sweeps.journal import path_of
from stateat.sim.sweeps.work import CAME, TEXTS, TIMES, Row

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv")
HEAD = ("run", "point", "seed", "variant", "case")


def frame(rows: Iterable[Row], keys: Sequence[str]) -> pd.DataFrame:
    """A row for each run; between case and counts a column for each swept key."""
    import pandas as pd

    ordered = sorted(rows, key=lambda row: int(row["run"]))
    columns = {name: [row[name] for row in ordered] for name in (*HEAD, *keys, *CAME, "error")}
    series: dict[str, Any] = {}
    for name, values in columns.items():
        told, kind = _typed(name, values, keys)
        series[name] = pd.Series(told, dtype=kind)
    return pd.DataFrame(series)


def _typed(name: str, values: list[Any], keys: Sequence[str]) -> tuple[list[Any], str]:
    """The values with the type of their column."""
    if name in keys:
        return _swept(values)
    if name in ("run", "point", "seed"):
        return values, "int64"
    if name in ("variant", "case", *TEXTS, "error"):
        return values, "str"
    if name == "livelock":
        return values, "boolean"
    return values, "Float64" if name in TIMES else "Int64"


def _swept(values: list[Any]) -> tuple[list[Any], str]:
    """Numbers stay numbers, and truth values what they are; text and all else is text, lists and mappings as JSON."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return values, "boolean"
    if all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return values, "Int64"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return values, "Float64"
    return [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values], "str"


def outputs(path: Path) -> dict[str, Path]:
    """Return the files that a sweep writes, by the names that messages have for them."""
    return {"--out": path, "the journal of --out": path_of(path)}


def check_out(path: Path, inputs: Iterable[Path]) -> None:
    """Raises InputError for a name that says no format, and for files that cannot be written or are read too."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {nearby(path)}: found {path.suffix!r}, allowed: {', '.join(SUFFIXES)}")
    for what, file in outputs(path).items():
        check_writable(file, what)
    check_apart(outputs(path), inputs)


def write(table: pd.DataFrame, path: Path) -> None:
    """The whole file, or nothing."""
    with atomic(path, "--out") as partial:
        if path.suffix.lower() == ".csv":
            table.to_csv(partial, index=False, lineterminator="\n")
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pandas(table, preserve_index=False), partial)
