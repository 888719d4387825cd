#!/usr/bin/env bash
# gguf 0.19.0: GGUFWriter writes no key for an empty string or an empty list, without a word.
#
# Expected: a field with an empty value, as the format has lengths of 0; or an error.
# Seen: `add_string("general.description", "")` and `add_array("general.tags", [])` return as usual. The file has neither
# key, and its count of keys leaves them out. A reader cannot tell "empty" from "unknown": a model that is copied key by
# key loses, for example, an empty `tokenizer.ggml.pre` or an empty list of stop tokens.
# `add_key_value(key, "", GGUFValueType.STRING)` writes an empty string, so the format and the writer can.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.2.6
"$folder/venv/bin/python" - "$folder/empty.gguf" << 'EOF'
import sys
from importlib.metadata import version

from gguf import GGUFReader, GGUFValueType, GGUFWriter

writer = GGUFWriter(sys.argv[1], "llama")
writer.add_string("a.name", "octopus")
writer.add_string("a.description", "")
writer.add_array("a.tags", [])
writer.add_key_value("a.licence", "", GGUFValueType.STRING)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
reader = GGUFReader(sys.argv[1])
keys = [key for key in reader.fields if key.startswith("a.")]
count = reader.fields["GGUF.kv_count"].contents()
print(f"gguf {version('gguf')}: of 4 keys that were added, the file has {keys}; its header counts {count} keys in all")
assert keys == ["a.name", "a.licence"] and count == 3, "gguf does otherwise now"
EOF
