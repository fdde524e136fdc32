"""The command ``stateat``: it hears signals before anything else is loaded."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from stateat.sim.errors import exit_code
from stateat.sim.signals import INTERRUPTED, forget, raising


def main() -> NoReturn:
    """Runs the command line; always exits."""
    try:
        with raising():
            from stateat.sim.cli.main import main as run

            run(prog_name="stateat")
    except KeyboardInterrupt as interrupt:
        # There may be no standard error, and nothing has been written.
        with suppress(OSError):
            os.write(2, f"{INTERRUPTED}\n".encode())
        sys.exit(exit_code(interrupt))
    finally:
        forget()
    sys.exit(0)
