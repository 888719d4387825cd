#!/usr/bin/env bash
# pypdfium2 5.15.2 (PDFium): FPDFText_GetFontWeight of a font without /FontWeight is five times its /StemV.
#
# Expected: about 400 for Times-Roman, or a sign that the file does not say it.
# Seen: 645 for a descriptor with /StemV 129, which groff writes for it: heavier than semi-bold, so that a reader who
# takes 600 and more for bold finds bold text only. With /FontWeight 400 beside the same stem it is 400.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypdfium2==5.15.2
"$folder/venv/bin/python" << 'EOF'
import io

import pypdfium2
import pypdfium2.raw


def weight(about: str) -> int:
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        "<< /Length 32 >>\nstream\nBT /F 20 Tf 20 100 Td (R) Tj ET  \nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman /FirstChar 82 /LastChar 82 /Widths [667] /FontDescriptor 6 0 R >>",
        "<< /Type /FontDescriptor /FontName /Times-Roman /Flags 34 /FontBBox [-168 -218 1000 898] /ItalicAngle 0 "
        f"/Ascent 683 /Descent -217 /CapHeight 662 {about} >>",
    ]
    file, places = io.BytesIO(b"%PDF-1.5\n"), []
    file.seek(0, io.SEEK_END)
    for number, content in enumerate(objects, 1):
        places.append(file.tell())
        file.write(f"{number} 0 obj\n{content}\nendobj\n".encode())
    table = file.tell()
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    file.write(f"xref\n0 7\n0000000000 65535 f \n{rows}trailer << /Size 7 /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n".encode())
    page = pypdfium2.PdfDocument(file.getvalue())[0].get_textpage()
    assert page.get_text_range() == "R"
    found = pypdfium2.raw.FPDFText_GetFontWeight(page.raw, 0)
    print(f"{about}: {found}")
    return found


print(pypdfium2.PYPDFIUM_INFO, pypdfium2.PDFIUM_INFO)
seen = [weight(about) for about in ("/StemV 84", "/StemV 129", "/StemV 129 /FontWeight 400")]
assert seen == [420, 645, 400], "PDFium does otherwise now"
EOF
