#!/usr/bin/env bash
# mammoth 1.13.0: a style without w:type ends the conversion with a KeyError, though the attribute is optional.
#
# Expected: the paragraph, as ECMA-376 (17.7.4.17) makes w:type optional, and a paragraph's style the default.
# Seen: KeyError('w:type'), even if nothing uses that style. Word and python-docx open the file.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mammoth==1.13.0 python-docx==1.2.0
"$folder/venv/bin/python" << 'EOF'
import io
import zipfile
from importlib.metadata import version

import docx
import mammoth

document = docx.Document()
document.add_paragraph("Rent: 740")
document.save(whole := io.BytesIO())
with zipfile.ZipFile(whole) as old, zipfile.ZipFile(changed := io.BytesIO(), "w") as new:
    for name in old.namelist():
        content, typed = old.read(name), b'<w:style w:type="paragraph" w:styleId="BodyText"'
        new.writestr(name, content.replace(typed, b'<w:style w:styleId="BodyText"'))
assert docx.Document(changed).paragraphs[0].text == "Rent: 740"
assert mammoth.convert_to_html(whole).value == "<p>Rent: 740</p>"
try:
    seen = mammoth.convert_to_html(changed).value
except KeyError as problem:
    seen = repr(problem)
print(f"mammoth {version('mammoth')}: {seen}")
assert seen == "KeyError('w:type')", "mammoth does otherwise now"
EOF
