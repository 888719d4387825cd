"""Models by name: those of a hub that a local server plays, and those that other programs keep."""

import _thread
import json
import time
from pathlib import Path

import pytest
from helpers import tiny_models
from helpers.command_line import octavo
from helpers.hub import playing

from octavo import OctavoError
from octavo.runtime.models import hub as hub_module
from octavo.runtime.models.faster_file import faster_file
from octavo.runtime.models.find_model import default_model, describe, find_local, find_model, local_models
from octavo.runtime.store.model_library import Library

REPO = "somebody/Tiny-GGUF"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder that holds nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / ".cache/huggingface/hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path


@pytest.fixture
def hub(home, monkeypatch, tiny_model):
    """A hub with a model in several quantisations."""
    with playing() as (hub, url):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        content = Path(tiny_model).read_bytes()
        names = ["README.md", "mmproj-tiny-f16.gguf", "tiny-Q2_K.gguf", "tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf"]
        hub.repos[REPO] = {name: content + name.encode() for name in names}
        yield hub


def fetch(name=REPO):
    notices = []
    return hub_module.fetch(name, notices.append), notices


def test_a_download_names_a_file_that_is_read_faster(hub, monkeypatch):
    features = "octavo.cpu_kernels.numba_support.machine_features"
    monkeypatch.setattr(f"{features}.MULTIPLIES_WEIGHTS", True)
    monkeypatch.setattr(f"{features}.ADDS_PRODUCTS", False)
    _, notices = fetch(f"{REPO}:Q8_0")
    assert notices[0] == f"Fetching tiny-Q8_0.gguf of {REPO}, once."
    assert notices[1:] == [faster_file(hub.repos[REPO], "tiny-Q8_0.gguf")] != [""]
    assert fetch(f"{REPO}:Q8_0")[1] == []


def test_a_model_is_fetched_once(hub):
    path, notices = fetch()
    assert path.name == "tiny-Q4_K_M.gguf"
    assert path.read_bytes() == hub.repos[REPO]["tiny-Q4_K_M.gguf"]
    assert notices == [f"Fetching tiny-Q4_K_M.gguf of {REPO}, once."]
    hub.asked.clear()
    assert fetch() == (path, [])
    assert hub.asked == []


@pytest.mark.parametrize(
    ("wanted", "file"),
    [(":Q8_0", "tiny-Q8_0.gguf"), (":q2_k", "tiny-Q2_K.gguf"), ("/tiny-Q2_K.gguf", "tiny-Q2_K.gguf")],
)
def test_a_quantisation_or_a_file_can_be_named(hub, wanted, file):
    assert fetch(REPO + wanted)[0].name == file
    hub.asked.clear()
    assert fetch(REPO + wanted)[0].name == file
    assert hub.asked == []


def test_the_first_model_is_taken_where_none_is_preferred(hub):
    del hub.repos[REPO]["tiny-Q4_K_M.gguf"]
    assert fetch()[0].name == "tiny-Q2_K.gguf"


def test_a_model_in_parts_is_fetched_whole(hub):
    parts = {f"tiny-Q4_K_M-0000{number}-of-00003.gguf": b"part %d" % number for number in (1, 2, 3)}
    hub.repos[REPO] = parts
    path, _ = fetch()
    assert path.name == "tiny-Q4_K_M-00001-of-00003.gguf"
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == parts


def test_a_model_of_which_parts_are_missing_is_fetched_again(hub):
    hub.repos[REPO] = {f"tiny-Q4_K_M-0000{number}-of-00002.gguf": b"part %d" % number for number in (1, 2)}
    path, _ = fetch()
    other = path.with_name("tiny-Q4_K_M-00002-of-00002.gguf")
    other.resolve().unlink()
    other.unlink()
    for wanted in ("", ":Q4_K_M"):
        assert fetch(REPO + wanted)[0] == path
        assert other.read_bytes() == b"part 2"


