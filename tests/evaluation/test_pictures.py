"""Pictures: what keeps one from being written is said before anything is measured, and when it is written."""

import sys

import pytest

from octavo import OctavoError
from octavo.evaluation.pictures import check_plot, new_figure, save


def test_a_picture_that_can_be_written(tmp_path):
    path = tmp_path / "picture.PNG"
    check_plot(path)
    save(new_figure(2.0, 1.0), path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(content[16:20]) == 2 * int.from_bytes(content[20:24])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("picture.jpg", r"picture\.jpg is not a PNG file's name"),
        ("nowhere/picture.png", "There is no folder .*nowhere"),
    ],
)
def test_a_name_that_no_picture_can_have(tmp_path, name, message):
    with pytest.raises(OctavoError, match=message):
        check_plot(tmp_path / name)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OctavoError, match="Pictures need matplotlib"):
        check_plot(tmp_path / "picture.png")


def test_a_picture_that_cannot_be_written(tmp_path):
    folder = tmp_path / "folder.png"
    folder.mkdir()
    with pytest.raises(OctavoError, match=r"folder\.png cannot be written: Is a directory\.$"):
        save(new_figure(2.0, 1.0), folder)
