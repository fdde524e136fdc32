"""``stateat geometry``: the block sizes and bytes that vLLM derives for a hybrid model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from stateat.sim.cli.options import EXISTING, OUTPUT, check_outputs, console_on, write_text_or_stdout
from stateat.sim.errors import InputError
from stateat.sim.files import nearby, write_text
from stateat.sim.printable import short

TOKENS = click.IntRange(1, 1 << 30)

LARGEST = 1 << 50
_NUMBER = re.compile(r"[0-9]{1,16}|[1-9][0-9]{0,2}(,[0-9]{3}){1,5}")


def _number(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """A whole number as a log has it, with a comma before every three digits or with none."""
    if text is None:
        return None
    number = int(text.replace(",", "")) if _NUMBER.fullmatch(text) else 0
    if not 1 <= number <= LARGEST:
        raise click.BadParameter(
            f"found {short(text)!r}, allowed a whole number from 1 to {LARGEST}, such as 1,234,567 or 1234567"
        )
    return number


@click.command()
@click.argument("config", required=False, type=EXISTING)
@click.option("--model", "name", metavar="NAME", help="Instead of CONFIG: a model by name, qwen3.6-27b.")
@click.option(
    "--preset", default="vllm-0.27.0", show_default=True, metavar="NAME", help="The release whose rules hold."
)
@click.option("--tensor-parallel-size", "--tp", default=1, metavar="N", help="Ranks of tensor parallelism.")
@click.option("--dtype", default="auto", metavar="DTYPE", help="Of the weights: float32, bfloat16, float16.")
@click.option("--kv-cache-dtype", "--kv-dtype", default="auto", metavar="DTYPE", help="fp8, bfloat16, nvfp4 and so on.")
@click.option("--mamba-cache-dtype", default="auto", metavar="DTYPE", help="Of the convolution's inputs and the state.")
@click.option("--mamba-ssm-cache-dtype", "--state-dtype", default="auto", metavar="DTYPE", help="Of the state alone.")
@click.option("--mamba-cache-mode", metavar="MODE", help="none, align or all (default: as the release decides).")
@click.option("--enable-prefix-caching/--no-enable-prefix-caching", default=None, help="Default: on.")
@click.option("--num-speculative-tokens", "--mtp", default=0, type=click.IntRange(0, 1024), metavar="K", help="Drafts.")
@click.option("--speculative-method", default="mtp", show_default=True, metavar="NAME", help="Who drafts.")
@click.option("--block-size", type=TOKENS, metavar="N", help="The attention block to start from.")
@click.option("--mamba-block-size", type=TOKENS, metavar="N", help="In all mode: in place of the kernel's chunk.")
@click.option("--prefix-match-unit", type=TOKENS, metavar="N", help="Tokens of a hash.")
@click.option("--max-model-len", type=click.IntRange(2, 1 << 30), metavar="N", help="Default: the model's.")
@click.option("--max-num-batched-tokens", default=8192, show_default=True, type=TOKENS, metavar="N", help="A step's.")
@click.option("--gdn-prefill-backend", default="auto", metavar="NAME", help="auto (flashinfer), triton, cutedsl.")
@click.option(
    "--attention-kernel-block", default=16, show_default=True, type=TOKENS, metavar="N", help="Its smallest block."
)
@click.option(
    "--kv-cache-size-tokens",
    callback=_number,
    metavar="N",
    help="What the server's log says: GPU KV cache size: N tokens. Gives num_blocks.",
)
@click.option(
    "--kv-cache-memory-bytes", callback=_number, metavar="N", help="Instead of it: bytes of the pool on a rank."
)
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="As JSON; - for stdout.")
@click.option("--scenario", "scenario_path", type=OUTPUT, metavar="FILE", help="A new scenario with this geometry.")
def geometry(
    config: Path | None, name: str | None, json_path: Path | None, scenario_path: Path | None, **flags: Any
) -> None:
    """The block sizes and bytes that vLLM derives for a hybrid model, and what can never be hit.

    CONFIG is a model's Hugging Face config.json. Options have vLLM's names; nothing is loaded or downloaded.

    \b
    Examples:
      stateat geometry --model qwen3.6-27b --tp 2 --kv-cache-dtype fp8 --mtp 3
      stateat geometry --model qwen3.6-27b --kv-cache-dtype fp8 --mtp 3 --scenario qwen.yaml
    """
    from stateat.sim.explain.shortest import shortest_repeat
    from stateat.sim.geometry.derive import derive
    from stateat.sim.geometry.example import options, scenario
    from stateat.sim.geometry.families import read
    from stateat.sim.geometry.model import Serving
    from stateat.sim.geometry.named import NAMED, named
    from stateat.sim.geometry.remarks import remarks
    from stateat.sim.report.terminal.geometry import print_geometry, to_json

    check_outputs({"--json": json_path, "--scenario": scenario_path}, [config] if config else [])
    if scenario_path is not None and (scenario_path.exists() or scenario_path.is_symlink()):
        raise InputError(f"--scenario {nearby(scenario_path)}: it is there already, allowed a new file")
    if config is not None and name is not None:
        raise InputError("CONFIG and --model: name one of them")
    if config is None and name is None:
        raise InputError(f"found no model, allowed a config.json or --model {', '.join(NAMED)}")
    _check_names(flags)
    found = derive(named(name) if name is not None else read(config or Path()), Serving(**flags))
    engine = options(found)
    repeat = shortest_repeat(engine)
    shortest = None if repeat is None else repeat.tokens
    warnings = remarks(found, shortest, engine.hash_unit)
    text = scenario(found, scenario_path.stem) if scenario_path is not None else ""
    print_geometry(found, shortest, engine.hash_unit, warnings, console_on(stderr=str(json_path) == "-"))
    if json_path is not None:
        report = to_json(found, shortest, engine.hash_unit, warnings)
        write_text_or_stdout(json_path, json.dumps(report, indent=2) + "\n")
    if scenario_path is not None:
        write_text(scenario_path, text, "--scenario")
        click.echo(f"{nearby(scenario_path)}: written; next: stateat check {nearby(scenario_path)}", err=True)


def _check_names(flags: dict[str, Any]) -> None:
    from stateat.kernels.families import DTYPES
    from stateat.sim.geometry.model import GDN_BACKENDS, KV_DTYPES, MODES
    from stateat.sim.options import METHODS
    from stateat.sim.schema import choice

    for key, names in (
        ("dtype", ("auto", *DTYPES)),
        ("kv_cache_dtype", ("auto", *KV_DTYPES)),
        ("mamba_cache_dtype", ("auto", *DTYPES)),
        ("mamba_ssm_cache_dtype", ("auto", *DTYPES)),
        ("mamba_cache_mode", (None, *MODES)),
        ("speculative_method", METHODS),
        ("gdn_prefill_backend", GDN_BACKENDS),
    ):
        if flags[key] not in names:
            allowed = [item for item in names if item is not None]
            raise InputError(f"--{key.replace('_', '-')}: {choice(flags[key], allowed)}")