def test_an_interrupted_download_leaves_whole_parts_and_no_other(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    content = hub.repos[REPO]["tiny-Q8_0.gguf"]
    names = [f"tiny-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    hub.repos[REPO] = {names[0]: b"part 1", names[1]: content}

    def interrupt():
        time.sleep(0.5)  # what was sent has arrived
        _thread.interrupt_main()
        time.sleep(0.5)

    hub.breaks_after, hub.when_broken, hub.breaks_file = 1_000_000, interrupt, names[1]
    with pytest.raises(KeyboardInterrupt):
        fetch()
    hub.asked.clear()
    path, _ = fetch()
    assert [(path.parent / name).read_bytes() for name in names] == [b"part 1", content]
    fetched = [asked.rpartition("/")[2] for verb, asked, _ in hub.asked if verb == "GET" and "/resolve/" in asked]
    assert fetched == names[1:]


def test_a_broken_connection_goes_on_where_it_stopped(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    hub.breaks_after = 1_000_000
    path, _ = fetch()
    assert path.read_bytes() == hub.repos[REPO]["tiny-Q4_K_M.gguf"]
    ranges = [asked for _, _, asked in hub.asked if asked]
    assert ranges
    assert int(ranges[-1].removeprefix("bytes=").split("-")[0]) >= 900_000


def test_a_file_with_another_hash_is_removed(hub):
    content = hub.repos[REPO]["tiny-Q4_K_M.gguf"]
    hub.hashes[content] = "0" * 64
    with pytest.raises(OctavoError, match=r"came damaged, so it was removed"):
        fetch()
    del hub.hashes[content]
    assert fetch()[0].read_bytes() == content


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("somebody/nothing", r"The hub has no model somebody/nothing, or it is private"),
        (f"{REPO}:Q5_K_M", r"has no Q5_K_M\. It has mmproj-tiny-f16.gguf, tiny-Q2_K.gguf,"),
        ("nonsense", r"Models of the hub are named hf:owner/repo or hf:owner/repo:quant: not hf:nonsense\."),
        ("a/b/../c.gguf", r"has no model a/b"),
    ],
)
def test_what_is_not_there_is_said(hub, name, message):
    with pytest.raises(OctavoError, match=message):
        fetch(name)


def test_a_repository_without_models_says_so(hub):
    hub.repos[REPO] = {"model.safetensors": b"x"}
    with pytest.raises(OctavoError, match="has no GGUF files"):
        fetch()


def test_a_gated_model_says_how_to_get_it(hub, monkeypatch):
    hub.gated.add(REPO)
    with pytest.raises(OctavoError, match=r"accepted its terms.*hf auth login"):
        fetch()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert fetch()[0].name == "tiny-Q4_K_M.gguf"


def test_without_a_hub_what_is_here_is_used_and_the_rest_is_said(hub, monkeypatch):
    path, _ = fetch()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert fetch()[0] == path
    with pytest.raises(OctavoError, match="the hub cannot be reached"):
        fetch("somebody/else")


def test_commands_take_names_of_the_hub(hub):
    result = octavo("inspect", f"hf:{REPO}")
    assert "llama" in result.stdout, result.stderr
    result = octavo("index", __file__, "-hf", REPO, "-m", "x.gguf")
    assert "-hf stands in place of -m" in result.stderr
    library = Library.of(find_model(f"hf:{REPO}", print))
    assert "tiny-Q4_K_M" in library.folder.name
    assert "blobs" not in library.folder.parts


@pytest.fixture
def kept(home, tiny_model):
    """Models as other programs keep them."""
    content = Path(tiny_model).read_bytes()
    ollama = home / ".ollama/models"
    digest = "sha256:" + "ab" * 32
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": digest}]
    for place in ("registry.ollama.ai/library/tiny/3b", "example.org/me/mine/latest"):
        manifest = ollama / "manifests" / place
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"layers": layers}))
    (ollama / "manifests/registry.ollama.ai/library/tiny/broken").write_text("{")
    (ollama / "blobs").mkdir()
    (ollama / "blobs" / digest.replace(":", "-")).write_bytes(content)
    files = [".lmstudio/models/me/tiny/tiny-Q8_0.gguf", ".cache/llama.cpp/me_tiny_tiny.gguf"]
    files += [".cache/llama.cpp/big-00001-of-00002.gguf", ".cache/llama.cpp/big-00002-of-00002.gguf"]
    for file in files:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_bytes(content)
    (home / ".lmstudio/models/loop").symlink_to(home / ".lmstudio")
    (home / ".lmstudio/models/me/broken.gguf").write_bytes(b"GGUF")
    return home


def test_models_of_other_programs_are_found_by_name(kept):
    names = {model.name for model in local_models()}
    assert {
        "lmstudio:me/tiny/tiny-Q8_0.gguf",
        "lmstudio:me/broken.gguf",
        "llama.cpp:me_tiny_tiny.gguf",
        "llama.cpp:big-00001-of-00002.gguf",
    } <= names
    assert not any("00002-of" in name.split("00001")[0] for name in names)
    assert {"ollama:tiny:3b", "ollama:example.org/me/mine:latest"} & names
    for model in local_models():
        assert find_local(model.name) == model.path


