"""Test that what a notebook shows is read."""

import json

import pytest

from octavo.documents.left_out import LeftOut
from octavo.documents.text.notebook import extract_notebook

TABLE = "<style>td{color:red}</style><table><tr><th>Boat<th>Tonnes<tr><td>Petrel<td>41</table>"
GRID = "| Boat | Tonnes |\n| --- | --- |\n| Petrel | 41 |"


def read(*outputs, source=""):
    cell = {"cell_type": "code", "source": source, "outputs": [{"data": data} for data in outputs]}
    return extract_notebook(json.dumps({"nbformat": 4, "cells": [cell]}).encode(), "a.ipynb")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"text/html": [TABLE], "text/plain": "<IPython.core.display.HTML object>"}, GRID),
        ({"text/html": TABLE, "text/plain": ["     Boat  Tonnes\n", "0  Petrel  41"]}, GRID),
        ({"text/html": TABLE}, GRID),
        ({"text/html": "<b>fit</b>", "text/plain": "Model(a=1)"}, "```\nModel(a=1)\n```"),
        ({"text/html": "<script>draw()</script>", "text/plain": "Plot"}, "```\nPlot\n```"),
        ({"text/latex": "$x^2$", "text/plain": "<IPython.core.display.Latex object>"}, "$x^2$"),
        ({"text/latex": "$x^2$", "text/plain": "x**2"}, "```\nx**2\n```"),
        ({"text/markdown": "**High**", "text/plain": "<IPython.core.display.Markdown object>"}, "**High**"),
    ],
)
def test_an_output_is_read_as_it_is_shown(data, text):
    document = read(data)
    assert (document.text, document.notices) == (f"{text}\n", ())


def test_pictures_are_counted():
    picture = {"image/png": "AAEC", "text/plain": "<Figure size 640x480 with 1 Axes>"}
    document = read(picture, {"image/svg+xml": "<svg/>"}, source="draw()")
    assert document.text == "```\ndraw()\n```\n\n```\n<Figure size 640x480 with 1 Axes>\n```\n"
    assert document.notices == LeftOut(picture=2).notices("a.ipynb")
    cell = {
        "cell_type": "markdown",
        "source": f"a ![b](data:image/png;base64,{'A' * 90}) ![](data:image/png;base64,AA)",
    }
    document = extract_notebook(json.dumps({"nbformat": 4, "cells": [cell]}).encode(), "a.ipynb")
    assert (document.text, document.notices) == ("a ![b] \n", LeftOut(picture=1).notices("a.ipynb"))
