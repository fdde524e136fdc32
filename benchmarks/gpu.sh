#!/bin/sh
# Checks and times the Triton kernels on the GPU of this machine, in under 8 minutes, with what is installed.
#
#   benchmarks/gpu.sh [--rehearse] [--only FAMILY] [--json FILE] [--sweep]
#
# PYTHON names the interpreter (default: .venv/bin/python if there, else python3). Exit code: 0 all is as it must be, 1 a
# check failed, 2 no GPU (or no torch or triton) here. --rehearse walks the same way on tiny sizes under Triton's
# interpreter, without a GPU; its figures mean nothing.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ ! -x .venv/bin/python ] || PYTHON=.venv/bin/python
fi

missing() {
  echo "gpu.sh: $1" >&2
  exit 2
}

command -v "$PYTHON" >/dev/null || missing "no '$PYTHON'; name a Python in PYTHON"
"$PYTHON" -c 'import numpy, torch, triton' 2>/dev/null ||
  missing "'$PYTHON' lacks numpy, torch or triton (pip install 'stateat[states]' there, or name another in PYTHON)"

# The whole must end; timeout is absent on some systems.
LIMIT=
! command -v timeout >/dev/null || LIMIT='timeout 480'
PYTHONPATH=. exec $LIMIT "$PYTHON" benchmarks/gpu.py "$@"
