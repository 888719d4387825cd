"""A text that begins as an indexed one does: only the rest is read, and the index is that of a fresh build."""

import shutil

import pytest
from helpers import tiny_models
from helpers.index_builds import Recorded, assert_same_index, build, library_of, new_llama, text_of

from octavo.convert.clusters import ClusterSettings
from octavo.runtime.store.manifest import DOCUMENT

#: Somewhat more than two pieces of 1,024 tokens, a token a character; and a change in the second piece.
LONG = text_of(2600)
EDITED = LONG[:1500] + "?" + LONG[1501:]


@pytest.fixture(scope="module")
def before(llama, tmp_path_factory):
    """A folder with the index of LONG, which is not to be changed."""
    folder = tmp_path_factory.mktemp("before")
    build(llama, folder, LONG)
    return folder


def n_known(progress):
    """How many tokens were there before reading began."""
    return next(report[3] for report in progress.reports if isinstance(report, tuple) and report[2] == "tokens")


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (LONG + text_of(700, seed=1), 2048),
        (EDITED, 1024),
        (LONG[:2300], 2048),
        (LONG[:2080], 1024),  # the second piece of the shorter text ends earlier, as its last tokens are apart
        ("?" + LONG, 0),
    ],
)
def test_what_stays_is_not_read_again(llama, before, tmp_path, text, known):
    shutil.copytree(before, tmp_path / "both")
    progress = Recorded()
    grown = build(llama, tmp_path / "both", text, progress)
    assert n_known(progress) == known
    fresh = Recorded()
    assert_same_index(grown, build(llama, tmp_path / "fresh", text, fresh))
    assert n_known(fresh) == 0


def test_an_interrupted_build_goes_on_after_what_is_known(llama, before, tmp_path):
    shutil.copytree(before, tmp_path / "both")
    text = LONG + text_of(1400, seed=1)
    with pytest.raises(KeyboardInterrupt):
        build(llama, tmp_path / "both", text, Recorded(at=4))
    progress = Recorded()
    grown = build(llama, tmp_path / "both", text, progress)
    assert n_known(progress) > 2048
    assert_same_index(grown, build(llama, tmp_path / "fresh", text))


def test_the_index_with_most_of_the_beginning_is_taken(llama, before, tmp_path):
    shutil.copytree(before, tmp_path / "both")
    build(llama, tmp_path / "both", EDITED)
    progress = Recorded()
    build(llama, tmp_path / "both", LONG + ".", progress)
    assert n_known(progress) == 2048


def test_what_is_stored_otherwise_is_of_no_use(tiny_model, llama, before, tmp_path):
    shutil.copytree(before, tmp_path / "both")
    progress = Recorded()
    build(new_llama(tiny_model, type_k=8, type_v=8), tmp_path / "both", LONG + ".", progress)
    assert n_known(progress) == 0
    progress = Recorded()
    build(llama, tmp_path / "both", LONG + ".", progress, settings=ClusterSettings(seed=1))  # clusters make no rows
    assert n_known(progress) == 2048


@pytest.mark.parametrize("damage", ["tokens", "layer"])
def test_a_damaged_index_is_of_no_use(llama, before, tmp_path, damage):
    shutil.copytree(before, tmp_path / "both")
    ((path, _),) = library_of(llama, tmp_path / "both").indexes()
    file = path / (DOCUMENT if damage == "tokens" else "layer-001.safetensors")
    file.write_bytes(file.read_bytes()[:-100] if damage == "layer" else b"")
    progress = Recorded()
    build(llama, tmp_path / "both", LONG + ".", progress)
    assert n_known(progress) == 0


def test_layers_that_slide_do_not_keep_what_is_needed(tmp_path):
    path = tiny_models.write_model(tmp_path / "sliding.gguf", "gemma3")
    sliding, progress = new_llama(path), Recorded()
    build(sliding, tmp_path, LONG)
    build(sliding, tmp_path, LONG + ".", progress)
    assert n_known(progress) == 0
