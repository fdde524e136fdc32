"""The model runners of an installed release, as far as they keep columns and counts of recurrent states.

Functions are taken out of the release's source files and run as they are: Python ones, and Triton kernels in a plain
interpreter of the few operations that decide. The kernel that moves the bytes is replaced by one that notes the
columns. Nothing is written again here but the loop around them.
"""

# mypy: ignore-errors

from __future__ import annotations

import ast
import itertools
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple


class Copied(NamedTuple):
    request: str
    source: int
    """Column of the running state."""
    target: int
    bias: int


class Planned(NamedTuple):
    """One request in one step."""

    name: str
    start: int
    end: int
    drafts: int
    sampled: int
    fresh: bool
    """True if it is new, or comes back after a preemption."""


class Cell(int):
    """An entry of a tensor: a number that can be filled."""

    def __new__(cls, value, owner, index):
        made = super().__new__(cls, value)
        made.owner, made.index = owner, index
        return made

    def fill_(self, value):
        self.owner[self.index] = value


class Cells(list):
    def __getitem__(self, index):
        return Cell(super().__getitem__(index), self, index)


class Pointer(NamedTuple):
    cells: list
    at: int = 0

    def __add__(self, offset):
        return Pointer(self.cells, self.at + offset)


class Language:
    """Of Triton's language what the kernels decide with; one program runs at a time, over one entry."""

    def __init__(self):
        self.program = (0, 0, 0)

    def program_id(self, axis):
        return self.program[axis]

    def arange(self, start, end):
        return start

    def load(self, pointer, mask=True, other=0):
        return int(list.__getitem__(pointer.cells, pointer.at)) if mask else other

    def store(self, pointer, value, mask=True):
        if mask:
            pointer.cells[pointer.at] = int(value)

    def maximum(self, a, b):
        return max(a, b)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def function(module: ast.AST, name: str) -> ast.FunctionDef:
    return next(n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == name)


def bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """Take off what names other modules: decorators and annotations."""
    node.decorator_list, node.returns = [], None
    for argument in [*node.args.args, *node.args.kwonlyargs]:
        argument.annotation = None
    return node


