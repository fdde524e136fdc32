"""``stateat vllm``: releases of vLLM as engines, fetched and listed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from stateat.sim.cli.options import write_text_or_stdout


@click.group()
def vllm() -> None:
    """Releases of vLLM as engines: their real schedulers, without torch.

    \b
    Example:
      stateat vllm install 0.27.0
    """


@vllm.command("install")
@click.argument("releases", nargs=-1, required=True, metavar="RELEASE...")
@click.option("--unpinned", is_flag=True, help="Also what no hash is known of, on the registry's word.")
def vllm_install(releases: Sequence[str], unpinned: bool) -> None:
    """Fetch the schedulers of releases from the package registry: 106 to 336 MB each, of which 28 to 50 MB are kept.

    0.26.0 to 0.33.0 are held against hashes that stateat knows.

    What is fetched is held against the hashes that this project knows, and what does not fit is refused.

    \b
    Example:
      stateat vllm install 0.26.0 0.27.0
    """
    from stateat.sim.adapters.vllm.install import install

    for release in releases:
        install(release, unpinned=unpinned, progress=lambda text: click.echo(text, err=True))


@vllm.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def vllm_list(as_json: bool) -> None:
    """The installed releases, and what they take on the disk.

    \b
    Example:
      stateat vllm list
    """
    from stateat.sim.adapters.vllm.install import base, installed, megabytes

    found, shared = installed(), base()
    if as_json:
        rows = [
            {
                "release": i.release,
                "package": i.package,
                "bytes": i.size,
                "folder": str(i.folder),
                "pinned": i.pinned,
            }
            for i in found
        ]
        about = {"base_bytes": shared.size if shared else 0, "base_pinned": bool(shared and shared.pinned)}
        write_text_or_stdout(Path("-"), json.dumps(about | {"releases": rows}, indent=2) + "\n")
        return
    if not found:
        click.echo("no release is installed; try: stateat vllm install 0.27.0")
        return
    for name, i in [*((i.release, i) for i in found), *([("shared", shared)] if shared else [])]:
        click.echo(f"{name:10} {megabytes(i.size):>7}  {i.folder}{'' if i.pinned else '  unpinned'}")
