"""`section_arrays`: which accesses get sections of an array, and what these are worth."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.analysis.indices.affine_arithmetic import Affine
from octants.analysis.memory.access_aliasing import ElementAliasing
from octants.ir import ops
from octants.ir.array_aliasing import may_alias
from octants.ir.core import ArrayRef, Companion, Value
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.sums.section_arrays import section_arrays
from tests.devices import on_cpu
from tests.ir.parser import parse

STEPS, N = 6, 20

HEAD = """\
kernel @k
array @t: i32, 0, argument, () [primal]
array @y: f32, 1, ndarray, () [primal]
array @x: f32, 2, ndarray, () [primal, adjoint]
parallel @k_0 {
  %a: i32 = constant<1>()
  %b: i32 = constant<9>()
  yield(%a, %b)
} { (%i: i32):
  %one: i32 = constant<1>()
  %two: i32 = constant<2>()
  %t: i32 = load<@t, primal>()
  %next: i32 = binary<add>(%t, %one)
  %double: i32 = binary<mul>(%t, %two)
  %before: i32 = binary<sub>(%i, %one)
  %own: f32 = load<@x, adjoint>(%next, %i)
"""


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=qd.cpu, default_fp=qd.f64, log_level="error")
    yield
    qd.reset()


def sectioned(body: str) -> str:
    module = parse(HEAD + body + "  yield()\n}\n")
    section_arrays(module, noalias=True)
    verify(module)
    text = to_text(module)
    assert to_text(parse(text)) == text
    return text


NEAR = "  %p: f32 = atomic<add, @x, adjoint>(%own, %t, %before)\n"
OWN = "  %q: f32 = atomic<add, @x, adjoint>(%own, %t, %i)\n"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (NEAR + OWN, 2),
        (NEAR + OWN.replace("%t", "%one"), 0),  # t may be 0 or 1
        (NEAR + OWN.replace("%t", "%next"), 0),  # one work item accesses each element anyway
        (NEAR.replace("%t", "%i") + OWN, 0),  # a row of each work item
        (NEAR + OWN.replace("%t", "%double"), 0),  # 2 t = t + 1 where t = 1
        (NEAR + "  store<@x, adjoint>(%own, %t, %i)\n", 0),  # its section is no better
        ("  store<@x, adjoint>(%own, %t, %before)\n", 0),  # no updates
    ],
)
def test_accesses_that_never_meet_get_sections(body: str, count: int) -> None:
    text = sectioned(body)
    assert len(re.findall("^section", text, re.MULTILINE)) == count


def test_accesses_with_the_same_uniform_indices_are_compared_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of them would be 20000."""
    pairs: list[object] = []
    together = ElementAliasing.together

    def counted(self: ElementAliasing, one: Value, other: Value) -> tuple[Affine, Affine]:
        pairs.append((one, other))
        return together(self, one, other)

    monkeypatch.setattr(ElementAliasing, "together", counted)
    rows, columns = 10, 20
    body = OWN
    for row in range(rows):
        body += f"  %r{row}: i32 = constant<{row + 2}>()\n"
        body += f"  %t{row}: i32 = binary<add>(%t, %r{row})\n"
        for k in range(columns):
            number = row * columns + k
            body += f"  %c{number}: i32 = constant<{k}>()\n"
            body += f"  %i{number}: i32 = binary<mul>(%i, %c{number})\n"
            body += f"  %p{number}: f32 = atomic<add, @x, adjoint>(%own, %t{row}, %i{number})\n"
    text = sectioned(body)
    assert len(re.findall("^section", text, re.MULTILINE)) == rows + 2
    assert len(pairs) < 1000


def test_rows_that_differ_in_constants_alone_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of them would be 435."""
    compared: list[object] = []
    may_meet = ElementAliasing._may_meet

    def counted(self: ElementAliasing, one: ops.Access, other: ops.Access) -> bool:
        compared.append((one, other))
        return may_meet(self, one, other)

    monkeypatch.setattr(ElementAliasing, "_may_meet", counted)
    body = OWN.replace("%t", "%double")
    for row in range(30):
        body += f"  %r{row}: i32 = constant<{row - 2}>()\n"
        body += f"  %t{row}: i32 = binary<add>(%t, %r{row})\n"
        body += f"  %p{row}: f32 = atomic<add, @x, adjoint>(%own, %t{row}, %before)\n"
    sectioned(body)
    assert len(compared) == 30


def test_sections_of_one_partition_share_no_element() -> None:
    module = parse(sectioned(NEAR + OWN))
    load, update, _ = (op for op in module.walk() if isinstance(op, ops.Access) and op.indices)
    assert not may_alias(load.ref, update.ref)
    assert not may_alias(load.ref, update.ref, noalias=True)
    whole = load.ref.whole
    assert may_alias(load.ref, whole, noalias=True)
    other = ArrayRef(module.arrays[1], Companion.PRIMAL)
    assert may_alias(load.ref, other)
    assert not may_alias(load.ref, other, noalias=True)
    assert ElementAliasing(module.tasks[0]).is_owned([update])


@qd.kernel
def step(x: qd.types.ndarray(), t: qd.i32):
    for i in range(1, N - 1):
        x[t + 1, i] = 2.0 * x[t, i] - x[t - 1, i] + 0.1 * x[t, i] * (x[t, i - 1] + x[t, i + 1])


@qd.kernel
def total(x: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in range(N):
        loss[None] += x[STEPS - 1, i] ** 2


def test_a_reverse_step_adds_only_what_work_items_share_by_atomics() -> None:
    x = qd.ndarray(qd.f64, (STEPS, N), needs_grad=True)
    finished = step.inspect(x, 1, mode="reverse").stages["finish"]
    assert len(re.findall("atomic<add", finished)) == 3
    assert len(re.findall("store<@x_section", finished)) == 2


@on_cpu
def test_gradients_with_sections_are_right() -> None:
    x = qd.ndarray(qd.f64, (STEPS, N), needs_grad=True)
    loss = qd.ndarray(qd.f64, (), needs_grad=True)
    start = np.random.default_rng(0).uniform(0.5, 1.5, (STEPS, N))

    def run() -> float:
        loss.fill(0)
        for t in range(1, STEPS - 1):
            step(x, t)
        total(x, loss)
        return float(loss.to_numpy())

    x.from_numpy(start)
    with qd.ad.Tape(loss):
        run()
    gradient = x.grad.to_numpy()
    for element in ((0, 3), (1, 1), (1, 7), (2, 0), (1, N - 1)):
        ends = []
        for sign in (1, -1):
            moved = start.copy()
            moved[element] += sign * 1e-6
            x.from_numpy(moved)
            ends.append(run())
        np.testing.assert_allclose(gradient[element], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
