"""Where indexes live."""

import os
from pathlib import Path

import pytest

from octavo import OctavoError
from octavo.runtime.store.model_library import Library


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "models" / "small.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF and more")
    return path


def test_indexes_live_beside_the_model(model):
    assert Library.of(model).folder == model.parent / "small.octavo"


def test_indexes_live_where_the_user_says(model, tmp_path):
    assert Library.of(model, tmp_path / "mine").folder == tmp_path / "mine" / "small.octavo"


def test_indexes_of_a_model_in_a_read_only_folder_live_in_the_users_cache(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not Path(path).is_relative_to(model.parent))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache" / name))
    library = Library.of(model)
    assert library.folder.is_relative_to(tmp_path / "cache" / "octavo" / "indexes")
    assert library.model_hash == Library.of(model).model_hash
    assert not (model.parent / "small.octavo").exists()


def test_indexes_of_a_model_in_an_environment_live_in_the_users_data(tmp_path, monkeypatch):
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / "data" / name))
    installed = tmp_path / "env" / "lib" / "site-packages" / "models" / "small.gguf"
    installed.parent.mkdir(parents=True)
    installed.write_bytes(b"GGUF and more")
    library = Library.of(installed)
    assert library.folder.is_relative_to(tmp_path / "data" / "octavo" / "indexes")
    assert Library.of(installed, tmp_path / "mine").folder == tmp_path / "mine" / "small.octavo"
    older = installed.with_name("small.octavo")
    older.mkdir()
    (older / "model.json").write_text("{}")
    assert Library.of(installed) == library
    (older / "novel-0123456789ab").mkdir()
    (older / "novel-0123456789ab" / "manifest.json").write_text("{}")
    assert Library.of(installed).folder == older  # indexes of an older octavo still open


def test_models_of_one_name_in_two_folders_have_a_cache_each(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    other = tmp_path / "others" / model.name
    assert Library.of(model).folder != Library.of(other).folder


def test_the_models_hash_is_remembered_until_the_file_changes(model):
    first = Library.of(model).model_hash
    assert Library.of(model).model_hash == first
    model.write_bytes(b"GGUF and other")
    assert Library.of(model).model_hash != first


def test_a_folder_that_cannot_be_made_is_told(model, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OctavoError, match="`index_dir`"):
        _ = Library.of(model, tmp_path / "file").model_hash
