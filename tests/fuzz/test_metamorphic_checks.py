"""Programs run in other configurations give the same; where they do not, that is noticed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octants.autodiff.plan import recording_plan
from octants.fuzz import backends, field_ndarray_conversion, foreign_arrays
from octants.fuzz.backends import BACKENDS, MULTIPLES, Actual, RunConfiguration
from octants.fuzz.compare import Status
from octants.fuzz.metamorphic_checks import CHECKS, Checker
from octants.fuzz.oracle.run import run
from octants.fuzz.program import Program
from octants.interpreter import Interpreter
from octants.launch.warm import specialisation_guards
from octants.passes.code_motion import hoist_loads
from tests.devices import ARCH
from tests.fuzz.helpers import make

SOURCE = """
f = qd.field(FP, shape=(5,), needs_grad=True, needs_dual=True)
x = qd.Vector.ndarray(2, FP, shape=(5,), needs_grad=True, needs_dual=True)
t = qd.field(qd.i32, shape=(5,))

@qd.kernel
def k(x: qd.types.ndarray(qd.types.vector(2, FP), 1), scale: FP):
    for i in range(5):
        a = x[i]
        for j in range(t[i]):
            for _ in range(2):
                a = qd.sin(a * scale) + 0.25 * j
        f[i] = a.x * a.y
