"""Ground of all parts of a scenario file: strict models, names, and the bounds of sizes.

The bounds are far above anything real. They are there so that a slip of the keyboard is a message and not an
allocation of a terabyte.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo

from stateat.sim.inputs import MAX_SHOWN, shown

MAX_BLOCK_SIZE = 2**20
"""Tokens in a block of a group."""
MAX_NUM_BLOCKS = 2**24
"""Blocks in the pool."""
MAX_STEP_TOKENS = 2**26
"""Tokens in a step, in a request and in one prompt segment."""
MAX_REQUESTS = 1_000_000
"""Requests of a workload, and entries of a list of budgets."""
MAX_PROMPT_TOKENS = 2**31
"""Prompt tokens of all inline requests together."""
MAX_TIME = 2**53
"""Microseconds, or steps under ``clock: steps``."""
MAX_DRAFTS = 1024
"""Draft tokens of one proposal (K)."""


CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Strict(BaseModel):
    """A mapping of the file: no unknown key, no conversion of types, never changed afterwards."""

    model_config = CONFIG


class StrictRecord:
    """A mapping of the file that the engine takes as it is: the base of a standard dataclass, as strict as the models.

    Code makes such records without a check and reads their fields as those of any dataclass; a file's are checked by
    the annotations, and the docstrings below the fields describe them in the JSON Schema.
    """

    __slots__ = ()
    # Docstrings are read by `described` where somebody asks: pydantic would parse the module for each record on import.
    __pydantic_config__ = ConfigDict(**{**CONFIG, "use_attribute_docstrings": False})

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        # Strict for the fields, but made of a mapping: where a record is strict it takes its own instances only.
        made = handler(source)
        resolved: Any = handler.resolve_ref_schema(made)
        resolved["strict"] = False
        return made


def no_number(value: Any) -> Any:
    """Return what is written, but nothing for a number: 1 is taken for true where one of several values is allowed."""
    return None if type(value) in (int, float) else value


@dataclass(frozen=True)
class Listed:
    """An annotation of a tuple: a file writes it as a list, the only sequence that YAML has, of so many entries."""

    least: int = 0
    most: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        listed: Any = list[get_args(source)[0]]  # type: ignore[misc]
        bounds = Field(min_length=self.least or None, max_length=self.most)
        return handler.generate_schema(Annotated[listed, bounds, AfterValidator(tuple)])


@dataclass(frozen=True)
class WrittenAs:
    """An annotation: in a file the value is written, and checked, as one of this record, a subclass of its type."""

    record: type[StrictRecord]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(self.record)


def _printable(name: str) -> str:
    if not name.isprintable() or not name.strip():
        raise ValueError(f"found {shown(name)}, allowed a name of printable characters")
    return name


@cache
def _docstrings(record: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a record, its bases' too, by field."""
    found: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if not issubclass(each, StrictRecord):
            continue
        (node,) = ast.parse(getsource(each)).body
        for field, below in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(field.target)] = cleandoc(ast.literal_eval(below.value))
    return found


def described(schema: Any, records: Mapping[str, Any]) -> Any:
    """Return a JSON Schema in which the fields of these records, by title, have their docstrings for descriptions."""
    if isinstance(schema, list):
        return [described(each, records) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: described(value, records) for key, value in schema.items()}
    title = made.get("title")
    if isinstance(title, str) and title in records and "properties" in made:
        for key, field in fields_of(records[title]).items():
            made["properties"].get(key, {}).setdefault("description", field.description)
    return made


def fields_of(model: Any) -> dict[str, FieldInfo]:
    """Return the fields of a model or record by their keys in a file, in order; none of any other type."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {field.alias or name: field for name, field in model.model_fields.items()}
    record: Any = model
    return _record_fields(record) if isinstance(model, type) and issubclass(model, StrictRecord) else {}


@cache
def _record_fields(record: Any) -> dict[str, FieldInfo]:
    hints = get_type_hints(record, include_extras=True)
    says, found = _docstrings(record), {}
    for field in fields(record):
        required = field.default is MISSING and field.default_factory is MISSING
        info = FieldInfo.from_annotation(hints[field.name])
        if not required:
            info.default = field.default if field.default_factory is MISSING else field.default_factory()
        info.description = says.get(field.name)
        found[info.alias or field.name] = info
    return found


BlockSize = Annotated[int, Field(ge=1, le=MAX_BLOCK_SIZE)]
Name = Annotated[str, AfterValidator(_printable)]
Time = Annotated[int, Field(ge=0, le=MAX_TIME)]
Length = Annotated[int, Field(ge=1, le=MAX_STEP_TOKENS)]
Count = Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
Drafts = Annotated[int, Field(ge=0, le=MAX_DRAFTS)]

Location = tuple[str | int, ...]
"""Keys and indices that lead to a value of the file."""
Complaint = tuple[Location, str]
"""Location, and what was found there and is allowed."""


def nearest(name: str, names: Iterable[str]) -> str:
    """`` (did you mean X?)``, or nothing where no name is near."""
    names = list(names)
    # Where there is no choice the list of what is allowed says it already.
    matches = get_close_matches(name, names, 1) if len(names) > 1 and len(name) <= MAX_SHOWN else []
    return f" (did you mean {matches[0]}?)" if matches else ""


def choice(name: str, names: Iterable[str]) -> str:
    """Say that this name was found, and which are allowed."""
    names = list(names)
    return f"found {shown(name)}, allowed {', '.join(names) or 'none'}{nearest(name, names)}"