def test_a_model_of_ollama_has_a_library_of_its_own_elsewhere(kept):
    path = find_local("ollama:tiny:3b")
    library = Library.of(path)
    assert path.name == "tiny-3b.gguf"
    assert describe(path).architecture == "llama"
    assert library.folder.name.startswith("tiny-3b-")
    assert ".ollama" not in str(library.folder)


def test_a_name_that_is_not_there_says_what_is(kept):
    with pytest.raises(OctavoError, match=r"There is no model ollama:other\. There are ollama:"):
        find_local("ollama:other")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny", "There is no model tiny. On this disk there are "),
        ("llama3", "hf:OWNER/REPO fetches one of the Hugging Face hub, once, such as hf:bartowski/"),
        ("llama3.2:1b", "There is no model llama3.2:1b. On this disk there are "),
        ("me/tiny-GGUF", "There is no file me/tiny-GGUF: a model of the Hugging Face hub is named hf:me/tiny-GGUF."),
        ("me/tiny-GGUF:Q8_0", "is named hf:me/tiny-GGUF:Q8_0."),
    ],
)
def test_a_name_that_no_program_has_says_what_there_is_and_how_to_fetch(kept, name, said):
    with pytest.raises(OctavoError) as refusal:
        find_model(name, print)
    assert said in str(refusal.value)


def test_models_with_the_name_in_theirs_come_first(kept):
    with pytest.raises(OctavoError, match=r"On this disk there are ollama:tiny:3b"):
        find_model("tiny:3b", print)


def test_a_path_that_does_not_exist_stays_a_path(kept, tmp_path):
    for path in (Path("missing.gguf"), tmp_path / "missing"):
        assert find_model(path, print) == path


def test_the_model_in_use_is_listed_first(kept, tmp_path, monkeypatch):
    model = tiny_models.write_model(tmp_path / "mine.gguf", "llama")
    monkeypatch.setenv("OCTAVO_MODEL", str(model))
    listed = json.loads(octavo("models", "-o", "json").stdout)
    assert [one["in_use"] for one in listed] == [True] + [False] * (len(listed) - 1)
    assert listed[0]["path"] == str(model)
    assert octavo("models").stdout.splitlines()[2].startswith(f"{model} (in use)")
    monkeypatch.setenv("OCTAVO_MODEL", "ollama:tiny:3b")
    names = [one["name"] for one in json.loads(octavo("models", "-o", "json").stdout)]
    assert names[0] == "ollama:tiny:3b"
    assert names.count("ollama:tiny:3b") == 1


def test_without_a_setting_the_default_model_is_in_use(kept, monkeypatch):
    monkeypatch.delenv("OCTAVO_MODEL", raising=False)
    first = json.loads(octavo("models", "-o", "json").stdout)[0]
    assert (first["in_use"], first["path"]) == (True, str(default_model()))
    assert first["context"] > 0


def test_a_model_that_is_not_there_is_told_and_the_others_listed(kept, monkeypatch):
    monkeypatch.setenv("OCTAVO_MODEL", "llama3")
    result = octavo("models")
    assert "There is no model llama3." in result.stderr
    assert "ollama:tiny:3b" in result.stdout
    assert "(in use)" not in result.stdout


def test_models_are_listed_with_what_their_headers_say(kept):
    result = octavo("models", "--output", "json")
    listed = {model["name"]: model for model in json.loads(result.stdout)}
    tiny = listed["lmstudio:me/tiny/tiny-Q8_0.gguf"]
    assert (tiny["runs"], tiny["architecture"], tiny["indexes"]) == (True, "llama", 0)
    assert tiny["context"] > 0
    assert listed["lmstudio:me/broken.gguf"]["problem"] == "it is not a whole GGUF file"
    shown = octavo("models").stdout
    assert "no: it is not a whole GGUF file" in shown
    assert "ollama:" in shown


def test_encoders_are_not_run_and_decoders_that_pool_are(tmp_path):
    encoder = tiny_models.write_model(tmp_path / "bert.gguf", "bert")
    assert describe(encoder).problem == "it has no KV cache: each token sees the whole text"
    decoder = tiny_models.write_model(tmp_path / "embedder.gguf", "qwen3", pooling=3)
    assert describe(decoder).problem == ""


def test_nothing_to_list_is_said(home):
    result = octavo("models")
    assert "There are no models of other programs on this disk" in result.stderr
