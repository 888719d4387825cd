#!/usr/bin/env bash
# llguidance 1.9.1: a grammar of `minProperties` counts a key that is written twice as two properties.
#
# Expected: a schema with "minProperties": 2 lets only objects end that have two properties after parsing.
# Seen: {"a": 1, "a": 2} is accepted. Python, JavaScript and most parsers keep the last of equal keys, so the parsed
# object has one property and does not fit the schema. {"a": 1} alone is refused, as it should be; and keys that the
# schema names under "properties" cannot be repeated.
# Who relies on the grammar has to validate the parsed object as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llguidance==1.9.1
"$folder/venv/bin/python" - << 'EOF'
import json
from importlib.metadata import version

import llguidance

TOKENS = llguidance.LLTokenizer("byte")
SCHEMA = {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}


def accepts(text: str) -> bool:
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA))
    matcher = llguidance.LLMatcher(TOKENS, grammar)
    assert not matcher.get_error()
    tokens = TOKENS.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


for text in ('{"a": 1, "b": 2}', '{"a": 1}', '{"a": 1, "a": 2}'):
    print(f"llguidance {version('llguidance')}: {text}: accepted {accepts(text)}, parsed {json.loads(text)}")
assert accepts('{"a": 1, "b": 2}') and not accepts('{"a": 1}')
assert accepts('{"a": 1, "a": 2}'), "llguidance does otherwise now"
EOF
