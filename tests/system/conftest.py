"""Control groups that a test writes, in place of this machine's."""

from pathlib import Path

import pytest

from octavo.system import control_groups


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """groups(lines, files): write `lines` as /proc/self/cgroup, and the files of each group, by path."""
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    monkeypatch.setattr(control_groups.sys, "platform", "linux")
    read = Path.read_text

    def write(lines, files):
        monkeypatch.setattr(
            control_groups.Path, "read_text", lambda path, *a: lines if str(path) == "/proc/self/cgroup" else read(path)
        )
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")

    return write
