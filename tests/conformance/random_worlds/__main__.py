"""Compare presets with live releases on random worlds, and shrink what differs.

python tests/conformance/random_worlds --releases 0.27.0,0.33.0 --count 2000 --jobs 2
python tests/conformance/random_worlds --releases 0.33.0 --seed 1 --world 17
"""

from __future__ import annotations

import sys
from pathlib import Path

# A folder that is run as a program: its modules are those of the package beside it.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from random_worlds.program import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
