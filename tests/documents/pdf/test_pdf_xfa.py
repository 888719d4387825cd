"""Test what is read of forms in XFA, and that their pages, which only ask for another program, are not."""

import pytest
from helpers.pdf_files import PdfWriter, lines, read

TEMPLATE = """<template xmlns="http://www.xfa.org/schema/xfa-template/3.3/"><subform name="f">
<draw><value><text>Registration</text></value></draw>
<field name="Name"><caption><value><text>Name of the ship:</text></value></caption></field>
<field name="P"><bind match="dataRef" ref="$.Harbour.Port"/>
<caption><value><text>Home port</text></value></caption></field>
<field name="Flag"><caption><value><text>Flag</text></value></caption><value><text>none</text></value></field>
</subform></template>""".replace("\n", "")
DATA = (
    '<xfa:datasets xmlns:xfa="http://www.xfa.org/schema/xfa-data/1.0/"><xfa:data><f><Name>Halcyon Dawn</Name>'
    "<Harbour><Port>Grimstad</Port></Harbour><Harbour><Port>Risør</Port></Harbour></f></xfa:data></xfa:datasets>"
)


@pytest.mark.parametrize(
    ("needs_program", "expected"),
    [
        (
            True,
            "Registration\n\nName of the ship: Halcyon Dawn\n\nHome port: Grimstad; Risør\n\nFlag: none\n",
        ),
        (False, "Please wait until your program opens the form.\n"),
    ],
)
def test_fields_are_read_where_pages_have_none(needs_program, expected):
    writer = PdfWriter().page(*lines(["Please wait until your program opens the form."]))
    writer.others = {500: ("", TEMPLATE.encode()), 501: ("", DATA.encode())}
    form = "<< /Fields [] /XFA [(template) 500 0 R (datasets) 501 0 R] >>"
    writer.catalog = f"/AcroForm {form} " + "/NeedsRendering true" * needs_program
    document = read(writer)
    assert document.text == expected
    assert len(document.notices) == len(document.left_out) == needs_program
