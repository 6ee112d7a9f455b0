"""What branches in loops would compute in each iteration is computed before the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.code_motion.hoist_from_branches import MOST_WORK, hoist_from_branches
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 1, {space}, () [primal{layout}]
array @y: f32, 1, {space}, () [primal{layout}]
parallel @k_0 {options}{{
  %0: i32 = constant<0>()
  %1: i32 = constant<8>()
  yield(%0, %1)
}} {{ (%2: i32):
  %3: i32 = constant<0>()
  %4: i32 = constant<8>()
  %5: f32 = constant<0.5>()
  %6: i32 = constant<1>()
  %60: f32 = load<@y, primal>(%2)
"""
LOOP = """\
  %7: f32 = for(%3, %4, %5) {{ (%8: i32, %9: f32):
    %10: u1 = compare<ne>(%8, %2)
    %11: f32 = if(%10) {{
{lines}
      yield(%9)
    }} {{
      yield(%9)
    }}
    yield(%11)
  }}
  yield()
}}
"""
FIELD = " (8,) ((0, 1, 0, 4),) ()"


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    yield
    qd.reset()


def hoisted(*lines: str, fixed: bool = True, options: str = "") -> list[str]:
    """Which lines of a branch in a loop come to stand before the loop."""
    space, layout = ("field", FIELD) if fixed else ("ndarray", "")
    head = HEAD.format(space=space, layout=layout, options=options)
    module = parse(head + LOOP.format(lines="\n".join(f"      {line}" for line in lines)))
    before = [op for op in module.tasks[0].body.ops if op.NAME != "for"]
    hoist_from_branches(module)
    verify(module)
    assert to_text(parse(to_text(module))) == to_text(module)
    after = [op for op in module.tasks[0].body.ops if op.NAME != "for"]
    return [op.NAME for op in after if op not in before]


SQUARE = "%30: f32 = binary<mul>(%60, %60)"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((SQUARE, "%21: f32 = binary<div>(%5, %30)"), ["binary", "binary"]),
        ((SQUARE, "%21: f32 = binary<mul>(%30, %9)"), ["binary"]),
        (("%20: f32 = unary<sin>(%60)", "%21: f32 = binary<add>(%20, %20)"), []),
        (("%20: f32 = binary<pow>(%60, %5)",), []),
        (("%20: i32 = binary<floordiv>(%2, %3)",), []),
        (("%20: f32 = load<@x, primal>(%2)", "%21: f32 = unary<sqrt>(%20)"), ["load", "unary"]),
        (("%20: f32 = load<@x, primal>(%8)",), []),
    ],
)
def test_cheap_arithmetic_and_loads_are_hoisted(lines: tuple[str, ...], found: list[str]) -> None:
    assert hoisted(*lines) == found


def test_loads_that_may_not_exist_stay() -> None:
    """The branch may be what keeps an index in bounds."""
    beyond = ("%20: i32 = binary<add>(%2, %6)", "%21: f32 = load<@x, primal>(%20)")
    assert hoisted(*beyond) == ["binary"]
    assert hoisted("%20: i32 = binary<sub>(%2, %6)", "%21: f32 = load<@x, primal>(%20)") == [
        "binary"
    ]
    assert hoisted("%20: f32 = load<@x, primal>(%2)", fixed=False) == []
    minimum = "%20: i32 = binary<min>(%2, %6)"
    assert hoisted(minimum, "%21: f32 = load<@x, primal>(%20)") == ["binary", "load"]


def test_loads_of_what_the_loop_writes_stay() -> None:
    load = "%20: f32 = load<@x, primal>(%2)"
    assert hoisted(load, "store<@x, primal>(%5, %8)") == []
    assert hoisted(load, "store<@y, primal>(%5, %8)") == ["load"]
    assert hoisted(load, "%21: f32 = atomic<add, @x, primal>(%5, %8)") == []
    nested = "%21: f32 = if(%10) {\nstore<@x, primal>(%5, %8)\nyield(%9)\n} {\nyield(%9)\n}"
    assert hoisted(load, nested) == []


