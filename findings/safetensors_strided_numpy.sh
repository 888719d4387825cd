#!/usr/bin/env bash
# safetensors 0.8.0 saves a transposed or sliced NumPy array in the order of memory, without a word.
#
# Expected: `load(save({"x": array}))["x"]` equals `array`, or `save` refuses an array that is not contiguous, as
# safetensors.torch does.
# Seen: the shape is the array's, but the numbers are the first ones of the memory behind it. A transpose of
# [[0, 1, 2], [3, 4, 5]] comes back as [[0, 1], [2, 3], [4, 5]], and every second number of 0 to 9 as 0 to 4.
# `numpy.ascontiguousarray` before `save` keeps the numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.2.6
"$folder/venv/bin/python" - << 'EOF'
import numpy as np
import safetensors
from safetensors.numpy import load, save

print(f"safetensors {safetensors.__version__}, numpy {np.__version__}")
whole = np.arange(6, dtype=np.float32).reshape(2, 3)
seen = {
    "transposed": (whole.T, [[0, 1], [2, 3], [4, 5]]),
    "in Fortran's order": (np.asfortranarray(whole), [[0, 3, 1], [4, 2, 5]]),
    "every second": (np.arange(10, dtype=np.float32)[::2], [0, 1, 2, 3, 4]),
}
for name, (array, wrong) in seen.items():
    loaded = load(save({"x": array}))["x"]
    print(f"{name}: saved {array.tolist()}, loaded {loaded.tolist()}")
    assert loaded.tolist() == wrong, f"{name}: safetensors does otherwise now"
    kept = load(save({"x": np.ascontiguousarray(array)}))["x"]
    assert np.array_equal(kept, array)
EOF
