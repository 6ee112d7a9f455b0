"""The files of the cache: damage, bounds, processes at the same time, folders that do not serve."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from octants.cache import source_version
from octants.cache import store as store_module
from octants.cache.store import FileStore
from octants.diagnostics.exceptions import OctantsWarning
from tests.cache.sessions import Sessions

PROGRAM = """
x = qd.field(qd.f32, shape=4, needs_grad=True)
y = qd.field(qd.f32, shape=(), needs_grad=True)
@qd.kernel
def f():
    for i in x:
        y[None] += x[i] * x[i]
x.fill(3.0)
with qd.ad.Tape(loss=y):
    f()
result = [float(y[None]), x.grad.to_numpy().tolist()]
"""
RESULT = [36.0, [6.0, 6.0, 6.0, 6.0]]


def files(sessions: Sessions) -> list[Path]:
    return sorted(sessions.cache.glob("*.octants"))


# -- damage ----------------------------------------------------------------------------------------

DAMAGES: dict[str, Any] = {
    "empty": lambda data: b"",
    "cut in the middle": lambda data: data[: len(data) // 2],
    "without the last byte": lambda data: data[:-1],
    "one bit": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: os.urandom(len(data)),
    "another schema": lambda data: data.replace(b"octants-cache-", b"octants-cache-9", 1),
    "a line": lambda data: data.split(b"\n")[0] + b"\n",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files(name: str, sessions: Sessions) -> None:
    sessions.run(PROGRAM)
    count = len(files(sessions))
    for path in files(sessions):
        path.write_bytes(DAMAGES[name](path.read_bytes()))
    damaged = sessions.run(PROGRAM)
    assert damaged.result == RESULT
    assert damaged.builds == 1
    assert len([text for text in damaged.warned if "damaged" in text]) == 1
    whole = sessions.run(PROGRAM)
    assert (whole.result, whole.builds, whole.compiled) == (RESULT, 0, 0)
    assert len(files(sessions)) == count


def test_each_file_alone_may_be_gone_or_damaged(sessions: Sessions) -> None:
    sessions.run(PROGRAM)
    content = {path: path.read_bytes() for path in files(sessions)}
    assert len(content) >= 4
    for path, data in content.items():
        for changed in (None, data[:50]):
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)
            assert sessions.run(PROGRAM).result == RESULT
            again = sessions.run(PROGRAM)
            assert (again.result, again.builds, again.compiled) == (RESULT, 0, 0)


def test_a_file_cannot_make_arbitrary_objects(sessions: Sessions, tmp_path: Path) -> None:
    """One that is whole by its hash, but holds what we would not have written."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    sessions.run(PROGRAM)
    store = FileStore(sessions.cache)
    for path in files(sessions):
        if b'"manifest"' not in path.read_bytes():
            store.write(path.name.removesuffix(".octants"), pickle.dumps(Evil()))
    run = sessions.run(PROGRAM)
    assert run.result == RESULT
    assert run.builds == 1
    assert not (tmp_path / "made").exists()


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made(sessions: Sessions) -> None:
    sessions.cache.write_text("a file, where the folder should be")
    for _ in range(2):
        run = sessions.run(PROGRAM)
        assert (run.result, run.builds) == (RESULT, 1)
        assert len([text for text in run.warned if "cannot be" in text]) <= 2
    assert not run.warned  # said once


