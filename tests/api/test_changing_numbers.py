"""Numbers of Python that change between launches: right each time, and compiled three times."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.cache.sessions import Sessions

step = 0
scale = 0.5
CONFIG = types.SimpleNamespace(k=1, name="a")


@pytest.fixture(autouse=True)
def start(monkeypatch: pytest.MonkeyPatch) -> None:
    qd.init(arch=qd.cpu, log_level="error", default_fp=qd.f64)
    monkeypatch.setitem(globals(), "step", 0)
    monkeypatch.setitem(globals(), "scale", 0.5)
    CONFIG.k = 1


def variants(kernel: Any) -> int:
    """How often a kernel was compiled."""
    return sum(map(len, kernel._variants.values()))


def values(run: Callable[[], Any], name: str, given: Any, owner: Any = None) -> list[Any]:
    """What launches give while a global, or an attribute, takes some values."""
    found = []
    for value in given:
        if owner is None:
            globals()[name] = value
        else:
            setattr(owner, name, value)
        found.append(run())
    return found


def test_a_counter_is_compiled_three_times() -> None:
    @qd.kernel
    def f() -> qd.i32:
        r = 10 * step
        if step < 5:
            r += 1
        return r

    assert values(f, "step", range(12)) == [10 * k + (k < 5) for k in range(12)]
    assert variants(f) == 3
    assert values(f, "step", (0, 1)) == [1, 11]
    assert variants(f) == 3


def test_two_values_stay_compiled_in() -> None:
    @qd.kernel
    def f() -> qd.i32:
        return step + 1

    assert values(f, "step", (0, 1) * 4) == [1, 2] * 4
    assert variants(f) == 2
    assert all(not variant.hidden for found in f._variants.values() for variant in found)


def test_arithmetic_on_such_numbers_is_pythons() -> None:
    @qd.kernel
    def f() -> qd.types.vector(6, qd.f64):
        return qd.Vector(
            [
                step * 1000003 * 1000003 // 1000003 / 7,
                (step - 3) // 2 + (step - 3) % 4 + (step & 6) + (5 ^ step),
                2 * scale * step - 1,
                -scale / 3,
                1.0 if scale < step < 9 else 2.0,
                qd.cast(step, qd.f32) / 4,
            ]
        )

    def expected(k: int, s: float) -> list[float]:
        return [
            k * 1000003 * 1000003 // 1000003 / 7,
            (k - 3) // 2 + (k - 3) % 4 + (k & 6) + (5 ^ k),
            2 * s * k - 1,
            -s / 3,
            1.0 if s < k < 9 else 2.0,
            float(np.float32(k) / 4),
        ]

    for k, s in ((0, 0.5), (1, 0.1), (7, 0.3), (12, 1e-9), (8, 7.7)):
        globals().update(step=k, scale=s)
        assert f().to_list() == pytest.approx(expected(k, s), rel=1e-15)
    assert variants(f) == 3


@pytest.mark.parametrize("default_fp", [qd.f32, qd.f64])
def test_the_bits_are_those_of_constants(default_fp: Any) -> None:
    qd.init(arch=qd.cpu, log_level="error", default_fp=default_fp)
    x = qd.field(qd.f64, 3)

    def make() -> Any:
        @qd.kernel
        def f():
            for i in x:
                a = scale * 0.3
                x[i] = x[i] * scale + a / 3 + qd.sin(scale + i) + scale * 1e-3

        return f

    changing = make()
    for k, value in enumerate((0.5, 0.1, 0.7, 1e-7, 3.3)):
        globals()["scale"] = value
        found = []
        for kernel in (changing, make()):
            x.from_numpy(np.linspace(0.1, 0.9, 3))
            kernel()
            found.append(x.to_numpy().tolist())
        assert found[0] == found[1]
        assert variants(changing) == min(k + 1, 3)


def test_what_decides_when_it_is_compiled_is_compiled_in() -> None:
    table = [3, 1, 4, 1, 5, 9, 2, 6]

    @qd.kernel
    def in_static() -> qd.i32:
        r = 0
        for k in qd.static(range(step)):
            r += k
        return r

    @qd.kernel
    def in_a_table() -> qd.i32:
        return table[step]

    @qd.kernel
    def in_a_shape() -> qd.i32:
        v = qd.Vector.zero(qd.i32, step + 1)
        return v.n

    @qd.kernel
    def in_a_function() -> qd.i32:
        return qd.static(len(str(step * 10)))

    @qd.kernel
    def in_a_text() -> qd.i32:
        r = 1
        if qd.static(f"{step}" == "3"):
            r = 2
        return r

    @qd.kernel
    def in_a_power() -> qd.i32:
        r = 2
        return r**step

    for kernel, expected in (
        (in_static, lambda k: k * (k - 1) // 2),
        (in_a_table, lambda k: table[k]),
        (in_a_shape, lambda k: k + 1),
        (in_a_function, lambda k: len(str(k * 10))),
        (in_a_text, lambda k: 1 + (k == 3)),
        (in_a_power, lambda k: 2**k),
    ):
        assert values(kernel, "step", range(1, 7)) == [expected(k) for k in range(1, 7)]
        assert variants(kernel) == 6


def test_one_that_decides_does_not_hold_up_others() -> None:
    @qd.kernel
    def f() -> qd.i32:
        r = 0
        for _ in qd.static(range(CONFIG.k)):
            r += step
        return r

    for k in range(1, 9):
        globals()["step"], CONFIG.k = k, 1 + k % 4
        assert f() == k * (1 + k % 4)
    assert variants(f) < 8
    count = variants(f)
    assert values(f, "step", range(20, 30)) == [(1 + 8 % 4) * k for k in range(20, 30)]
    assert variants(f) == count


def test_types_may_change() -> None:
    @qd.kernel
    def f() -> qd.f64:
        return step * 2

    given = [1, 2, 3, 4, 0.25, 0.5, 0.75, 5, True, 2**40, 6, np.float32(1.5), float("inf"), 7]
    assert values(f, "step", given) == [2 * float(k) for k in given]


def test_an_index_is_in_range() -> None:
    x = qd.field(qd.i32, 8)
    x.from_numpy(np.arange(8, dtype=np.int32))

    @qd.kernel
    def f() -> qd.i32:
        return x[step - 1]

    assert values(f, "step", range(1, 9)) == list(range(8))
    assert variants(f) == 3
    assert values(f, "step", (0,)) == [7]  # a constant counts from the end if it is negative
    with pytest.raises(qd.OctantsError):
        values(f, "step", (9,))
    assert values(f, "step", (5,)) == [4]


def test_division_by_zero_is_the_users_error() -> None:
    @qd.kernel
    def f() -> qd.f64:
        return 1 / step

    assert values(f, "step", (1, 2, 4, 5)) == [1, 0.5, 0.25, 0.2]
    with pytest.raises(qd.OctantsError, match="ZeroDivisionError"):
        values(f, "step", (0,))
    assert values(f, "step", (8,)) == [0.125]


def test_ranges_and_parallel_loops() -> None:
    x = qd.field(qd.i32, 16)

    @qd.kernel
    def f():
        for i in range(step):
            for j in range(CONFIG.k, step + 1):
                x[i] += j
        for i, j in qd.ndrange(step, (1, step)):
            x[i] += 100 * j

    for n in (3, 5, 7, 11, 0, 16):
        x.fill(0)
        globals()["step"] = n
        f()
        expected = [
            sum(range(1, n + 1)) + 100 * sum(range(1, n)) if i < n else 0 for i in range(16)
        ]
        assert x.to_numpy().tolist() == expected
    assert variants(f) == 3


def test_funcs_closures_attributes_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("settings")
    module.width = 1  # type: ignore[attr-defined]
    local = 1

    @qd.func
    def inner(y: qd.i32) -> qd.i32:
        return y * step + CONFIG.k

    @qd.data_oriented
    class Body:
        def __init__(self, mass: int) -> None:
            self.mass = mass

        @qd.kernel
        def run(self) -> qd.i32:
            return inner(self.mass) + 1000 * local + 100000 * module.width

    one, other = Body(1), Body(50)
    for k in range(1, 8):
        globals()["step"] = k
        local, CONFIG.k, module.width = k + 1, 2 * k, k % 3  # type: ignore[attr-defined]
        one.mass = k
        expected = 2 * k + 1000 * (k + 1) + 100000 * (k % 3)
        assert one.run() == k * k + expected
        assert other.run() == 50 * k + expected
    assert variants(Body.run) == 6


def time_steps() -> tuple[Any, Any, Any]:
    x = qd.field(qd.f64, (8, 3), needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def advance():
        for i in range(3):
            x[step + 1, i] = x[step, i] * x[step, i] * scale + qd.sin(x[step, (i + 1) % 3])
            loss[None] += x[step + 1, i] * step

    return x, loss, advance


def reference(start: np.ndarray[Any, Any]) -> float:
    x, loss = start, 0.0
    for k in range(7):
        x = x * x * (0.5 + 0.05 * k) + np.sin(np.roll(x, -1))
        loss += k * x.sum()
    return float(loss)


def run_steps(advance: Any) -> None:
    for k in range(7):
        globals().update(step=k, scale=0.5 + 0.05 * k)
        advance()
    globals().update(step=100, scale=-1.0)  # the reverse runs take what the launches saw


def test_a_tape_reverses_what_each_launch_saw() -> None:
    x, loss, advance = time_steps()
    start = np.array([0.3, 0.4, 0.2])
    for _ in range(2):
        x.fill(0)
        for i in range(3):
            x[0, i] = start[i]
        with qd.ad.Tape(loss=loss) as tape:
            run_steps(advance)
        assert loss[None] == pytest.approx(reference(start))
        assert tape.snapshot_bytes == 0
        for i in range(3):
            change = 1e-6 * np.eye(3)[i]
            difference = (reference(start + change) - reference(start - change)) / 2e-6
            assert x.grad[0, i] == pytest.approx(difference, rel=1e-6)
    assert variants(advance) == 3


def test_forward_mode() -> None:
    x, loss, advance = time_steps()
    qd.root.lazy_dual()
    start = np.array([0.3, 0.4, 0.2])
    direction = np.array([1.0, -2.0, 0.5])
    for _ in range(2):
        x.fill(0)
        loss.fill(0)
        for i in range(3):
            x[0, i] = start[i]
        seed = np.zeros((8, 3))
        seed[0] = direction
        with qd.ad.FwdMode(loss=loss, param=x, seed=seed.reshape(-1).tolist()):
            run_steps(advance)
            found = loss.dual[None]
        difference = reference(start + 1e-6 * direction) - reference(start - 1e-6 * direction)
        assert found == pytest.approx(difference / 2e-6, rel=1e-6)


def test_a_bare_gradient_and_gradients_of_arguments() -> None:
    x = qd.field(qd.f64, 2, needs_grad=True)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def f(a: qd.f64):
        for i in x:
            loss[None] += a * x[i] * x[i] * scale * step

    x.from_numpy(np.array([1.0, 2.0]))
    for k in range(1, 6):
        globals().update(step=k, scale=0.1 * k)
        x.grad.fill(0)
        loss.grad[None] = 1
        f(3.0)
        assert f.grad.using(argument_gradients=True)(3.0) == {"a": pytest.approx(0.5 * k * k)}
        assert x.grad.to_numpy() == pytest.approx(0.6 * k * k * np.array([1.0, 2.0]))
    assert variants(f) == 3
    f.grad.explain(3.0)


def test_a_captured_launch_keeps_its_number() -> None:
    x = qd.field(qd.i32, 2)

    @qd.kernel
    def add():
        for i in x:
            x[i] += step

    for k in range(4):
        globals()["step"] = k
        add()
    with qd.graph.capture() as graph:
        for k in (10, 100):
            globals()["step"] = k
            add()
    x.fill(0)
    globals()["step"] = 5
    graph.replay()
    assert x.to_numpy().tolist() == [110, 110]


PROGRAM = """
step = 0
other = 3
class O: pass
o = O()
o.k = 1
@qd.func
def twice(y):
    return 2 * y * o.k
