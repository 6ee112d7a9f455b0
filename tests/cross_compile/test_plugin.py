"""The kernels of tests are recorded, and compiled for other GPUs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import octants as qd
from octants.diagnostics.exceptions import InternalError
from tests.cross_compile import child
from tests.cross_compile import compile as compiling
from tests.cross_compile.child import COMPILED, FAILED, REFUSED, UNREADABLE
from tests.cross_compile.plugin import Observer
from tests.cross_compile.recorded_kernels import Recorder, in_order, read
from tests.cross_compile.targets import TARGETS
from tests.metal.cpp import clang

Log = list[tuple[str, str, str, str]]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernels of a program with a gradient: one of f64, one that is run twice."""
    observer = Observer(Recorder(tmp_path))
    observer.test = "a test"
    qd.init(arch=qd.cpu)
    with monkeypatch.context() as patch:
        observer.install(patch)
        x, loss = qd.field(qd.f32, 40, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)
        y = qd.field(qd.f64, 40)

        @qd.kernel
        def squares(n: qd.i32):
            for i in x:
                for _ in range(n):
                    loss[None] += x[i] * x[i]

        @qd.kernel
        def widen():
            for i in x:
                y[i] = x[i] * 0.5

        x.fill(3)
        with qd.ad.Tape(loss):
            squares(1)
        widen()
        widen()
        assert set(x.grad.to_numpy()) == {6}
    return tmp_path


def outcomes(folder: Path, *names: str) -> dict[str, list[str]]:
    """What the child makes of the kernels of a folder, by target."""
    paths = in_order(folder)
    jobs, log = folder / "jobs", folder / "log"
    jobs.write_text("".join(f"{name} {path}\n" for path in paths for name in names))
    child.main(str(jobs), str(log))
    found: dict[str, list[str]] = {name: [] for name in names}
    for name, path, outcome, said in map(json.loads, log.read_text().splitlines()):
        assert outcome != FAILED, f"{path}: {said}"
        found[name].append(outcome)
    return found


def test_kernels_and_gradients_are_compiled(recorded: Path) -> None:
    kernels = [read(path) for path in in_order(recorded)]
    assert len([each for each in kernels if "@widen" in each.text]) == 1
    assert any(each.reversal for each in kernels)
    assert {each.test for each in kernels} == {"a test"}
    found = outcomes(recorded, "gfx942", "gfx1100", "metal")
    assert found["gfx942"] == found["gfx1100"] == [COMPILED] * len(kernels)
    assert found["metal"] == found["gfx942"], "a kernel of f64 is compiled with f32"


@pytest.mark.slow  # CI compiles thousands in such processes
def test_a_process_compiles_what_it_is_given(recorded: Path) -> None:
    paths = in_order(recorded)[:2]
    found = compiling.compile_kernels(paths, ["gfx1100"])
    assert found.line("gfx1100") == "gfx1100: 2 kernels compiled, 0 refused, 0 unreadable, 0 failed"


def test_what_there_is_no_time_for_is_left_out(recorded: Path) -> None:
    found = compiling.compile_kernels(in_order(recorded)[:2], ["gfx1100"], seconds=1e-9)
    assert (found.left, not found.counts) == (2, True)


def test_each_turn_has_another_order(recorded: Path) -> None:
    orders = {tuple(in_order(recorded, str(turn))) for turn in range(20)}
    assert len(orders) > 1
    assert len({frozenset(order) for order in orders}) == 1


def pretended(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[str, str], str],
    ending: str = "ended with -6: LLVM ERROR",
) -> None:
    """Let processes end when a job has the answer "", and then say how they did."""

    def run(jobs: Path, log: Path, count: int, end: float) -> str:
        with log.open("a") as written:
            for line in jobs.read_text().splitlines():
                name, path = line.split(" ")
                if not (outcome := answer(name, path)):
                    return ending
                written.write(json.dumps([name, path, outcome, "why"]) + "\n")
        return ""

    monkeypatch.setattr(compiling, "_run", run)


def test_what_ends_the_compiler_is_named(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = in_order(recorded)
    bad = str(paths[1])
    pretended(monkeypatch, lambda _, path: COMPILED if path != bad else "")
    found = compiling.compile_kernels(paths, ["gfx942", "metal"])
    compiled = len(paths) - 1
    for name, failure in zip(("gfx942", "metal"), found.failures, strict=True):
        assert failure == f"{name}: {bad} of a test\nthe compiler ended with -6: LLVM ERROR"
        assert found.line(name) == (
            f"{name}: {compiled} kernels compiled, 0 refused, 0 unreadable, 0 slow, 1 failed"
        )


def test_what_takes_too_long_is_named_and_no_failure(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = in_order(recorded)
    slow = str(paths[-1])
    pretended(monkeypatch, lambda _, path: COMPILED if path != slow else "", compiling._TOO_LONG)
    found = compiling.compile_kernels(paths, ["metal"])
    assert not found.failures
    assert found.slow == [f"metal: {slow} of a test: the compiler did not end within 120 s"]
    assert found.counts["metal", COMPILED] == len(paths) - 1


def test_a_kernel_that_takes_too_long_is_ended(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_MOST_SECONDS", 0.0)
    found = compiling.compile_kernels(in_order(recorded)[:1], ["gfx1100"])
    assert len(found.slow) == 1
    assert not found.failures


def test_what_is_under_way_when_the_time_is_over_is_left_out(recorded: Path) -> None:
    paths = in_order(recorded)
    found = compiling.compile_kernels(paths, ["metal"], processes=1, seconds=0.1)
    assert found.left == len(paths)
    assert not found.failures + found.slow


def test_what_fails_is_named(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = in_order(recorded)[:2]
    pretended(monkeypatch, lambda _, path: FAILED if path == str(paths[0]) else REFUSED)
    found = compiling.compile_kernels(paths, ["metal"])
    assert found.failures == [f"metal: {paths[0]} of a test\nwhy"]
    assert found.line("metal") == (
        "metal: 0 kernels compiled, 1 refused, 0 unreadable, 0 slow, 1 failed"
    )


def test_an_operation_that_only_a_test_knows_is_no_failure(recorded: Path) -> None:
    path = next(path for path in in_order(recorded) if "binary<mul>" in read(path).text)
    kernel = read(path)
    unknown = replace(kernel, text=kernel.text.replace("binary<mul>", "midpoint<mul>"))
    path.write_bytes(pickle.dumps(unknown))
    assert child.compile_kernel("metal", str(path)) == (UNREADABLE, "")


def test_an_error_of_the_compiler_is_a_failure(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InternalError("no")

    monkeypatch.setattr(child, "compile_kernel", fail)
    with pytest.raises(AssertionError, match="InternalError: no"):
        outcomes(recorded, "gfx1100")


@pytest.mark.skipif(clang() is None, reason="no clang++ here, which checks texts of Metal")
def test_a_wrong_address_space_is_found_among_all_texts() -> None:
    good = "#include <metal_stdlib>\nvoid f(device uint* x)\n{\n    x[0] = 3u;\n}\n"
    bad = good.replace("x[0]", "*(threadgroup uint*)(x)")
    check = TARGETS["metal"].check_all
    assert check is not None
    assert check({"a": good, "b": good}) == {}
    ((name, said),) = check({"a": good, "b": bad, "c": good}).items()
    assert name == "b" and "address_space" in said
