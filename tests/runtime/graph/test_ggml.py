"""Test the check of the layout of ggml's tensors: it refuses any layout but the one that octavo knows."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest

import octavo
from octavo.errors import OctavoError
from octavo.runtime.graph import ggml

#: `check_layout` without its cache.
check = ggml.check_layout.__wrapped__


def tensor_with(fields):
    """Make a struct like ggml_tensor of other fields."""

    class Tensor(ctypes.Structure):
        pass

    own = {"view_src": ctypes.POINTER(Tensor)}
    for name, kind in fields:
        if name == "src":
            own[name] = ctypes.POINTER(Tensor) * kind._length_
    Tensor._fields_ = [(name, own.get(name, kind)) for name, kind in fields]
    return Tensor


FIELDS = list(ggml.Tensor._fields_)
NAMES = [name for name, _ in FIELDS]


def shifted_from(name):
    """Make the struct with one more pointer before a field."""
    at = NAMES.index(name)
    return tensor_with([*FIELDS[:at], ("another", ctypes.c_void_p), *FIELDS[at:]])


def assert_refused():
    """Check that the message names the installed version and the one that octavo knows."""
    with pytest.raises(OctavoError) as told:
        check()
    message = str(told.value)
    assert f"llama-cpp-python {llama_cpp.__version__} " in message
    assert "0.3.36" in message.replace(f"llama-cpp-python {llama_cpp.__version__}", "")


def test_the_layout_is_that_of_the_installed_llama_cpp():
    operations = check()
    assert operations.flash_attention != operations.custom
    assert ggml.check_layout() == operations


def test_the_same_fields_in_a_struct_of_our_own_pass(monkeypatch):
    """Check the helper, so that the failures below are due to the layout."""
    monkeypatch.setattr(ggml, "Tensor", tensor_with(FIELDS))
    assert check() == ggml.check_layout()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "buffer"])
def test_another_field_is_refused(monkeypatch, name):
    """Leave out `buffer`, which is not read: a field before it shifts `ne`."""
    monkeypatch.setattr(ggml, "Tensor", shifted_from(name))
    assert_refused()


@pytest.mark.parametrize("name", ["buffer", "op_params", "view_src", "view_offs"])
def test_a_missing_field_is_refused(monkeypatch, name):
    """Leave out `flags`: without it, padding keeps all other fields in place."""
    monkeypatch.setattr(ggml, "Tensor", tensor_with([field for field in FIELDS if field[0] != name]))
    assert_refused()


@pytest.mark.parametrize("n_sources", [8, 9, 11, 12])
def test_another_number_of_sources_is_refused(monkeypatch, n_sources):
    at = NAMES.index("src")
    sources = ("src", ctypes.c_void_p * n_sources)
    monkeypatch.setattr(ggml, "Tensor", tensor_with([*FIELDS[:at], sources, *FIELDS[at + 1 :]]))
    assert_refused()


@pytest.mark.parametrize("name", ["CUSTOM_FUNCTION", "CUSTOM_N_TASKS", "CUSTOM_USER_DATA"])
def test_other_parameters_of_a_custom_operation_are_refused(monkeypatch, name):
    monkeypatch.setattr(ggml, name, getattr(ggml, name) + 4)
    assert_refused()


def test_a_mismatch_keeps_a_model_from_loading(monkeypatch, tiny_model):
    monkeypatch.setattr(ggml, "check_layout", check)
    monkeypatch.setattr(ggml, "Tensor", shifted_from("op_params"))
    with pytest.raises(OctavoError, match=r"lays out its tensors differently"):
        octavo.Llama(tiny_model, n_ctx=128)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_ggml_that_is_checked_is_the_one_that_computes(tmp_path):
    """LLAMA_CPP_LIB_PATH names another build: nothing of the package's own is loaded beside it."""
    package = Path(llama_cpp.__file__).parent / "lib"
    shutil.copytree(package, tmp_path / "own", symlinks=True)
    code = "from octavo.runtime.graph import ggml; ggml.check_layout(); print(open('/proc/self/maps').read())"
    environment = {**os.environ, "LLAMA_CPP_LIB_PATH": str(tmp_path / "own")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert f"{tmp_path}/own/libggml-base" in done.stdout
    assert str(package) not in done.stdout
