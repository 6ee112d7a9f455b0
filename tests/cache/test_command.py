"""``octants cache``."""

from __future__ import annotations

from pathlib import Path

import pytest

from octants.options import default_cache_directory
from octants.tools.cache_command import size_text
from octants.tools.command_line import main
from tests.cache.sessions import Sessions

PROGRAM = """
@qd.kernel
def square(n: qd.i32) -> qd.i32:
    return n * n
result = square(3)
"""


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["cache", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_info_list_and_clear(sessions: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    sessions.run(PROGRAM)
    folder = "--folder", str(sessions.cache)
    information = said(capsys, "info", *folder)
    assert information[0].split() == ["folder", str(sessions.cache)]
    assert int(information[1].split()[1]) == len(list(sessions.cache.iterdir()))
    (line,) = said(capsys, "list", *folder)
    assert "square (1)" in line
    assert line.endswith("program.py:2")
    sessions.run(PROGRAM.replace("n * n", "n + n"))
    assert len(said(capsys, "list", *folder)) == 1  # one place
    (line,) = said(capsys, "clear", *folder)
    assert line.startswith("removed ")
    assert not list(sessions.cache.iterdir())
    assert said(capsys, "list", *folder) == []
    assert sessions.run(PROGRAM).builds == 1


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("info", "list", "clear"):
        said(capsys, action, "--folder", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTANTS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_directory() == str(tmp_path / "octants")
    monkeypatch.setenv("OCTANTS_CACHE_DIR", str(tmp_path / "mine"))
    assert default_cache_directory() == str(tmp_path / "mine")


def test_sizes() -> None:
    assert [size_text(n) for n in (0, 1023, 2048, 3 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "3 MiB",
        "5.0 GiB",
    ]
