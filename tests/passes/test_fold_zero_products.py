"""What is multiplied by a constant zero is zero, where `fast_math` allows it."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import octants as qd
from octants.codegen.llvm.cpu import has_fused, host_target
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.arithmetic.fold_zero_products import fold_zero_products
from tests.devices import tells_infinities
from tests.ir.parser import parse

HEAD = """\
kernel @k
array @x: f32, 0, field, () [primal]
serial @k_0 {
  %0: f32 = constant<-0.0>()
  %1: f32 = load<@x, primal>()
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("binary<mul>(%0, %1)", ["constant<-0.0>()"]),
        ("binary<add>(%1, %0)", ["load<@x, primal>()"]),
        ("binary<sub>(%1, %0)", ["load<@x, primal>()"]),
        ("fma(%1, %0, %1)", ["load<@x, primal>()"]),
        ("binary<sub>(%0, %1)", None),
        ("binary<div>(%0, %1)", None),
        ("binary<max>(%0, %1)", None),
        ("fma(%1, %1, %0)", None),
    ],
)
def test_operations(line: str, expected: list[str] | None) -> None:
    text = HEAD + f"  %2: f32 = {line}\n  store<@x, primal>(%2)\n  yield()\n}}\n"
    module = parse(text)
    before = to_text(module)
    fold_zero_products(module)
    verify(module)
    found = to_text(module)
    if expected is None:
        assert found == before
    else:
        assert re.findall(r" = (.*)", found) == expected


def field(*shape: int) -> qd.Field:
    return qd.field(qd.f32, shape=shape, needs_grad=True)


@pytest.mark.skipif(not has_fused(host_target()), reason="nothing is contracted here")
def test_a_matrix_with_zeros_is_multiplied_as_if_by_hand() -> None:
    def loop(fast_math: bool) -> tuple[int, np.ndarray, np.ndarray]:
        qd.init(arch=qd.cpu, fast_math=fast_math)
        w, y = field(5, 3), field(5)
        w.from_numpy(np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3))

        @qd.kernel
        def turn():
            for i in y:
                a, b, c = 0.1 * w[i, 0], 0.1 * w[i, 1], 0.1 * w[i, 2]
                r = qd.Matrix([[1.0, 2.0, 3.0], [0.5, 1.0, 0.0], [0.0, 0.3, 1.0]])
                for _ in range(9):
                    r = r + r @ qd.Matrix([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]])
                y[i] = r[0, 1] + r[1, 2] * r[2, 0]

        turn()
        y.grad.fill(1)
        turn.grad()
        text = turn.inspect().stages["finish"]
        body = text[text.index("= for(") :]
        return len(re.findall(r"<mul>|fma", body)), y.to_numpy(), w.grad.to_numpy()

    count, values, gradient = loop(True)
    assert count == 18 + 1
    _, expected, expected_gradient = loop(False)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


@tells_infinities
@pytest.mark.parametrize("fast_math", [False, True])
def test_infinities_tell(fast_math: bool) -> None:
    qd.init(arch=qd.cpu, fast_math=fast_math)

    @qd.kernel
    def product(x: qd.f32) -> qd.f32:
        return x * 0.0 + 2.0

    assert product(3.0) == 2.0
    is_dropped = fast_math and has_fused(host_target())
    assert math.isnan(product(math.inf)) is not is_dropped
