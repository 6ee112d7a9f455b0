"""What a user sees while a compile takes long."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import octants as qd
from octants import slow_compiles
from octants.slow_compiles import CompileWatch, watched
from tests.golden_files import check_golden, without_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every compile takes long."""
    monkeypatch.setattr(slow_compiles, "SHOW_AFTER", 0.001)
    monkeypatch.setattr(slow_compiles, "WARN_AFTER", 0.001)
    monkeypatch.setattr(slow_compiles, "_PERIOD", 0.001)
    monkeypatch.setattr(slow_compiles, "_MANY", 100)
    qd.init(arch=qd.cpu, offline_cache=False)


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.usefixtures("impatient")
def test_the_line_that_is_unrolled_is_named() -> None:
    x = qd.field(qd.f32, shape=4)

    @qd.kernel
    def unrolled():
        for i in x:
            for k in qd.static(range(300)):
                x[i] = qd.sin(x[i]) + k

    with pytest.warns(qd.OctantsWarning) as caught:
        unrolled()
    texts = [str(each.message) for each in caught if "OCT429" in str(each.message)]
    text = texts[-1]  # another one may come of the time that reading the source takes
    assert "compiling `unrolled` takes long" in text
    assert "x[i] = qd.sin(x[i]) + k" in text
    assert "unrolled" in text
    text = re.sub(r"[\d.]+ s so far", "2.0 s so far", without_lines(text))
    check_golden(
        "errors/OCT429_slow_compile", re.sub(r"[\d,]+(?= operations| of them)", "900", text)
    )


@pytest.mark.usefixtures("impatient")
def test_where_warnings_are_errors_the_kernel_is_not_launched() -> None:
    x = qd.field(qd.f32, shape=4)

    @qd.kernel
    def unrolled():
        for i in x:
            for k in qd.static(range(400)):
                x[i] = qd.cos(x[i]) + k

    with warnings.catch_warnings(), pytest.raises(qd.OctantsWarning, match="OCT429"):
        warnings.simplefilter("error")
        unrolled()
    assert x.to_numpy().tolist() == [0.0] * 4


def test_time_in_which_other_processes_run_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_compiles, "WARN_AFTER", 0.001)
    monkeypatch.setattr(slow_compiles, "_PERIOD", 0.001)
    monkeypatch.setattr(slow_compiles.time, "process_time", lambda: 3.0)
    looked: list[float] = []

    class Waiting(CompileWatch):
        def _worked(self) -> float:
            looked.append(super()._worked())
            return looked[-1]

        def _warn(self) -> bool:
            raise AssertionError

    watch = Waiting("simulate", io.StringIO())
    wait_for(lambda: len(looked) > 2)
    assert watch.end() > 0
    assert not any(looked)


def test_what_is_quick_warns_of_nothing() -> None:
    qd.init(arch=qd.cpu, offline_cache=False)
    x = qd.field(qd.f32, shape=4)

    @qd.kernel
    def increment():
        for i in x:
            x[i] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        increment()


def test_a_terminal_shows_the_kernel_until_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_compiles, "SHOW_AFTER", 0.001)
    monkeypatch.setattr(slow_compiles, "_PERIOD", 0.001)
    terminal = Terminal()
    watch = CompileWatch("simulate", terminal)
    wait_for(lambda: "compiling" in terminal.getvalue())
    watch.end()
    shown = terminal.getvalue()
    assert "octants: compiling simulate: 0 s" in shown
    assert shown.endswith("\r" + " " * len("octants: compiling simulate: 0 s") + "\r")


def test_a_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_compiles, "SHOW_AFTER", 0.001)
    stream = io.StringIO()
    watch = CompileWatch("simulate", stream)
    time.sleep(0.02)
    watch.end()
    assert stream.getvalue() == ""


def test_the_logger_hears_of_compiles(caplog: pytest.LogCaptureFixture) -> None:
    qd.init(arch=qd.cpu, offline_cache=False, log_level="debug")
    x = qd.field(qd.f32, shape=4, needs_grad=True)

    @qd.kernel
    def double():
        for i in x:
            x[i] *= 2

    with caplog.at_level(logging.DEBUG, logger="octants"):
        double()
        double()
    texts = [record.getMessage() for record in caplog.records if record.name == "octants"]
    parts = [text.partition(":")[0] for text in texts if "`double`" in text]
    assert parts == ["frontend of `double`", "primal of `double`"]


@pytest.mark.parametrize(("level", "is_shown"), [("debug", True), ("info", False)])
def test_who_asks_for_details_sees_them(tmp_path: Path, level: str, is_shown: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import octants as qd\n"
        f"qd.init(arch=qd.cpu, offline_cache=False, log_level={level!r})\n"
        "x = qd.field(qd.f32, 4)\n"
        "@qd.kernel\n"
        "def double():\n    for i in x:\n        x[i] *= 2\n"
        "double()\n"
    )
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert ("[octants] primal of `double`: " in found.stderr) == is_shown
    assert found.stdout == ""


def test_a_compile_inside_another_is_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    class Counting(CompileWatch):
        def __init__(self, kernel: str) -> None:
            started.append(kernel)
            super().__init__(kernel)

    monkeypatch.setattr(slow_compiles, "CompileWatch", Counting)
    with watched("outer", "primal"), watched("inner", "primal"):
        pass
    assert started == ["outer"]


@pytest.mark.usefixtures("impatient")
def test_a_warning_waits_until_the_module_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source alone may take long to read; then there is no line yet to name."""
    looked, warned = list[None](), list[Any]()

    class Reading(CompileWatch):
        def _warn(self) -> bool:
            looked.append(None)
            return super()._warn()

    monkeypatch.setattr(slow_compiles, "warn_at_spans", warned.append)
    watch = Reading("simulate", io.StringIO())
    wait_for(lambda: len(looked) > 2)
    assert not warned
    module: Any = SimpleNamespace(location="here", walk=lambda: (), size=lambda: 3)
    watch.module = module
    wait_for(lambda: warned)
    watch.end()
    ((diagnostic,),) = warned
    assert "compiling `simulate` takes long" in str(diagnostic)
