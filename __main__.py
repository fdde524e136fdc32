"""``python -m stateat``: the command ``stateat``."""

from __future__ import annotations

from stateat.sim.cli.entry import main

if __name__ == "__main__":
    main()