"""


def program() -> Program:
    inputs = {"f": [0.1, -0.2, 0.3, 0.4, 0.5], "x": [[0.1 * k, 0.7] for k in range(5)]}
    return make(SOURCE, {**inputs, "t": [3, 1, 4, 0, 2]}, [("k", ("x", 0.75))])


@pytest.mark.parametrize("name", CHECKS)
def test_a_program_passes_each_check(name: str) -> None:
    if name == "torch":
        pytest.importorskip("torch")
    checker = Checker(ARCH, [name], 1)
    found = checker.check(program(), BACKENDS[ARCH]())  # type: ignore[arg-type]
    checker.close()
    assert found.status is Status.AGREES, found.problems
    checks = [mode for mode in found.modes if mode.startswith("check")]
    assert checks == ([f"check {name}"] if checker.chosen else [])


def test_a_check_whose_package_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHECKS, "torch", replace(CHECKS["torch"], needs="a_package_of_nobody"))
    checker = Checker("cpu", list(CHECKS), 1)
    checker.close()
    possible = [name for name, check in CHECKS.items() if check.is_possible("cpu")]
    assert checker.chosen == possible and "torch" not in possible and "lanes" in possible


class Off:
    """A backend whose second run has another last bit, or a gradient that is off."""

    configuration = RunConfiguration()
    sine_errors = 0.0

    def slack(self, _: Program, _configuration: RunConfiguration | None = None) -> float:
        return 1.0

    def __init__(self, part: str, arch: str = "cpu") -> None:
        self.part = part
        self.arch = arch
        self.runs = 0

    def forget(self) -> None:
        """It forgets nothing."""

    def run(self, programs: Sequence[Program]) -> list[Actual]:
        self.runs += 1
        if self.part == "feature" and self.runs == 2:
            return [Actual(errors={"primal": "OctantsRuntimeError: OCT450: kernel `k` needs f64"})]
        outcome = run(programs[0])
        primal = {name: estimate.value.copy() for name, estimate in outcome.primal.items()}
        gradient = {name: estimate.value.copy() for name, estimate in outcome.gradient.items()}
        tangent = {name: estimate.value.copy() for name, estimate in outcome.tangent.items()}
        if self.part == "bit" and self.runs == 2:
            primal["f"][3] = np.nextafter(primal["f"][3], 1.0)
        if self.part == "bit of a gradient" and self.runs == 2:
            gradient["x"][3, 1] = np.nextafter(gradient["x"][3, 1], 1.0)
        if self.part == "gradient":
            gradient["x"] *= 1.001
        second = {name: np.zeros_like(values) for name, values in gradient.items()}
        factors = (1.0, 1.0, 0.5) if self.part == "multiples" else MULTIPLES
        multiples = [{name: k * each for name, each in tangent.items()} for k in factors]
        found = Actual(primal, [np.zeros(0)], {"tape": gradient}, tangent, second, multiples)
        factors = (1.0, -2.0, 1.0) if self.part == "adjoint multiples" else MULTIPLES
        found.adjoint_multiples = [
            {name: k * each for name, each in gradient.items()} for k in factors
        ]
        error = float(self.part == "argument")
        found.arguments = [[each.value + error for each in one] for one in outcome.arguments]
        return [found]


@pytest.mark.parametrize(
    ("name", "part", "problem"),
    [
        ("threads", "bit", "check threads, run 1 other bits in primal: f[3]"),
        ("cache", "bit", "check cache, run 1 other bits in primal: f[3]"),
        ("adjoint", "gradient", "check adjoint, <v, J u> is"),
        ("hessian", "second", "check hessian, second derivative: x"),
        ("directions", "multiples", "check directions, run 0 1/-2.0 tangent: x"),
        ("directions", "adjoint multiples", "check directions, run 0 1/0.5 gradient: x"),
        (
            "arguments",
            "argument",
            "check arguments, run 1 gradient of argument 0 of launch 0: [0]",
        ),
        ("fields", "gradient", "check fields, run 1 tape gradient: x"),
    ],
)
def test_what_differs_is_noticed(name: str, part: str, problem: str) -> None:
    checker = Checker("cpu", [name], 1)
    found = checker.check(program(), Off(part))  # type: ignore[arg-type]
    checker.close()
    assert found.status is Status.DISAGREES
    assert any(text.startswith(problem) for text in found.problems), found.problems


def sums(seed: int = 0) -> Program:
    source = SOURCE.replace("f[i] = a.x * a.y", "f[i // 2] += a.x * a.y")
    return replace(program(), source=source, seed=seed)


IN_ORDER = 10
"""A seed whose options have deterministic sums."""


@pytest.mark.parametrize(
    ("name", "arch", "made", "part", "is_noticed"),
    [
        ("cache", "cuda", program(), "bit", True),
        ("cache", "cuda", program(), "bit of a gradient", False),
        ("cache", "vulkan", sums(), "bit", False),
        ("cache", "vulkan", sums(IN_ORDER), "bit", True),
        ("cache", "cuda", sums(IN_ORDER), "bit of a gradient", True),
        ("cache", "cpu", sums(), "bit of a gradient", True),
        ("deterministic", "cuda", sums(), "bit of a gradient", True),
        ("nests", "cpu", sums(), "bit of a gradient", True),
        ("nests", "vulkan", program(), "bit", True),
        ("nests", "vulkan", sums(IN_ORDER), "bit of a gradient", False),
        ("levels", "cpu", sums(), "bit", False),
    ],
)
def test_bits_are_compared_where_they_are_promised(
    name: str, arch: str, made: Program, part: str, is_noticed: bool
) -> None:
    checker = Checker(arch, [name], 1)
    found = checker.check(made, Off(part, arch))  # type: ignore[arg-type]
    checker.close()
    assert (found.status is Status.DISAGREES) == is_noticed, found.problems


@pytest.mark.parametrize(("name", "is_noticed"), [("features", False), ("levels", True)])
def test_a_device_may_refuse_what_needs_a_feature_that_it_lacks(
    name: str, is_noticed: bool
) -> None:
    checker = Checker("vulkan", [name], 1)
    found = checker.check(program(), Off("feature", "vulkan"))  # type: ignore[arg-type]
    checker.close()
    assert (found.status is Status.DISAGREES) == is_noticed, found.problems


@pytest.mark.parametrize(
    ("statement", "has_sums"),
    [
        ("f[i] = x[i].x", False),
        ("qd.atomic_max(f[0], x[i].x)", False),
        ("t[0] += i", False),
        ("f[t[i]] -= x[i].x", True),
        ("f[0] *= x[i].x", True),
        ("qd.atomic_sub(f[i], x[i].x)", True),
        ("total += x[i].x", True),
        ("both[1] -= x[i].x", True),
    ],
)
def test_the_oracle_knows_sums(statement: str, has_sums: bool) -> None:
    head, _ = SOURCE.split("    for i")
    locals_ = "    total, both = FP(0), qd.Vector([FP(0), FP(0)])\n"
    body = f"{locals_}    for i in range(5):\n        {statement}\n"
    assert run(replace(program(), source=head + body)).has_sums == has_sums


def test_a_program_gets_other_checks_for_each_seed() -> None:
    checker = Checker("cpu", list(CHECKS), 4)
    checker.close()
    given = {
        name
        for seed in range(8)
        for name in checker._of(Program(**{**program().__dict__, "seed": seed}))
    }
    assert given == set(checker.chosen)  # without torch, all but one


def test_fields_and_ndarrays_stand_for_each_other() -> None:
    fields = field_ndarray_conversion.as_fields(program())
    ndarrays = field_ndarray_conversion.as_ndarrays(program())
    assert fields is not None and ndarrays is not None
    assert "ndarray" not in fields.source
    assert "x = qd.Vector.field(2, FP" in fields.source
    assert "field(" not in ndarrays.source
    assert ndarrays.launches == [("k", ("x", 0.75, "f", "t"))]
    expected = run(program())
    for changed in (fields, ndarrays):
        found = run(changed)
        for name, estimate in expected.gradient.items():
            assert found.gradient[name].value.tolist() == estimate.value.tolist()


SUMS_OF_SUMS = """
f = qd.field(FP, shape=(2,), needs_grad=True, needs_dual=True)
x = qd.field(FP, shape=(2, 5), needs_grad=True, needs_dual=True)

