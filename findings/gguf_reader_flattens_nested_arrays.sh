#!/usr/bin/env bash
# gguf 0.19.0: GGUFReader returns an array of arrays as one flat list, though GGUFWriter writes the nesting.
#
# Expected: `reader.fields["a.pairs"].contents()` is [[1], [2, 3]], as it was added.
# Seen: [1, 2, 3]. The field's types say ARRAY, ARRAY, INT32, and its parts hold the inner lengths, but `contents` does not
# use them. Two files whose lists are cut at other places give equal contents.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.2.6
"$folder/venv/bin/python" - "$folder/nested.gguf" << 'EOF'
import sys
from importlib.metadata import version

from gguf import GGUFReader, GGUFWriter


def round_trip(value: list) -> object:
    writer = GGUFWriter(sys.argv[1], "llama")
    writer.add_array("a.pairs", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    field = GGUFReader(sys.argv[1]).fields["a.pairs"]
    print(f"gguf {version('gguf')}: added {value}, types {[kind.name for kind in field.types]}, read {field.contents()}")
    return field.contents()


assert round_trip([[1], [2, 3]]) == [1, 2, 3], "gguf does otherwise now"
assert round_trip([[1, 2], [3]]) == [1, 2, 3], "gguf does otherwise now"
EOF
