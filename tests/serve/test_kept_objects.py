"""Objects that clients keep on a server: found in all libraries, changed by one at a time, never half written."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from octavo.serve import kept_objects
from octavo.serve.kept_objects import KeptObjects
from octavo.serve.request_error import RequestError

FIELDS = {"name": "", "files": []}


def opened(*folders):
    return KeptObjects(folders, "sets", "set", "set", FIELDS)


def test_changes_at_once_lose_nothing(tmp_path):
    made = opened(tmp_path).add(name="all")

    def add(number):
        opened(tmp_path).change(made["id"], lambda kept: kept["files"].append(number))  # as another process does

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(80)))
    assert sorted(opened(tmp_path).get(made["id"])["files"]) == list(range(80))
    assert [file.name for file in (tmp_path / "sets").iterdir()] == [f"{made['id']}.json"]


def test_objects_of_other_libraries_are_known_and_stay_where_they_are(tmp_path):
    first, other = tmp_path / "first", tmp_path / "other"
    made = opened(other).add(name="old")
    both = opened(first, other)
    new = both.add(name="new")
    both.change(made["id"], lambda kept: kept.update(name="older"))
    assert {each["name"] for each in both.all()} == {"older", "new"}
    assert opened(other).get(made["id"])["name"] == "older"
    assert opened(first).get(new["id"]) == new
    both.remove(made["id"])
    assert both.all() == [new]


def test_work_that_fails_changes_nothing(tmp_path):
    kept = opened(tmp_path)
    made = kept.add()

    def fail(changed):
        changed["name"] = "half"
        raise RequestError("No.")

    with pytest.raises(RequestError):
        kept.change(made["id"], fail)
    assert kept.get(made["id"]) == {**made, "name": ""}


def test_an_object_that_grows_too_long_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_objects, "_MOST_BYTES", 1000)
    kept = opened(tmp_path)
    made = kept.add()
    with pytest.raises(RequestError, match="begin a new one"):
        kept.change(made["id"], lambda changed: changed.update(name="x" * 1000))
    assert kept.get(made["id"]) == made


def test_an_object_of_an_older_octavo_gets_its_missing_fields(tmp_path):
    kept = opened(tmp_path)
    made = kept.add()
    [file] = tmp_path.rglob("*.json")
    file.write_text("{}")
    kept.change(made["id"], lambda changed: changed["files"].append("a"))
    assert (kept.get(made["id"])["files"], FIELDS["files"]) == (["a"], [])


@pytest.mark.parametrize("name", ["set_", "set_xyz", "set_../a", "../sets/set_0", "", "other_00"])
def test_names_lead_nowhere_else(tmp_path, name):
    kept = opened(tmp_path)
    kept.add()
    (tmp_path / "a.json").write_text("{}")
    for use in (kept.get, kept.remove, lambda each: kept.change(each, lambda changed: None)):
        with pytest.raises(RequestError, match="There is no set"):
            use(name)