def test_loads_do_not_pass_fences() -> None:
    lines = "fence<device>()", "%20: f32 = load<@x, primal>(%2)", SQUARE
    assert hoisted(*lines, options="{'block_dim': 8, 'subgroup_size': 4} ") == ["binary"]


def test_the_work_is_limited() -> None:
    lines = [f"%{20 + k}: f32 = binary<add>(%60, %{19 + k if k else 5})" for k in range(40)]
    assert len(hoisted(*lines)) == MOST_WORK
    divisions = [f"%{20 + k}: f32 = binary<div>(%{19 + k if k else 5}, %60)" for k in range(9)]
    assert len(hoisted(*divisions)) == MOST_WORK // 6


def start(**more: Any) -> None:
    qd.init(arch=qd.cpu, log_level="error", **more)


class Pairs:
    """A sum over pairs, part of which depends on one of both."""

    def __init__(self, kind: Any) -> None:
        self.x, self.y = (qd.field(kind, 12, needs_grad=True) for _ in range(2))
        self.x.from_numpy(np.linspace(0.1, 1.15, 12))

    @qd.kernel
    def add_up(self):
        for i in range(12):
            total = self.x[i]
            for j in range(2):
                for k in range(6):
                    q = 6 * j + k
                    if q > i:
                        total += (1.0 + 0.25 / self.x[i]) ** 2 * self.x[q]
                        if self.x[q] > 0.5:
                            total -= qd.sqrt(self.x[i] / 3.0) * self.x[q]
            self.y[i] = total


def values_and_gradient(fast_math: bool, kind: Any, **more: Any) -> tuple[Any, Any]:
    start(fast_math=fast_math, **more)
    pairs = Pairs(kind)
    pairs.add_up()
    pairs.y.grad.fill(1.0)
    pairs.add_up.grad()
    return pairs.y.to_numpy(), pairs.x.grad.to_numpy()


def test_it_leaves_all_loops() -> None:
    start()
    pairs = Pairs(qd.f32)
    text = pairs.add_up.inspect().stages["finish"]
    assert text.index("unary<sqrt>") < text.index("for(")
    assert text.count("<div>") <= 1
    assert text.index("<div>") < text.index("for(")


@pytest.mark.parametrize("simd", ["never", "always"])
def test_results_are_those_of_the_loop(simd: str) -> None:
    start(default_fp=qd.f64)
    x = np.linspace(0.1, 1.15, 12)

    def total(x: Any, i: int) -> Any:
        factor, root = (1.0 + 0.25 / x[i]) ** 2, np.sqrt(x[i] / 3.0)
        later = x[i + 1 :]
        return x[i] + (factor * later).sum() - (root * later[later > 0.5]).sum()

    def all_of_them(x: Any) -> Any:
        return np.array([total(x, i) for i in range(12)])

    found, gradient = values_and_gradient(True, qd.f64, simd=simd, cpu_max_num_threads=1)
    np.testing.assert_allclose(found, all_of_them(x), rtol=1e-12)
    steps = 1e-6 * np.eye(12)
    slopes = [(all_of_them(x + s).sum() - all_of_them(x - s).sum()) / 2e-6 for s in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-7)


def test_lanes_have_the_same_bits() -> None:
    found = [
        values_and_gradient(False, qd.f32, cpu_max_num_threads=1, simd=simd)
        for simd in ("never", "always")
    ]
    np.testing.assert_array_equal(found[0][0], found[1][0])


def test_infinities_that_no_branch_uses_have_no_derivative() -> None:
    start()
    x, y = (qd.field(qd.f32, 4, needs_grad=True) for _ in range(2))
    x.from_numpy(np.array([0.0, 1.0, -1.0, 2.0], np.float32))

    @qd.kernel
    def guarded(n: int):
        for i in x:
            total = 0.0
            for k in range(n):
                if x[i] > 0.0:
                    total += k / (x[i] * x[i]) + qd.sqrt(x[i])
            y[i] = total

    for n in (0, 3):
        x.grad.fill(0.0)
        guarded(n)
        y.grad.fill(1.0)
        guarded.grad(n)
        a = np.array([1.0, 2.0])
        slopes = (-2.0 * n * (n - 1) / 2 / a**3 + n * 0.5 / np.sqrt(a)) if n else 0.0 * a
        np.testing.assert_allclose(x.grad.to_numpy()[[1, 3]], slopes, rtol=1e-5)
        np.testing.assert_array_equal(x.grad.to_numpy()[[0, 2]], 0.0)


