#!/usr/bin/env bash
# Where a GPU is at hand: the tests of the kernels on it, then the table of gpu.py. Ends within 8
# minutes whatever happens. PYTHON is one with torch for CUDA, triton, and what the tests need;
# the log and the figures go to OUT (default benchmarks/out).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=${PYTHON:-$(test -x .venv/bin/python && echo .venv/bin/python || echo python3)}
out=${OUT:-benchmarks/out}
mkdir -p "$out"
export PYTHONPATH=.:tests PROBMAP_TEST_DEVICE=cuda
unset TRITON_INTERPRET

"$python" -c 'import torch, triton; assert torch.cuda.is_available(); print(torch.__version__, triton.__version__, torch.cuda.get_device_name())' || exit 1
timeout 240 "$python" -m pytest -q -p no:cacheprovider tests/interpreted_kernels.py tests/interpreted_cuts.py 2>&1 | tee "$out/gpu-tests.txt"
tested=$?
timeout 220 "$python" benchmarks/gpu.py --json "$out/gpu.json" 2>&1 | tee "$out/gpu.txt"
measured=$?
echo "tests: $tested, table: $measured (0 is well)"
exit $((tested > measured ? tested : measured))