def execute(nodes: list[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
    module = ast.fix_missing_locations(ast.Module(body=nodes, type_ignores=[]))
    exec(compile(module, "<release>", "exec"), names)
    return names


class Kernels:
    """The state bookkeeping of ``v1/worker/mamba_utils.py``."""

    def __init__(self, folder: Path, block: int, drafts: int) -> None:
        self.block, self.drafts = block, drafts
        self.language = Language()
        self.copies: list[Copied] = []
        self.rows: list[str] = []
        self.parts = tree(folder / "v1/worker/mamba_utils.py")
        known = {node.name for node in self.parts.body if isinstance(node, ast.FunctionDef)}
        names = [
            "cleanup_mamba_state_idx", "preprocess_mamba", "_resolve_fused_precopy", "postprocess_mamba_fused_kernel",
            "preprocess_mamba_align_fused_kernel", "precopy_mamba_align_fused_kernel",
        ]  # fmt: skip
        self.names = execute(
            [bare(function(self.parts, name)) for name in names if name in known],
            {
                "tl": self.language,
                "itertools": itertools,
                "cdiv": lambda a, b: -(-a // b),
                "collect_mamba_copy_meta": self._collect,
                "do_mamba_copy_block": lambda buffers: None,
                "_copy_mamba_state_block": self._note,
            },
        )

    def _collect(self, buffers, config, functions, groups, source, target, bias, request, context):
        if source != target or bias:
            self.copies.append(Copied(request.name, source, target, int(bias)))

    def _note(self, state, row, source, target, bias, *rest):
        self.copies.append(Copied(self.rows[row], source, target, int(bias)))

    def run(self, kernel: str, rows: int, **given: Any) -> None:
        """Run a kernel for each row of a batch; pointers to nothing are None."""
        code = self.names[kernel].__code__
        arguments = code.co_varnames[: code.co_argcount]
        full = dict.fromkeys(arguments) | {"COPY_BLOCK_SIZE": 1, "CONV_STATE_DIM_FIRST": False}
        full |= {name: Pointer(value) if isinstance(value, list) else value for name, value in given.items()}
        full |= {"TEMPORAL_TILES": 1, "num_reqs": rows}
        for row in range(rows):
            self.language.program = (row, 0, 0)
            self.names[kernel](**{name: full[name] for name in arguments if name in full})

    def taken(self) -> list[Copied]:
        found, self.copies = self.copies, []
        return found


class RunnerV1:
    """``GPUModelRunner`` of ``v1/worker/gpu_model_runner.py``."""

    def __init__(self, folder: Path, block: int, drafts: int, config_block: int) -> None:
        self.kernels = Kernels(folder, block, drafts)
        self.columns: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        added = function(tree(folder / "v1/worker/gpu_input_batch.py"), "add_request")
        self.reset = next(
            node
            for node in added.body
            if isinstance(node, ast.Assign) and "num_accepted_tokens_cpu[" in ast.unparse(node.targets[0])
        )

    def step(self, rows: list[Planned], preempted: list[str]) -> tuple[list[Copied], list[Copied]]:
        """Run a step; returns the copies before the forward pass, and those after it."""
        here = [row.name for row in rows]
        resumed = {row.name for row in rows if row.fresh}
        for name in [name for name in self.counts if name not in here or name in resumed]:
            del self.counts[name]
        for name in [name for name in here if name not in self.counts]:
            cells = [0]
            execute([self.reset], {"self": SimpleNamespace(num_accepted_tokens_cpu=cells), "req_index": 0})
            self.counts[name] = cells[0]
        kernels, batch = self.kernels, [self.counts[name] for name in here]
        kernels.rows = here
        kernels.names["preprocess_mamba"](
            SimpleNamespace(
                finished_req_ids=set(),
                preempted_req_ids=set(preempted),
                scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=resumed),
                num_scheduled_tokens={row.name: row.end - row.start for row in rows},
            ),
            None,
            SimpleNamespace(enable_prefix_caching=True),
            self.columns,
            SimpleNamespace(req_ids=here, num_accepted_tokens_cpu=batch),
            {row.name: SimpleNamespace(name=row.name, num_computed_tokens=row.start) for row in rows},
            {},
            (),
            SimpleNamespace(
                mamba_group_ids=[1],
                mamba_spec=SimpleNamespace(num_speculative_blocks=kernels.drafts, block_size=kernels.block),
                offset=0,
            ),
        )
        before = kernels.taken()
        self.read = dict(zip(here, batch, strict=True))
        counts = [max(row.sampled, 1) for row in rows]
        out = list(counts)
        kernels.run(
            "postprocess_mamba_fused_kernel",
            len(rows),
            num_accepted_tokens_ptr=counts,
            mamba_state_idx_ptr=[self.columns[name] for name in here],
            num_scheduled_tokens_ptr=[row.end - row.start for row in rows],
            num_computed_tokens_ptr=[row.start for row in rows],
            num_draft_tokens_ptr=[row.drafts for row in rows],
            num_accepted_tokens_out_ptr=out,
            block_size=kernels.block,
            HAS_IDX_MAPPING=False,
            PRECOMPUTED_NEW_COMPUTED=False,
        )
        self.counts = dict(zip(here, out, strict=True))
        return before, kernels.taken()


class RunnerV2:
    """``MambaHybridModelState`` of ``v1/worker/gpu/model_states/mamba_hybrid.py``; a request's slot is its number."""

    def __init__(self, folder: Path, block: int, drafts: int, config_block: int) -> None:
        self.kernels = Kernels(folder, block, drafts)
        self.slots: list[str] = []
        source = tree(folder / "v1/worker/gpu/model_states/mamba_hybrid.py")
        scatter = bare(function(source, "_scatter_num_accepted_kernel"))
        execute([scatter], self.kernels.names)
        state = ast.ClassDef("State", [ast.Name("Base", ast.Load())], [], [bare(function(source, "add_request"))], [])
        base = type("Base", (), {"add_request": lambda *args: None})
        self.state = execute([state], {"Base": base, "__name__": "release"})["State"]()
        self.state.num_accepted_tokens_gpu, self.state._mamba_state_idx_gpu = Cells(), Cells()
        self.state._align_mode = True
        self.state.cache_config = SimpleNamespace(block_size=config_block, mamba_block_size=block)
        self.sources, self.offsets, self.computed = [], [], []

    @property
    def counts(self) -> dict[str, int]:
        return dict(zip(self.slots, map(int, self.state.num_accepted_tokens_gpu), strict=True))

    def step(self, rows: list[Planned], preempted: list[str]) -> tuple[list[Copied], list[Copied]]:
        """Run a step; returns the copies before the forward pass, and those after it."""
        kernels, state = self.kernels, self.state
        for row in rows:
            if row.name not in self.slots:
                self.slots.append(row.name)
                for cells in (state.num_accepted_tokens_gpu, state._mamba_state_idx_gpu):
                    cells.append(0)
                for cells in (self.sources, self.offsets, self.computed):
                    cells.append(0)
            slot = self.slots.index(row.name)
            if row.fresh:
                state.add_request(slot, SimpleNamespace(num_computed_tokens=row.start))
            self.computed[slot] = row.start
        mapping = [self.slots.index(row.name) for row in rows]
        starts = list(itertools.accumulate([0, *(row.end - row.start for row in rows)]))
        # Block tables were in the order of the batch, later in that of the slots.
        by_slot = "bt_row_idx = batch_idx" not in ast.unparse(function(kernels.parts, "postprocess_mamba_fused_kernel"))
        kernels.rows = self.slots if by_slot else [row.name for row in rows]
        kernels.run(
            "preprocess_mamba_align_fused_kernel",
            len(rows),
            idx_mapping_ptr=mapping,
            state_idx_ptr=state._mamba_state_idx_gpu,
            num_computed_tokens_ptr=self.computed,
            query_start_loc_ptr=starts,
            num_accepted_tokens_ptr=state.num_accepted_tokens_gpu,
            src_col_ptr=self.sources,
            src_off_ptr=self.offsets,
            BLOCK_SIZE=1,
            MAMBA_BLOCK_SIZE=kernels.block,
        )
        kernels.run(
            "precopy_mamba_align_fused_kernel",
            len(rows),
            mamba_state_idx_ptr=state._mamba_state_idx_gpu,
            src_col_ptr=self.sources,
            token_bias_ptr=self.offsets,
            idx_mapping_ptr=mapping,
            HAS_IDX_MAPPING=True,
        )
        before = kernels.taken()
        self.read = {row.name: self.counts[row.name] for row in rows}
        kernels.run(
            "_scatter_num_accepted_kernel",
            len(rows),
            idx_mapping_ptr=mapping,
            num_sampled_ptr=[row.sampled for row in rows],
            num_accepted_ptr=state.num_accepted_tokens_gpu,
        )
        for row, slot in zip(rows, mapping, strict=True):
            self.computed[slot] = row.end - row.drafts + max(row.sampled, 1) - 1
        kernels.run(
            "postprocess_mamba_fused_kernel",
            len(rows),
            num_accepted_tokens_ptr=state.num_accepted_tokens_gpu,
            mamba_state_idx_ptr=state._mamba_state_idx_gpu,
            num_computed_tokens_ptr=self.computed,
            num_accepted_tokens_out_ptr=state.num_accepted_tokens_gpu,
            idx_mapping_ptr=mapping,
            block_size=kernels.block,
            HAS_IDX_MAPPING=True,
            PRECOMPUTED_NEW_COMPUTED=True,
        )
        return before, kernels.taken()
