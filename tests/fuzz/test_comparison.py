"""The comparison, the shrinker and the runner, with backends made for the purpose."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from octants.fuzz import __main__ as fuzz
from octants.fuzz import backends, runner
from octants.fuzz.backends import BACKENDS, Actual
from octants.fuzz.compare import HARMLESS, Status, check
from octants.fuzz.generator.build import generate
from octants.fuzz.oracle.run import run
from octants.fuzz.program import Program
from octants.fuzz.report import Report
from octants.fuzz.standalone_script import script
from tests.fuzz.helpers import make
from tests.seeds import counts


class Perfect:
    """Gives what the oracle expects."""

    name = "perfect"
    sine_errors = 0.0

    def slack(self, _: Program) -> float:
        return 1.0

    def run(self, programs: Sequence[Program]) -> list[Actual]:
        return [self.actual(program) for program in programs]

    def actual(self, program: Program) -> Actual:
        outcome = run(program)
        return Actual(
            {name: estimate.value.copy() for name, estimate in outcome.primal.items()},
            [estimate.value.copy() for estimate in outcome.returned],
            {"bare": {n: e.value.copy() for n, e in outcome.gradient_with_returned.items()}},
            {name: estimate.value.copy() for name, estimate in outcome.tangent.items()},
        )


class WrongWhileGradients(Perfect):
    """Loses a little of every gradient of a program with a while loop."""

    name = "wrong"

    def actual(self, program: Program) -> Actual:
        actual = super().actual(program)
        if "while" in program.source:
            for values in actual.gradients["bare"].values():
                values *= 1.001
        return actual


class Failing(Perfect):
    """Refuses programs with a break."""

    def actual(self, program: Program) -> Actual:
        if "break" in program.source:
            return Actual(errors={"compile": "SyntaxError: break"})
        return super().actual(program)


class OffBy(Perfect):
    """Returns numbers with an absolute error, like sines of small angles by an instruction."""

    def __init__(self, error: float, sine_errors: float) -> None:
        self.error, self.sine_errors = error, sine_errors

    def slack(self, _: Program) -> float:
        return backends.FAST_SLACK

    def actual(self, program: Program) -> Actual:
        actual = super().actual(program)
        for values in (*actual.returned, *actual.gradients["bare"].values()):
            values += self.error
        return actual


@pytest.mark.parametrize("fn", ["sin", "cos"])
def test_estimated_sines_have_absolute_errors(fn: str) -> None:
    angle = 1.77e-4 + (fn == "cos") * np.pi / 2
    source = f"@qd.kernel\ndef k() -> FP:\n    return qd.{fn}(x[0])\n"
    source = f"x = qd.field(FP, shape=1, needs_grad=True)\n{source}"
    program = make(source, {"x": [angle]}, [("k", ())], "f32", {"x": [0.0]})
    allowed = 1 / backends.FAST_SLACK

    def status(*of: float) -> Status:
        return check([program], OffBy(*of))[0].status

    assert status(1.4e-7, 0.0) is Status.DISAGREES
    assert status(1.4e-7, allowed) is Status.AGREES
    assert status(1e-5, allowed) is Status.DISAGREES


def test_a_perfect_backend_agrees() -> None:
    programs = [generate(seed, "f32") for seed in range(6)]
    assert {v.status for v in check(programs, Perfect())} <= {Status.AGREES, Status.SET_ASIDE}


@pytest.mark.parametrize("count", counts(10, 60))
def test_small_errors_are_noticed(count: int) -> None:
    found = 0
    for seed in range(count):
        program = generate(seed, "f32")
        (verdict,) = check([program], WrongWhileGradients())
        if "while" in program.source and verdict.status is not Status.SET_ASIDE and verdict.nonzero:
            assert verdict.status is Status.DISAGREES, seed
            assert verdict.kinds == {"bare gradient"}
            found += 1
    assert found >= count // 6


@pytest.mark.parametrize("count", counts(1, 5))
def test_what_fails_is_shrunk(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SHRINK_BUDGET", 120)
    entries = [
        entry
        for seed in range(count)
        for entry in runner.work([(seed, "f32", "core")], WrongWhileGradients(), shrinks=True)
        if "source" in entry
    ]
    assert entries
    for entry in entries:
        assert "while" in entry["source"]
        assert entry["source"].count("\n") < 0.6 * generate(entry["seed"], "f32").source.count("\n")
        compile(entry["script"], "script", "exec")


def test_a_script_has_the_options_of_its_seed() -> None:
    made = generate(9, "f32")
    text = script(made, [], "vulkan")
    assert "'vulkan_without': 'masks'" in text and "**OPTIONS" in text
    assert "'ad_stack_budget_bytes': 200," in text
    assert "vulkan_without" not in script(made, [], "cpu")
    assert "vulkan_without" not in script(generate(1, "f32"), [], "vulkan")


def test_errors_are_failures() -> None:
    programs = [generate(seed, "f32") for seed in range(8)]
    for program, verdict in zip(programs, check(programs, Failing()), strict=True):
        if verdict.status is not Status.SET_ASIDE:
            assert (verdict.status is Status.FAILS) == ("break" in program.source)


def test_integers_must_be_equal() -> None:
    source = """
