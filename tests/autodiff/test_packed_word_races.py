"""Gradients of kernels that change quantised fields: numbers that share a word do not race."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.diagnostics.exceptions import OctantsError
from tests.devices import ARCH
from tests.frontend.frontend_programs import define

N = 6


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    qd.init(arch=getattr(qd, ARCH), log_level="error")
    yield
    qd.reset()


def fields() -> dict[str, Any]:
    """Two fields in a word, one whose elements share words, and the arrays of a gradient."""
    kind = qd.types.quant.int(5, False)
    a, b, q = (qd.field(kind) for _ in range(3))
    word = qd.BitpackedFields(max_num_bits=32)
    word.place(a, b)
    qd.root.dense(qd.i, N).place(word)
    qd.root.dense(qd.i, N // 3).quant_array(qd.i, 3, max_num_bits=32).place(q)
    x = qd.field(qd.f32, shape=N, needs_grad=True)
    n = qd.field(qd.i32, shape=N)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    for array, value in ((a, 1), (b, 2), (q, 3), (x, 2.0)):
        array.fill(value)
    n.from_numpy((1 + np.arange(N, dtype=np.int32)) % N)
    return {"a": a, "b": b, "q": q, "x": x, "n": n, "loss": loss}


def gradient(statement: str) -> list[float]:
    """The gradient of a sum of squares in a loop with another statement, and a factor ``f``."""
    given = {**fields(), "N": N, "qd": qd}
    text = f"""
def kernel():
    for i in x:
        f = 1
        {statement}
        loss[None] += x[i] * x[i] * f
"""
    kernel = qd.kernel(define(text, "kernel", **given))
    with qd.ad.Tape(loss=given["loss"]):
        kernel()
    found: list[float] = given["x"].grad.to_numpy().tolist()
    return found


@pytest.mark.parametrize(
    ("statement", "factor"),
    [
        ("q[i] = i", 1),
        ("q[i] += 1; f = q[i]", 4),
        ("a[i] = 3; f = b[(i + 1) % N]", 2),
        ("a[0] += 1; f = b[i]", 2),
        ("f = qd.atomic_add(q[i], 2) + q[i]", 8),
        ("a[n[i]] = 3; f = b[n[i]]", 2),
    ],
)
def test_numbers_in_one_word_do_not_race(statement: str, factor: int) -> None:
    assert gradient(statement) == [4.0 * factor] * N


@pytest.mark.parametrize(
    "statement",
    [
        "q[i] = i; f = q[(i + 1) % N]",
        "a[0] += 1; f = a[i]",
        "f = qd.atomic_add(q[0], 1)",
        "a[n[i]] = 3; f = a[n[n[i]]]",
    ],
)
def test_one_number_races(statement: str) -> None:
    with pytest.raises(OctantsError, match="OCT30[34]"):
        gradient(statement)


def of_many(count: int, statement: str) -> Any:
    """The gradient of a loop over many work items, which changes a quantised field."""
    q = qd.field(qd.types.quant.int(8, False))
    qd.root.dense(qd.i, -(-count // 4)).quant_array(qd.i, 4, max_num_bits=32).place(q)
    x = qd.field(qd.f32, shape=count, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    text = f"""
def kernel():
    for i in x:
        {statement}
        loss[None] += 2.0 * x[i]
"""
    kernel = qd.kernel(define(text, "kernel", q=q, x=x, loss=loss, qd=qd, count=count))
    with qd.ad.Tape(loss=loss):
        kernel()
    return x.grad.to_numpy()


def test_all_of_many_work_items_are_compared() -> None:
    count = 100_000
    assert (of_many(count, "q[i] = 1; loss[None] += q[i] * x[i]") == 3.0).all()
    with pytest.raises(OctantsError, match="OCT303"):  # only two of them meet, in the middle
        of_many(count, "q[i + (i == 50_000)] = 1; loss[None] += q[i] * x[i]")


def test_affine_indices_need_no_comparison() -> None:
    count = (1 << 20) + 4
    assert (of_many(count, "q[i] = 1; loss[None] += q[i] * x[i]") == 3.0).all()
    with pytest.raises(OctantsError, match="OCT304"):  # too many to be compared
        of_many(count, "q[i ^ 1] = 1; loss[None] += q[i ^ 1] * x[i]")


@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_numbers_of_a_loop_whose_length_is_an_argument_do_not_race(shape: tuple[int, ...]) -> None:
    axes = (qd.i, qd.ij)[len(shape) - 1]
    q = qd.field(qd.types.quant.int(4, False))
    qd.root.quant_array(axes, shape, max_num_bits=32).place(q)
    x = qd.field(qd.f32, shape=shape, needs_grad=True)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    names = "ij"[: len(shape)]
    here = ", ".join(names)
    text = f"""
def kernel({", ".join(f"n{name}: qd.i32" for name in names)}, shift: qd.i32):
    for {here} in qd.ndrange({", ".join(f"n{name}" for name in names)}):
        q[{here}] += 1
        loss[None] += x[{here}] * q[{here} SHIFT]
"""
    for shift in (" + shift", ""):
        given = {"q": q, "x": x, "loss": loss, "qd": qd}
        kernel = qd.kernel(define(text.replace(" SHIFT", shift), "kernel", **given))
        q.fill(0)
        refusal = pytest.raises(OctantsError, match="OCT304") if shift else nullcontext()
        with refusal, qd.ad.Tape(loss=loss):
            kernel(*shape[:-1], shape[-1] - bool(shift), 1)
    assert (x.grad.to_numpy() == 1).all()
