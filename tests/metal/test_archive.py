"""What Metal has compiled is kept in the cache of kernels, and does no harm if it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsRuntimeError, OctantsWarning
from octants.runtime.metal import pipeline_archive
from tests.metal.cpp import need_compiler
from tests.metal.emulated import emulated_metal
from tests.metal.fake_metal import ARCHIVE, BROKEN_ARCHIVE, FakeMetal

Change = Callable[[FakeMetal], None]


def run(folder: Path, change: Change | None = None, **facts: object) -> FakeMetal:
    """Run one kernel of two tasks on a new Metal, as a new process does."""
    need_compiler()
    with emulated_metal(FakeMetal(**facts)) as fake:  # type: ignore[arg-type]
        if change is not None:
            change(fake)
        qd.init(arch=qd.metal, offline_cache=True, offline_cache_file_path=str(folder))

        @qd.kernel
        def fill(a: qd.types.NDArray[qd.f32, 1]):
            for i in a:
                a[i] = 3.0
            for i in a:
                a[i] += i

        a = qd.ndarray(qd.f32, 3)
        fill(a)
        assert a.to_numpy().tolist() == [3.0, 4.0, 5.0]
    return fake


def archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-pipelines.octants"))


def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert sorted(first.compiled) == ["task_0", "task_1"]
    assert second.compiled == []
    assert second.calls["addComputePipelineFunctionsWithDescriptor:error:"] == 0
    assert len(archives(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["MTLBinaryArchive", "NSURL", "NSArray", "MTLFunction"])
def test_archives_are_released(tmp_path: Path, kind: str) -> None:
    for _ in range(2):
        assert run(tmp_path).alive(kind) == 0


def test_without_a_cache_there_is_no_archive(tmp_path: Path) -> None:
    need_compiler()
    with emulated_metal() as fake:
        qd.init(arch=qd.metal, offline_cache=False)
        qd.field(qd.f32, shape=3).fill(1.0)
        assert fake.calls["newBinaryArchiveWithDescriptor:error:"] == 0


def test_another_macos_compiles_again(tmp_path: Path) -> None:
    def update(fake: FakeMetal) -> None:
        fake.build = "24C101"

    run(tmp_path)
    assert len(run(tmp_path, update).compiled) == 2
    assert len(archives(tmp_path)) == 2
    assert run(tmp_path).compiled == []


@pytest.mark.parametrize("head", [b"archive of another GPU", BROKEN_ARCHIVE], ids=bytes.decode)
def test_an_archive_that_metal_rejects_is_replaced(
    tmp_path: Path, head: bytes, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    given = pipeline_archive.Archive.data
    with monkeypatch.context() as patch:
        patch.setattr(
            pipeline_archive.Archive, "data", lambda self: given(self).replace(ARCHIVE, head, 1)
        )
        run(tmp_path)
    (rejected,) = archives(tmp_path)
    data = rejected.read_bytes()
    second = run(tmp_path)
    assert len(second.compiled) == 2
    assert archives(tmp_path) == [rejected] and rejected.read_bytes() != data
    assert run(tmp_path).compiled == []
    assert second.alive("MTLBinaryArchive") == 0
    assert not [str(each.message) for each in recwarn.list]


def test_a_file_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    run(tmp_path)
    (file,) = archives(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(OctantsWarning, match="damaged"):
        assert len(run(tmp_path).compiled) == 2
    assert run(tmp_path).compiled == []


def test_a_metal_that_refuses_to_archive(tmp_path: Path) -> None:
    def refuse(fake: FakeMetal) -> None:
        fake.refuses_to_archive = True

    for _ in range(2):
        assert len(run(tmp_path, refuse).compiled) == 2
    assert archives(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(pipeline_archive.tempfile, "TemporaryDirectory", refuse)
    assert len(run(tmp_path).compiled) == 2
    assert archives(tmp_path) == []


def test_pipelines_that_do_not_fit_are_released(tmp_path: Path) -> None:
    with pytest.raises(OctantsRuntimeError, match="OCT475"):
        run(tmp_path, most_threads=32)
    assert archives(tmp_path) == []
