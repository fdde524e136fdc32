"""Run the real scheduler of a vLLM release and tell, line by line, what it decides.

The parent (``stateat.sim.adapters.vllm``) starts this folder with the Python that has vLLM: ``python vllm_child``. It
imports vLLM and the standard library, and nothing of stateat. Published hashes are heard from the release's own block
pool, never worked out here.

It knows the releases 0.26.0 to 0.33.0 and checkouts between them. Where these differ, the place says which of them have
what. A release that has neither shape is refused (``objects.Strange``), and an option that a release changed is refused
by name (``configuration.Configuration.hold``).

With ``--stub`` the modules that a scheduler imports but does not use (torch, kernels, models, servers) are stand-ins.
"""

from __future__ import annotations

import logging
import signal
import sys

from conversation import serve, streams
from stand_ins import stub


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = streams()
    # Modules that warn while they are imported, before vLLM has set its own level.
    logging.lastResort.setLevel(logging.ERROR)
    if "--stub" in sys.argv:
        stub()
    serve(read, write)


if __name__ == "__main__":
    main()