def guarded_reads(debug: Any) -> tuple[Any, Any]:
    start(debug=debug)
    x, y = (qd.field(qd.f32, 4) for _ in range(2))
    x.from_numpy(np.array([1.0, 2.0, 4.0, 0.0], np.float32))

    @qd.kernel
    def guarded(limit: int):
        for i in x:
            total = 0.0
            for k in range(3):
                if i + 2 < limit:
                    total += x[i + 2] + k / x[i]
            y[i] = total

    return guarded, y


@pytest.mark.parametrize("debug", [True, "nan"])
def test_debug_mode_reports_nothing_that_no_branch_uses(debug: Any) -> None:
    guarded, y = guarded_reads(debug)
    guarded(4)
    np.testing.assert_allclose(y.to_numpy(), [3 * 4.0 + 3.0, 1.5, 0.0, 0.0])


def test_debug_mode_checks_indices_where_the_program_has_them() -> None:
    guarded, _ = guarded_reads(debug=True)
    with pytest.raises(qd.OctantsAssertionError, match="bounds"):
        guarded(5)
        qd.sync()


def test_the_adjoint_of_what_is_hoisted_flows_on_once() -> None:
    """The derivative of a cube stands behind the loop, which only adds to its adjoint."""
    start()
    x, y = (qd.field(qd.f32, 8, needs_grad=True) for _ in "xy")

    @qd.kernel
    def kernel():
        for i in x:
            total = 0.0
            for j in range(8):
                if j != i:
                    total += (x[i] * x[i] * x[i]) * x[j]
            y[i] = total

    module = parse(kernel.inspect(mode="reverse").stages["reverse"])
    (loop,) = [op for op in module.tasks[0].body.ops if op.NAME == "for"]
    products = [op for op in loop.walk_regions() if op.NAME in ("binary", "fma")]
    behind = module.tasks[0].body.ops[module.tasks[0].body.ops.index(loop) :]
    assert len(products) <= 5
    assert sum(op.NAME in ("binary", "fma") for op in behind) >= 3
    values = np.linspace(0.5, 2.0, 8, dtype=np.float32)
    x.from_numpy(values)
    kernel()
    y.grad.fill(1.0)
    kernel.grad()
    others = values.sum() - values
    expected = 3 * values**2 * others + (values**3).sum() - values**3
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("debug", [False, True])
def test_no_work_item_reads_what_only_others_access(debug: bool) -> None:
    """Even items store in even elements and read odd ones, so that none race."""
    start(debug=debug, default_fp=qd.f64)
    x, y = (qd.field(qd.f64, 8, needs_grad=True) for _ in "xy")
    trips, loss = qd.field(qd.i32, 8), qd.field(qd.f64, (), needs_grad=True)
    trips.from_numpy(np.array([3, 0, 2, 0, 1, 0, 3, 0], np.int32))
    x.fill(1.0)
    y.fill(0.5)

    @qd.kernel
    def kernel():
        for i in x:
            total = x[i]
            for j in range(3):
                if j < trips[i]:
                    total += x[j] * y[7 - i]
            for j in range(trips[i]):
                total += j * y[7 - i]
            if trips[i] > 0:
                y[i] = total
        for i in y:
            loss[None] += y[i]

    with qd.ad.Tape(loss=loss):
        kernel()
    assert loss[None] == 4 + 0.5 * (9 + 7) + 4 * 0.5
    np.testing.assert_array_equal(y.grad.to_numpy(), [0, 7, 0, 2, 0, 4, 0, 7])