@qd.kernel
def k():
    for m in f:
        v = f[m]
        for t in range(3):
            total = v
            for i in range(5):
                s = 0.0
                for j in range(i):
                    s += x[m, j] * qd.sin(v + x[m, i])
                total += 0.3 * qd.sin(s) * s + x[m, t]
            v = 0.5 * v + qd.sin(total)
        f[m] = v
"""


@pytest.mark.parametrize("is_faulty", [False, True])
def test_records_of_gpus_are_checked(is_faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the inner of two loops decides first that it records results, the outer one does too."""
    original = recording_plan.find_inner_results
    monkeypatch.setattr(recording_plan, "NESTED", 0)  # else the inner loop has records of its own
    if is_faulty:
        monkeypatch.setattr(
            recording_plan,
            "find_inner_results",
            lambda *given: dict(reversed(original(*given).items())),
        )
    inputs = {"f": [0.1, -0.2], "x": [[0.1 * k, 0.7, -0.3, 0.5, 0.2] for k in range(2)]}
    checker = Checker("python", ["gpu"], 1)
    found = checker.check(make(SUMS_OF_SUMS, inputs, [("k", ())]), BACKENDS["interpreter"]())  # type: ignore[arg-type]
    checker.close()
    assert found.status is (Status.DISAGREES if is_faulty else Status.AGREES), found.problems