n = qd.field(qd.i32, shape=(2,))
@qd.kernel
def k():
    for i in n:
        n[i] += 1
"""
    program = make(source, {"n": [1, 2]}, [("k", ())])

    class OneOff(Perfect):
        def actual(self, program: Program) -> Actual:
            actual = super().actual(program)
            assert actual.primal is not None
            actual.primal["n"] = actual.primal["n"] + np.array([0, 1])
            return actual

    (verdict,) = check([program], OneOff())
    assert verdict.problems == ["primal: n[1]: expected np.int64(3), got np.int64(4), allowed 0"]


def test_a_report_says_what_is_wrong() -> None:
    report = Report("wrong")
    for entry in runner.work(
        [(s, "f64", "core") for s in range(4)], WrongWhileGradients(), shrinks=False
    ):
        report.add(entry)
    assert report.wrong
    assert report.shortcomings() == [f"{report.wrong} programs disagree or fail"]
    assert "disagrees" in report.text() and "while" in report.text()


def test_a_crash_costs_one_program() -> None:
    worker = runner.Worker("cpu")
    worker.command = [sys.executable, "-c", CRASHING]
    entries = list(worker.run([(1, "f32", "core"), (2, "f32", "core"), (3, "f32", "core")]))
    worker.close()
    assert [entry["status"] for entry in entries] == ["agrees", "fails", "agrees"]
    assert "exit code 3" in entries[1]["problems"][0]


@pytest.mark.parametrize(
    ("backend", "wanted"),
    [("cpu", {False, True}), ("cpu-fast", {True}), ("cpu-strict", {False})],
)
def test_half_of_the_programs_run_as_users_run_them(backend: str, wanted: set[bool]) -> None:
    """`fast_math` is the default; with it, larger errors are allowed."""
    made: Any = BACKENDS[backend]()
    found = set()
    for seed in range(6):
        program = generate(seed, "f32")
        text = script(program, [], backend)
        found.add("'fast_math': True" in text)
        assert made.slack(program) == (backends.FAST_SLACK if "'fast_math': True" in text else 1.0)
    assert found == wanted
    if "strict" not in backend:
        made.run([generate(0, "f32")])
        assert made.qd.cfg.fast_math


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_work_items_that_share_a_block_have_no_fixed_order_on_gpus(backend: str) -> None:
    for profile in ("blocks", "core"):
        program = generate(10, "f32", profile)  # which is `deterministic`
        wanted = backend == "cpu" or profile == "core"
        assert f"'deterministic': {wanted}" in script(program, [], backend), profile


@pytest.mark.parametrize("hang", ["time.sleep(100)", "exec('while True: pass')"])
def test_a_program_that_hangs_costs_one_program(monkeypatch: pytest.MonkeyPatch, hang: str) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 3.0)
    monkeypatch.setattr(runner, "PROGRESS", 0.02)  # a busy machine gives the others little
    worker = runner.Worker("cpu", ["--no-shrink"])
    worker.command = [sys.executable, "-c", CRASHING.replace("os._exit(3)", hang)]
    entries = list(worker.run([(1, "f32", "core"), (2, "f32", "core"), (3, "f32", "core")]))
    worker.close()
    assert [entry["status"] for entry in entries] == ["agrees", "fails", "agrees"]
    assert "exit code -9" in entries[1]["problems"][0]


@pytest.mark.parametrize(("used", "is_killed"), [(1e-6, False), (0.0, True), (1.0, True)])
def test_a_program_may_take_long_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, used: float, is_killed: bool
) -> None:
    """Its processor time is limited, and it must use some."""
    looks, killed = itertools.count(1), threading.Event()
    has_looked_often = threading.Event()

    def processor_time(_: int) -> float:
        number = next(looks)
        if number == 30:
            has_looked_often.set()
        return used * number

    monkeypatch.setattr(runner, "PATIENCE", 0.04)
    monkeypatch.setattr(runner, "PROGRESS", 0.0)
    monkeypatch.setattr(runner, "processor_time", processor_time)
    process: Any = SimpleNamespace(pid=0, kill=killed.set)
    watchdog = runner.Watchdog(process, 0.04)
    watchdog.start()
    (killed if is_killed else has_looked_often).wait(60)
    watchdog.stop()
    assert killed.is_set() == is_killed


@pytest.mark.skipif(sys.platform != "linux", reason="it is unknown")
def test_the_processor_time_of_a_process() -> None:
    command = "import time; sum(range(10**6)); print(time.process_time(), flush=True); input()"
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-c", command]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = float(process.stdout.readline())
        assert said <= runner.processor_time(process.pid) < said + 5.0
        process.stdin.write("\n")


def _refuse_the_second(seed: int, precision: str, profile: str) -> Any:
    if seed == 2:
        raise KeyError("no production")
    return generate(seed, precision, profile)


def test_a_program_that_cannot_be_generated_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "generate", _refuse_the_second)
    cases = [(seed, "f64", "core") for seed in (1, 2, 3)]
    worker = runner.Worker("cpu")
    worker.command = [sys.executable, "-c", CRASHING]
    for entries in (list(runner.work(cases, BACKENDS["cpu"](), False)), list(worker.run(cases))):
        assert [entry["status"] for entry in entries] == ["agrees", "fails", "agrees"]
        assert entries[1]["seed"] == 2
    worker.close()


def test_what_a_thread_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(worker: runner.Worker, chunk: object) -> None:
        raise ArithmeticError("broken")

    monkeypatch.setattr(runner.Worker, "run", broken)
    with pytest.raises(ArithmeticError, match="broken"):
        runner.run(runner.cases(0, 60, ["f32"]), "cpu", 2, [], lambda report, entry: None)


CRASHING = """
import json, os, sys, time
for line in sys.stdin:
    for seed, name, _ in json.loads(line):
        if seed == 2:
            os._exit(3)
        print(json.dumps({"seed": seed, "status": "agrees"}), flush=True)
    print("", flush=True)
