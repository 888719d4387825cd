#!/usr/bin/env bash
# llama-cpp-python 0.3.36: LLAMA_CPP_LIB_PATH chooses libllama, but `llama_cpp._ggml` still loads the package's own libggml.
#
# Expected: with LLAMA_CPP_LIB_PATH set to a folder with a whole build of llama.cpp, both come from there.
# Seen: `llama_cpp._ggml` maps a second libggml, from the package's folder, into the same process. Without libraries in
# that folder it raises FileNotFoundError, though llama.cpp itself has loaded. A check that goes through
# `llama_cpp._ggml.libggml` may so look at another build than the one that computes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llama-cpp-python==0.3.36
package=$("$folder/venv/bin/python" -c 'import llama_cpp, pathlib; print(pathlib.Path(llama_cpp.__file__).parent)')
cp -a "$package/lib" "$folder/own"

mapped() {
  LLAMA_CPP_LIB_PATH=$folder/own "$folder/venv/bin/python" - << 'EOF'
import llama_cpp

try:
    import llama_cpp._ggml
except FileNotFoundError as problem:
    print(f"FileNotFoundError: {problem}")
paths = {line.split()[-1] for line in open("/proc/self/maps") if "libggml.so" in line or "libllama.so" in line}
print("\n".join(sorted(" ".join([path.split("/")[-2], path.split("/")[-1].split(".so")[0]]) for path in paths)))
EOF
}

echo "llama-cpp-python 0.3.36, LLAMA_CPP_LIB_PATH=own"
first=$(mapped)
echo "$first"
[ "$first" = $'lib libggml\nown libggml\nown libllama' ] || { echo "llama-cpp-python does otherwise now"; exit 1; }

echo "the same, without the package's own libraries"
mv "$package/lib" "$folder/away"
second=$(mapped)
echo "$second"
[ "$second" = $'FileNotFoundError: Shared library with base name \'ggml\' not found\nown libggml\nown libllama' ] || {
  echo "llama-cpp-python does otherwise now"
  exit 1
}
