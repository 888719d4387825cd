"""The shaders' structs have the fields of the records that Python copies for them."""

import re

from helpers.product import ROOT

from octavo.cpu_kernels.layout.head import HEAD
from octavo.metal.records import GPU_STEP


def fields_of(struct):
    """The names of a struct's fields in metal/common.metal, in order."""
    source = (ROOT / "metal" / "common.metal").read_text("utf-8")
    body = source.partition(f"struct {struct} {{")[2].partition("};")[0]
    return tuple(re.findall(r"(\w+);", body))


def test_a_head_has_the_fields_of_its_record():
    assert fields_of("Head") == HEAD.names


def test_a_step_has_the_fields_of_its_record():
    assert fields_of("Step") == GPU_STEP.names