"""


def test_a_program_can_be_shown() -> None:
    command = [sys.executable, "-m", "octants.fuzz", "--seed", "5", "--show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout.strip() == generate(5, "f32").source.strip()


def test_sums_of_serial_loops_may_be_rounded_in_another_order() -> None:
    """What loops in a loop add to a place is summed up in a register first."""
    source = """
x = qd.field(FP, shape=1, needs_grad=True, needs_dual=True)
y = qd.field(FP, shape=1, needs_grad=True, needs_dual=True)
t = qd.field(qd.i32, shape=4)

@qd.kernel
def k():
    qd.loop_config(serialize=True)
    for i in range(4):
        for _ in range(t[i]):
            x[0] -= 0.3 * y[0]
"""
    inputs = {"x": [-0.939049482345581], "y": [1.3507685661315918], "t": [7, 7, 7, 7]}
    program = make(source, inputs, [("k", ())])
    in_order = inputs["x"][0]
    for _ in range(28):
        in_order -= 0.3 * inputs["y"][0]
    (actual,) = BACKENDS["cpu"]().run([program])
    assert actual.primal is not None
    assert 0 < abs(actual.primal["x"][0] - in_order) < 1e-14
    (verdict,) = check([program], BACKENDS["cpu"]())
    assert verdict.status is Status.AGREES, verdict.problems


def test_races_without_an_effect_are_no_shortcoming() -> None:
    entry = {"modes": [], "refusals": {}, "features": [], "nonzero": True, "blunt": False}
    for reason, shortcomings in ((HARMLESS, 0), ("close", 1)):
        report = Report("cpu")
        for number in range(100):
            aside = number < 20
            status = Status.SET_ASIDE if aside else Status.AGREES
            report.add(entry | {"status": status.value, "problems": [f"{reason}: x"] * aside})
        assert len(report.shortcomings()) == shortcomings


def test_a_run_that_is_stopped_says_how_far_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves no files behind, although it kills its workers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written: list[Path] = []

    def stop(report: Report, entry: runner.Entry) -> None:
        written.extend(tmp_path.glob("octants-fuzz-*/octants-fuzz-*"))
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, fuzz.stop)
    try:
        report = runner.run(
            runner.cases(0, 60, ["f32"]), "cpu", 2, ["--no-shrink", "--checks", "numpy"], stop
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert report.count == 1
    assert report.summary().endswith("; not run: 59 of 60")
    assert written
    assert list(tmp_path.iterdir()) == []


def test_tapes_that_are_replayed_follow_tapes_with_other_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """
x = qd.field(FP, 3, needs_grad=True, needs_dual=True)

@qd.kernel
def k(x: qd.template(), a: FP):
    for i in x:
        x[i] = qd.sin(x[i]) * a
"""
    seen: list[tuple[float, float]] = []
    tape = backends.Session.tape

    def watched(session: Any, *arguments: Any) -> None:
        seen.append((session.program.inputs["x"][0], session.program.launches[0][1][1]))
        tape(session, *arguments)

    monkeypatch.setattr(backends.Session, "tape", watched)
    program = make(source, {"x": [0.5, 0.25, 0.125]}, [("k", ("x", 2.0))])
    (verdict,) = check([program], BACKENDS["cpu"]())
    assert verdict.status is Status.AGREES, verdict.problems
    own, other = (0.5, 2.0), (0.5 * backends.OTHER, 2.0)
    assert seen == [(0.5, 2.0 * backends.OTHER)] * 2 + [own, other, own, other, own]