@pytest.mark.parametrize("is_faulty", [False, True])
def test_other_thresholds_are_checked(is_faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that is wrong where a usual program has too little work for it."""
    usual, original = hoist_loads.MOST_LOADS, Interpreter.run

    def wrong_beyond(self: Any, *given: Any) -> Any:
        if is_faulty and usual != hoist_loads.MOST_LOADS:
            raise ZeroDivisionError
        return original(self, *given)

    monkeypatch.setattr(Interpreter, "run", wrong_beyond)
    statuses = set()
    for seed in range(6):
        checker = Checker("python", ["thresholds"], 1)
        found = checker.check(replace(program(), seed=seed), BACKENDS["interpreter"]())  # type: ignore[arg-type]
        checker.close()
        statuses.add(found.status)
    assert usual == hoist_loads.MOST_LOADS
    assert Status.AGREES in statuses and (len(statuses) > 1) == is_faulty


@pytest.mark.parametrize("shape", [(3,), (4,), (5,), (2, 2), (2, 3), (1, 5)])
def test_strided_arrays_are_not_contiguous(shape: tuple[int, ...]) -> None:
    made = foreign_arrays.strided(np.ones(shape, np.float32))
    assert made.shape == shape and made.dtype == np.float32
    assert not made.flags.c_contiguous


@pytest.mark.parametrize("is_faulty", [False, True])
def test_writes_outside_of_arrays_are_noticed(
    is_faulty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where code adds zero to an element before an array."""
    launch = backends.Session.primal

    def primal(session: backends.Session, actual: Actual) -> None:
        launch(session, actual)
        if isinstance(x := session.arrays["x"], np.ndarray):
            x.base[0] += 0.0  # type: ignore[index]

    if is_faulty:
        monkeypatch.setattr(backends.Session, "primal", primal)
    checker = Checker("cpu", ["numpy"], 1)
    found = checker.check(program(), BACKENDS["cpu"]())  # type: ignore[arg-type]
    checker.close()
    assert ("memory outside of `x` was written" in "".join(found.problems)) == is_faulty
    assert (found.status is Status.AGREES) != is_faulty


WITH_FUNCTION = SOURCE.replace(
    "@qd.kernel", "@qd.func\ndef g(a):\n    return a + 0.25\n\n@qd.kernel"
)
WITH_FUNCTION = WITH_FUNCTION.replace("f[i] = a.x", "f[i] = g(a.x)")


@pytest.mark.parametrize("is_watched", [True, False])
def test_functions_that_stay_the_old_ones_are_noticed(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_watched:
        monkeypatch.setattr(specialisation_guards, "_may_be_rebound", lambda _: False)
    checker = Checker("cpu", ["rebound"], 1)
    found = checker.check(replace(program(), source=WITH_FUNCTION), BACKENDS["cpu"]())  # type: ignore[arg-type]
    checker.close()
    assert (found.status is Status.AGREES) == is_watched, found.problems
    assert is_watched or found.problems[0].startswith("check rebound, run 1 primal: f"), found


@pytest.mark.parametrize("is_watched", [True, False])
def test_items_that_stay_the_old_ones_are_noticed(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_watched:
        monkeypatch.setattr(specialisation_guards, "can_change", lambda _: False)
    source = "TABLE = (0.3, -0.8)\n" + SOURCE.replace("f[i] = a.x", "f[i] = TABLE[1] + a.x")
    checker = Checker("cpu", ["rebound"], 1)
    found = checker.check(replace(program(), source=source), BACKENDS["cpu"]())  # type: ignore[arg-type]
    checker.close()
    assert (found.status is Status.AGREES) == is_watched, found.problems


def test_what_another_thread_finds_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    primal = backends.Session.primal

    def wrong(session: Any, actual: Any) -> None:
        primal(session, actual)
        if threading.current_thread() is not threading.main_thread():
            actual.primal["f"][2] += 0.5

    monkeypatch.setattr(backends.Session, "primal", wrong)
    checker = Checker("cpu", ["beside"], 1)
    found = checker.check(program(), BACKENDS["cpu"]())  # type: ignore[arg-type]
    checker.close()
    assert [text[:40] for text in found.problems] == ["check beside, run beside primal: f[2]: e"]


def test_second_derivatives_of_what_has_none_are_not_compared() -> None:
    """The gradient of ``stop_grad(x) * x`` changes with x, and its derivative is zero."""
    source = """
x = qd.field(FP, shape=2, needs_grad=True, needs_dual=True)
y = qd.field(FP, shape=2, needs_grad=True, needs_dual=True)

@qd.kernel
def k():
    for i in x:
        y[i] = qd.stop_grad(x[i]) * x[i]
"""
    stopped = make(source, {"x": [0.5, 1.5], "y": [0.0, 0.0]}, [("k", ())])
    checker = Checker("cpu", ["hessian"], 1)
    found = checker.check(stopped, BACKENDS["cpu"]())  # type: ignore[arg-type]
    checker.close()
    assert found.status is Status.AGREES, found.problems