def test_a_user_without_a_place_for_files(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OCTANTS_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    run = sessions.run(PROGRAM, offline_cache_file_path="")
    assert (run.result, run.builds, run.warned) == (RESULT, 1, [])


def test_files_of_the_package_that_change_meanwhile(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is no longer what the files say: nothing is found, nothing is kept."""
    sessions.run(PROGRAM)
    before = files(sessions)
    for state in ((float("inf"), ""), (0.0, "other files")):
        monkeypatch.setattr(source_version, "_state", lambda state=state: state)
        run = sessions.run(PROGRAM.replace("x[i] * x[i]", "x[i] * x[i] * 1.0"))
        assert (run.result, run.builds) == (RESULT, 1)
        assert sessions.run(PROGRAM).builds == 1
        assert files(sessions) == before


def fail_with(code: int) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_disk_or_a_read_only_folder(
    code: int, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_write", fail_with(code))
    run = sessions.run(PROGRAM)
    assert run.result == RESULT
    assert len([text for text in run.warned if "cannot be written" in text]) == 1
    assert not files(sessions)
    monkeypatch.undo()
    sessions.run(PROGRAM)
    monkeypatch.setattr(store_module, "_write", fail_with(code))
    monkeypatch.setattr(store_module.os, "utime", fail_with(code))
    run = sessions.run(PROGRAM)  # reading still serves
    assert (run.result, run.builds, run.warned) == (RESULT, 0, [])


def test_files_that_cannot_be_read(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.run(PROGRAM)
    monkeypatch.setattr(store_module, "_content", fail_with(errno.EIO))
    run = sessions.run(PROGRAM)
    assert run.result == RESULT
    assert len([text for text in run.warned if "cannot be read" in text]) == 1


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = FileStore(tmp_path / "cache")
    place.write("a", b"first")
    monkeypatch.setattr(store_module.os, "replace", fail_with(errno.ENOSPC))
    with pytest.warns(OctantsWarning, match="cannot be written"):
        place.write("a", b"second")
    assert place.read("a") == b"first"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a.octants"]


# -- bounds ----------------------------------------------------------------------------------------


def fill(place: FileStore, count: int, nbytes: int) -> None:
    for number in range(count):
        place.write(f"f{number}", bytes(nbytes))
        os.utime(place.folder / f"f{number}.octants", (number + 1.0, number + 1.0))


def names(place: FileStore) -> set[str]:
    return {path.stem for path in place.folder.glob("*.octants")}


def test_what_was_not_used_for_the_longest_time_gives_way(tmp_path: Path) -> None:
    place = FileStore(tmp_path, largest=8000, policy="lru")
    fill(place, 10, 1000)
    assert place.read("f0") is not None  # used now
    place.trim()
    assert place.size() <= 8000
    assert "f0" in names(place)
    assert {"f1", "f2"}.isdisjoint(names(place))
    assert "f9" in names(place)


def test_what_is_oldest_gives_way(tmp_path: Path) -> None:
    place = FileStore(tmp_path, largest=8000, policy="fifo")
    fill(place, 10, 1000)
    place.read("f0")
    place.trim()
    assert "f0" not in names(place)


def test_nothing_gives_way(tmp_path: Path) -> None:
    for place in (FileStore(tmp_path, 10, "never"), FileStore(tmp_path, 0, "lru")):
        fill(place, 3, 1000)
        place.trim()
        assert len(names(place)) == 3


def test_other_versions_give_way(tmp_path: Path) -> None:
    FileStore(tmp_path, policy="version", version="1").write("old", b"")
    place = FileStore(tmp_path, policy="version", version="2")
    place.write("new", b"")
    place.trim()
    assert names(place) == {"new"}


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    place = FileStore(tmp_path)
    for name, age in (("dead", 7200.0), ("alive", 0.0)):
        (tmp_path / f"{name}.tmp").write_bytes(b"half")
        os.utime(tmp_path / f"{name}.tmp", (time.time() - age,) * 2)
    place.trim()
    assert [path.name for path in tmp_path.iterdir()] == ["alive.tmp"]


def test_a_run_keeps_the_bound(sessions: Sessions) -> None:
    sessions.run(PROGRAM)
    before = sum(path.stat().st_size for path in files(sessions))
    for number in range(3):
        changed = PROGRAM.replace("3.0", f"{number}.0").replace("x[i] * x[i]", f"x[i] * {number}.0")
        sessions.run(changed, offline_cache_max_size_of_files=before)
        assert sum(path.stat().st_size for path in files(sessions)) <= before


# -- at the same time ------------------------------------------------------------------------------


def test_threads_write_and_read_one_file(tmp_path: Path) -> None:
    """A reader sees one of the contents that were written, never a mixture, never a half."""
    contents = [bytes([k]) * 50_000 for k in range(4)]
    FileStore(tmp_path).write("a", contents[0])
    wrong: list[Any] = []

    def work(content: bytes) -> None:
        place = FileStore(tmp_path)
        for _ in range(30):
            place.write("a", content)
            if place.read("a") not in contents:
                wrong.append(content[0])

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [path.name for path in tmp_path.iterdir()] == ["a.octants"]


def test_processes_at_the_same_time(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import octants as qd\nqd.init(arch=qd.cpu, log_level='error')"
        + PROGRAM
        + "\nprint(result)\n"
    )
    environment = {
        **os.environ,
        "OCTANTS_OFFLINE_CACHE": "1",
        "OCTANTS_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-W", "error", str(script)]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in running:
        output, _ = process.communicate(timeout=120)
        assert (process.returncode, output.strip()) == (0, str(RESULT))
    assert not list((tmp_path / "cache").glob("*.tmp"))