@qd.kernel
def f() -> qd.i32:
    r = twice(step + 1)
    if step > other:
        r = -r
    return r
result = []
for step in {steps}:
    o.k = step + 1
    result.append(f())
"""


def test_the_cache_has_the_kernel_of_changing_numbers(tmp_path: Any) -> None:
    sessions = Sessions(tmp_path)
    sessions.options["default_fp"] = qd.f64

    def expected(steps: range) -> list[int]:
        return [2 * (k + 1) ** 2 * (-1 if k > 3 else 1) for k in steps]

    for steps, builds in ((range(6), 3), (range(6), 0), (range(40, 50), 0)):
        run = sessions.run(PROGRAM.format(steps=steps))
        assert (run.result, run.builds) == (expected(steps), builds)
    changed = sessions.run(PROGRAM.format(steps="range(6)").replace("other = 3", "other = 1"))
    assert changed.result == [2 * (k + 1) ** 2 * (-1 if k > 1 else 1) for k in range(6)]


@pytest.mark.parametrize("mode", ["bare", "taped", "forward"])
def test_a_branch_without_a_derivative_that_is_not_taken(mode: str) -> None:
    x = qd.field(qd.f64, 2, needs_grad=True, needs_dual=True)
    loss = qd.field(qd.f64, (), needs_grad=True, needs_dual=True)

    @qd.kernel
    def f():
        for i in x:
            if step > 100:
                x[i] = x[i] * x.grad[i] + x.dual[i]
            loss[None] += x[i] * x[i] * step

    def set_up() -> None:
        x.from_numpy(np.array([1.0, 2.0]))
        loss.fill(0)

    def bare() -> Any:
        set_up()
        x.grad.fill(0)
        f()
        loss.grad[None] = 1
        f.grad()
        return x.grad.to_numpy().tolist()

    def taped() -> Any:
        set_up()
        with qd.ad.Tape(loss=loss):
            f()
        return x.grad.to_numpy().tolist()

    def forward() -> Any:
        set_up()
        with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0, 0.0]):
            f()
            return loss.dual[None]

    run = {"bare": bare, "taped": taped, "forward": forward}[mode]
    expected = [2.0 * k if mode == "forward" else [2.0 * k, 4.0 * k] for k in range(1, 6)]
    assert values(run, "step", range(1, 6)) == expected
    with pytest.raises(qd.OctantsCompilationError):
        values(run, "step", [101])
