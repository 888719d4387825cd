"""Model files before they are loaded: headers that lie, and a first load in a process of its own."""

import json
import os
import struct
from pathlib import Path

import pytest
from gguf import GGUFReader
from helpers import tiny_models

import octavo
from octavo import OctavoError
from octavo.runtime.models import model_file
from octavo.runtime.models.gguf_header import check_gguf

STRING, ARRAY, UINT32 = 8, 9, 4


def text(content):
    content = content if isinstance(content, bytes) else content.encode()
    return struct.pack("<Q", len(content)) + content


ARCHITECTURE = text("general.architecture") + struct.pack("<I", STRING) + text("llama")


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name="a", shape=(32,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(pairs=(ARCHITECTURE,), tensors=(), magic=b"GGUF", version=3, counts=None, data=4096):
    counts = counts or (len(tensors), len(pairs))
    return magic + struct.pack("<IQQ", version, *counts) + b"".join([*pairs, *tensors]) + bytes(data)


GOOD = {
    "no tensors": gguf(),
    "version 2": gguf(version=2),
    "two tensors": gguf(tensors=[tensor(), tensor("b", (32, 4), 8, 128)]),
    "a type of the future": gguf(tensors=[tensor(kind=999)]),
    "an alignment": gguf([ARCHITECTURE, pair("general.alignment", UINT32, struct.pack("<I", 64))], [tensor(offset=64)]),
    "arrays": gguf(
        [
            ARCHITECTURE,
            pair("words", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text(b"\xff")),
            pair("numbers", ARRAY, struct.pack("<IQ", UINT32, 3) + bytes(12)),
        ]
    ),
}

BAD = {
    "other magic": (gguf(magic=b"GGML"), "does not begin with GGUF"),
    "version": (gguf(version=7), "has version 7, not 2 or 3"),
    "big-endian": (gguf(version=3 << 24), "big-endian"),
    "tensors": (gguf(counts=(1 << 60, 0)), "more than the file can hold"),
    "values": (gguf(counts=(0, 1 << 60)), "more than the file can hold"),
    "no architecture": (gguf([]), "does not name an architecture"),
    "a number as architecture": (
        gguf([pair("general.architecture", UINT32, bytes(4))]),
        "does not name an architecture",
    ),
    "a key twice": (gguf([ARCHITECTURE, ARCHITECTURE]), "the key 'general.architecture' twice"),
    "a key without end": (gguf([struct.pack("<Q", 1 << 62)]), "a key has 4,611,686,018,427,387,904 bytes"),
    "a key of no text": (gguf([ARCHITECTURE, pair(b"\xff\xfe", UINT32, bytes(4))]), "a key is not UTF-8"),
    "a value of no text": (gguf([ARCHITECTURE, pair("a", STRING, text(b"\xff"))]), "the value of 'a' is not UTF-8"),
    "a type": (gguf([ARCHITECTURE, pair("a", 77, b"")]), "unknown type, 77"),
    "a truth": (gguf([ARCHITECTURE, pair("a", 7, b"\2")]), "neither true nor false"),
    "an array": (gguf([ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQ", UINT32, 1 << 62))]), "beyond the file's end"),
    "strings": (gguf([ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQ", STRING, 1 << 50))]), "more than the file can"),
    "a string": (
        gguf([ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQQ", STRING, 1, 1 << 40))]),
        "the array 'a' continues beyond the file's end",
    ),
    "arrays of arrays": (gguf([ARCHITECTURE, pair("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "unknown type, 9"),
    "an odd alignment": (
        gguf([ARCHITECTURE, pair("general.alignment", UINT32, struct.pack("<I", 33))]),
        "not a sensible power of two",
    ),
    "a tensor twice": (gguf(tensors=[tensor(), tensor()]), "the tensor 'a' twice"),
    "a long name": (gguf(tensors=[tensor("a" * 64)]), "a tensor's name has 64 bytes"),
    "dimensions": (gguf(tensors=[tensor(shape=(1, 1, 1, 1, 1))]), "has 5 dimensions"),
    "no dimensions": (gguf(tensors=[tensor(shape=())]), "has 0 dimensions"),
    "an empty tensor": (gguf(tensors=[tensor(shape=(0,))]), "has the shape 0"),
    "a shape that overflows": (gguf(tensors=[tensor(shape=(1 << 40, 1 << 40))]), "has the shape"),
    "an odd offset": (gguf(tensors=[tensor(offset=1)]), "not a multiple of 32"),
    "rows of no blocks": (gguf(tensors=[tensor(shape=(33,), kind=8)]), "do not fill blocks of 32"),
    "a cut file": (gguf(tensors=[tensor(shape=(2000,))]), "its tensors end at"),
    "a cut header": (gguf()[:30], "beyond the file's end"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("name", GOOD)
def test_headers_of_the_format_pass(path, name):
    path.write_bytes(GOOD[name])
    check_gguf(path)


@pytest.mark.parametrize("name", BAD)
def test_headers_that_lie_are_told(path, name):
    content, reason = BAD[name]
    path.write_bytes(content)
    with pytest.raises(OctavoError) as problem:
        check_gguf(path)
    assert reason in str(problem.value)
    assert str(problem.value).startswith(f"{path} is damaged or incomplete: ")
    assert str(problem.value).endswith("Download it again, or give another with `model`.")


@pytest.mark.parametrize("architecture", [*tiny_models.RUN, *tiny_models.REFUSED, *tiny_models.LATENT])
def test_models_pass(path, architecture):
    check_gguf(tiny_models.write_model(path, architecture))


def test_a_real_model_passes(real_model):
    check_gguf(real_model)


# The first load.


@pytest.fixture
def apart(tmp_path, loads_apart, monkeypatch):
    """Load models apart, as for users; returns the files for which that was done."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files = []

    def note(file, n_bytes):
        files.append(Path(file).name)
        return loads_apart(file, n_bytes)

    monkeypatch.setattr(model_file, "load_apart", note)
    return files


def test_a_file_is_loaded_apart_once(tiny_model, path, apart):
    path.write_bytes(tiny_model.read_bytes())
    for _ in range(2):
        assert model_file.check(str(path)).template_problem == ""
    assert apart == ["model.gguf"]
    os.utime(path)
    model_file.check(str(path))
    assert len(apart) == 2


def test_the_types_of_weights_are_remembered(tiny_model, apart, monkeypatch):
    first = model_file.check(str(tiny_model))
    assert set(first.weight_types) == {int(tensor.tensor_type) for tensor in GGUFReader(tiny_model).tensors}
    monkeypatch.setattr("octavo.runtime.models.gguf_header.check_gguf", lambda path: pytest.fail("It is read again."))
    assert model_file.check(str(tiny_model)) == first


@pytest.mark.parametrize("kinds", ["F16", ["F16"], [1.5], None], ids=repr)
def test_types_of_weights_that_cannot_be_are_found_again(tiny_model, apart, tmp_path, kinds):
    first = model_file.check(str(tiny_model))
    path = tmp_path / "state" / "octavo" / "models.json"
    path.write_text(json.dumps({name: [*entry[:-1], kinds] for name, entry in json.loads(path.read_text()).items()}))
    assert model_file.check(str(tiny_model)) == first
    assert len(apart) == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 3}', "null"])
def test_what_is_remembered_wrongly_is_found_again(tiny_model, apart, tmp_path, content):
    (tmp_path / "state" / "octavo").mkdir(parents=True)
    (tmp_path / "state" / "octavo" / "models.json").write_text(content)
    assert model_file.check(str(tiny_model)).template_problem == ""
    assert apart == [tiny_model.name]
    assert str(tiny_model) in json.loads((tmp_path / "state" / "octavo" / "models.json").read_text())


def test_a_template_is_remembered_with_its_file(path, apart):
    tiny_models.write_model(path, "llama", chat_template="{{ raise_exception('Not today') }}")
    for _ in range(2):
        assert octavo.Llama(path, n_ctx=64, n_batch=32).template_problem == "it fails: Not today"
    assert len(apart) == 1


def test_a_named_template_that_fails_leaves_the_default_one_in_use(path, apart):
    named = "{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[9].content }}{% bad %}"
    templates = [("default", tiny_models.CHAT_TEMPLATE), ("tool_use", named)]
    tiny_models.write_model(path, "llama", chat_template=[{"name": name, "template": text} for name, text in templates])
    llama = octavo.Llama(path, n_ctx=64, n_batch=32)
    assert llama.template_problem == ""
    assert llama.prompt().has_template
    assert "tokenizer.chat_template.tool_use" in llama._model.metadata()
    assert len(apart) == 1


def test_a_model_that_llama_cpp_refuses_is_told_with_its_words(path, apart):
    path.write_bytes(gguf([text("general.architecture") + struct.pack("<I", STRING) + text("nosuch")]))
    with pytest.raises(OctavoError, match=r"llama\.cpp refuses it: .*unknown model architecture: 'nosuch'"):
        model_file.check(str(path))
    assert apart == ["model.gguf"]
    with pytest.raises(OctavoError):  # what failed is not remembered as good
        model_file.check(str(path))


def test_an_abort_of_llama_cpp_is_a_sentence(tiny_model, path, apart, monkeypatch):
    """A process that ends as llama.cpp's own abort does, after a line of its kind."""
    script = path.with_name("aborts")
    script.write_text("#!/bin/sh\necho 'ggml.c:99: GGML_ASSERT(n > 0) failed' >&2\nkill -ABRT $$\n")
    script.chmod(0o755)
    path.write_bytes(tiny_model.read_bytes())
    monkeypatch.setattr(model_file.sys, "executable", str(script))
    with pytest.raises(OctavoError, match=r"llama\.cpp ended by SIGABRT: GGML_ASSERT\(n > 0\) failed\. Download"):
        model_file.check(str(path))


def test_a_load_that_hangs_is_ended(tiny_model, path, apart, monkeypatch):
    script = path.with_name("hangs")
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    path.write_bytes(tiny_model.read_bytes())
    monkeypatch.setattr(model_file.sys, "executable", str(script))
    monkeypatch.setattr(model_file, "_SECONDS", 0.2)
    with pytest.raises(OctavoError, match=r"llama\.cpp did not load it in 0 s"):
        model_file.check(str(path))
