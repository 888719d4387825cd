"""Test that sums of four products become the instructions that CPUs have for them, also of CPUs that are not here."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from octavo.cpu_kernels.numba_support.machine_features import HAS_AVX2
from octavo.cpu_kernels.numba_support.vector import INT64
from octavo.cpu_kernels.products import integers

VNNI = "+avx2,+avxvnni"
AVX512 = "+avx512f,+avx512bw,+avx512vl,+avx512vnni"


@pytest.fixture(scope="module", autouse=True)
def _all_targets():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def assembly(triple, cpu, features, lanes):
    """Return the assembly of a function that adds products of codes and of bytes at two addresses to integers."""
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * 3), "add")
    builder = ir.IRBuilder(function.append_basic_block())
    codes, elements, total = function.args
    types = integers.vectors_of(lanes)
    own = integers.four_of(builder, elements, 1, lanes)
    sums = integers.load(builder, types.integers, total)
    integers.store(
        builder, integers.add_products(builder, sums, integers.load(builder, types.codes, codes), own), total
    )
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(str(module)))


@pytest.mark.parametrize(
    ("features", "lanes", "instruction"),
    [
        (VNNI, 8, "vpdpbusd\t%ymm"),
        (AVX512, 8, "vpdpbusd\t4(%rsi){1to8}"),
        (AVX512, 16, "vpdpbusd\t4(%rsi){1to16}"),
    ],
    ids=["avx_vnni", "avx512_of_8", "avx512_of_16"],
)
def test_x86_adds_four_products_at_once(monkeypatch, features, lanes, instruction):
    monkeypatch.setattr(integers, "HAS_DOT", False)
    assert assembly("x86_64-unknown-linux-gnu", "", features, lanes).count(instruction) == 1


def test_arm_takes_one_of_four_lanes(monkeypatch):
    monkeypatch.setattr(integers, "HAS_DOT", True)
    lines = assembly("aarch64-unknown-linux-gnu", "", "+dotprod", 8).splitlines()
    products = [line.split("\t")[-1] for line in lines if "sdot" in line]
    assert len(products) == 2
    assert all(operands.endswith("[1]") for operands in products)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_AVX2, reason="the other instructions are AVX2's")
@pytest.mark.parametrize("lanes", [8, 16])
def test_products_by_vnni_are_right(tmp_path, lanes):
    """Run the tests of products as on a CPU with VNNI, or with AVX-512 besides: see the plugin."""
    tests = Path(__file__).with_name("test_multiply.py")
    own = {"PLAIN_LANES": str(lanes), "XDG_CACHE_HOME": str(tmp_path), "OCTAVO_TEST_CPU": ""}
    own["PYTHONPATH"] = os.pathsep.join([str(tests.parents[2]), *sys.path])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "helpers.plain_products",
        "-p",
        "no:cacheprovider",
        str(tests),
    ]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
