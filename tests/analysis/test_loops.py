"""Facts about serial loops: sums, magnitudes of what they carry, costs, what floats decide."""

from __future__ import annotations

import math

import pytest

from octants.analysis.cost_model import ATOMIC, LIBRARY, UNKNOWN, Costs
from octants.analysis.floats.float_magnitudes import Magnitudes
from octants.analysis.floats.replay_strictness import decides
from octants.analysis.sums.serial_sums import has_free_order, only_sums, unread_sums
from octants.ir import ops
from tests.analysis.tasks import loop_of, module_of, task_of

SUMS = {
    "s += y[j]": True,
    "s -= y[j]": True,
    "s = y[j] + s": True,
    "s = y[j] - s": False,
    "s = 2.0 * s + y[j]": False,
    "s = max(s, y[j])": False,
    "s += y[j] * y[i]; t += y[j]": True,
    "s += y[j]; t += s": False,
    "s += y[j]; x[j] = s": False,
    "if y[j] > 0.0: s += y[j]": True,
    "if s > 0.0: s += y[j]": False,
}


@pytest.mark.parametrize("body", SUMS)
def test_loops_that_only_sum(body: str) -> None:
    lines = body.replace("; ", "; ").split("; ")
    inner = "; ".join(f"    {line}" for line in lines)
    loop = loop_of(f"s = 0.0; t = 0.0; for j in range(n):; {inner}; x[i] = s + t")
    assert only_sums(loop) is SUMS[body]


FLAG = "if y[j] > 0.0:;   s += qd.sin(y[j]);   b = True"
FLAGS = {
    FLAG: True,
    f"{FLAG}; if b:;   t += y[j]": False,  # whether an iteration before this one has set it
    f"if b:;   t += y[j]; {FLAG}": False,
    "s += qd.sin(y[j]); b = True": True,
    "if b:;   t += y[j]; s += y[j]; b = True": False,  # all iterations but the first
    "if b:;   t += y[j]; s += y[j]; if y[j] > 0.1:;   b = True; else:;   b = True": False,
}


@pytest.mark.parametrize("body", FLAGS)
def test_flags_are_sums_unless_an_iteration_reads_them(body: str) -> None:
    inner = "; ".join(f"    {line}" for line in body.split("; "))
    start = "s = 0.0; t = 0.0; b = False; for j in range(n):"
    task = task_of(f"{start}; {inner}; x[i] = s + t + qd.f32(b)")
    loop = next(op for op in task.body.walk() if isinstance(op, ops.For))
    true = {op.result for op in task.body.ops if isinstance(op, ops.Constant) and op.value is True}
    assert len(loop.carried) == (3 if "t +=" in body else 2)
    assert only_sums(loop, true) is FLAGS[body]
    assert not only_sums(loop)


FREE_ORDER = {
    "s += y[j]": True,
    "s += t * y[j]": True,
    "s += t * y[j]; t += 1.0": False,
    "s = s * y[j]": False,
    "if y[j] > 0.0: s += y[j]": True,
    "for k in range(j): s += y[k]": True,
    "for k in range(j): s += y[k]; for k in range(j): s -= y[k] * t": True,
    "for k in range(j): s = s * y[k]": False,
    "r = 0.0; for k in range(j): r = s + y[k]; s = r": False,  # without iterations, s is lost
    "r = 0.0; for k in range(j): r = r + s; s = r": False,
    "while t < y[j]: s += 1.0; t += 1.0": False,
    "v[j] += y[j]": True,
    "v[j] = y[j] + v[j]": True,
    "v[j] += v[j] * y[j]": False,
    "v[j] += v[j + 1]": False,
    "v[j] = y[j]": False,
    "v[j] += y[j]; s += v[0]": False,
    "x[0] += y[j]": True,
    "x[0] += y[j]; s += x[j]": False,
    "x[j] = y[j]": False,
    "s += qd.random()": True,  # each iteration has a number of its own
}


@pytest.mark.parametrize("body", FREE_ORDER)
def test_loops_whose_order_is_free(body: str) -> None:
    inner = "; ".join(f"    {line}" for line in body.split("; "))
    start = "s = 0.0; t = y[n]; v = qd.Vector([0.0] * 9)"
    loop = loop_of(f"{start}; for j in range(n):; {inner}; x[i] = s + t + v[n]")
    assert has_free_order(loop) is FREE_ORDER[body]


def test_sums_that_no_iteration_reads() -> None:
    start = "s = 0.0; t = 1.0; v = qd.Vector([0.0] * 9)"
    body = "s += t * y[j]; v[j] += y[j]; t = t * y[j]"
    inner = "; ".join(f"    {line}" for line in body.split("; "))
    loop = loop_of(f"{start}; for j in range(n):; {inner}; x[i] = s + t + v[n]")
    sums = unread_sums(loop)
    assert len(loop.carried) == 1 + 1 + 9
    assert len(sums) == 1 + 9
    assert all(arg in sums for arg in loop.carried if (arg.name or "").startswith(("s", "v")))


MAGNITUDES = {
    "v = qd.sin(v)": 1.001,
    "v = 0.5 * qd.sin(v) + 0.25": 0.5 * 1.001 + 0.25,
    "v = min(qd.cos(v), 0.5)": 1.001,
    "v = -qd.sin(v)": 1.001,
    "v = 2.0 * v": math.inf,
    "v = v + y[j]": math.inf,
    "v = qd.exp(v)": math.inf,
}


@pytest.mark.parametrize("body", MAGNITUDES)
def test_magnitudes_after_the_first_iteration(body: str) -> None:
    module = module_of(f"v = y[i]; for j in range(n):; {'    ' + body}; x[i] = v")
    constants = ops.constants_in(module)
    loop = next(op for op in module.walk() if isinstance(op, ops.For))
    found = Magnitudes(loop, constants).later(loop.body.yielded[0])
    assert found == pytest.approx(MAGNITUDES[body], rel=1e-3)


def cost(body: str) -> int:
    module = module_of(body)
    task = next(task for task in module.tasks if task.is_parallel)
    return Costs(module).of(task.body)


def test_costs_add_up_and_multiply() -> None:
    plain = cost("x[i] = y[i]")
    assert plain < 10
    assert cost("x[i] = qd.sin(y[i])") - plain == LIBRARY
    assert cost("x[0] += y[i]") - plain >= ATOMIC - 2
    ten, twenty = (cost(f"for j in range({n}): x[j] = y[i]") for n in (10, 20))
    assert 9 * 2 <= twenty - ten <= 10 * plain
    assert cost("for j in range(n): x[j] = y[i]") == UNKNOWN
    assert cost("while x[i] > 0.0: x[i] -= 1.0") == UNKNOWN


DECIDES = {
    "x[i] = 2.0 * y[i]": False,
    "x[i] += y[i]": False,
    "x[i] = qd.sin(y[i])": False,
    "if y[i] > 0.0: x[i] = 1.0": True,
    "x[int(y[i])] = 1.0": True,
    "x[i] = qd.floor(y[i])": True,
    "for j in range(int(y[i])): x[j] = 1.0": True,
}


@pytest.mark.parametrize("body", DECIDES)
def test_what_floats_decide(body: str) -> None:
    task = task_of(body)
    loads = [op for op in task.body.walk() if isinstance(op, ops.Load) and op.array.name == "y"]
    assert decides(task.body, {load.result for load in loads}) is DECIDES[body]
