#!/usr/bin/env bash
# openpyxl 3.1.5: a workbook that Excel saves as "Strict Open XML" opens as one without any sheet.
#
# Expected: the sheet and its cells, or an error.
# Seen: sheetnames is [], and a UserWarning about "an invalid specification for 0": the names of the strict standard
# (purl.oclc.org) are those of no element that openpyxl knows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openpyxl==3.1.5
"$folder/venv/bin/python" << 'EOF'
import io
import re
import warnings
import zipfile
from importlib.metadata import version

import openpyxl

book = openpyxl.Workbook()
book.active["A1"] = "Rent"
book.save(usual := io.BytesIO())
assert openpyxl.load_workbook(usual).active["A1"].value == "Rent"
with zipfile.ZipFile(usual) as old, zipfile.ZipFile(strict := io.BytesIO(), "w") as new:
    for name in old.namelist():
        names = rb"http://schemas\.openxmlformats\.org/(spreadsheetml|officeDocument)/2006/"
        new.writestr(name, re.sub(names, rb"http://purl.oclc.org/ooxml/\1/", old.read(name)))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    seen = openpyxl.load_workbook(strict).sheetnames
print(f"openpyxl {version('openpyxl')}: sheets {seen}, {[str(one.message) for one in told]}")
assert seen == [], "openpyxl does otherwise now"
EOF
