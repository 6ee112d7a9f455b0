"""Tests of `passes.spill_indexed_sums`: sums into components of local vectors by run-time
indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.ir.core import Space
from octants.ir.ops import For
from octants.ir.parser import parse
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.passes.spill_indexed_sums import SHORTEST, spill_indexed_sums

N, STEPS = 37, 11


def loop_of(length: int) -> str:
    """A loop that adds to one of so many carried values, of which the first is for all others."""
    names = [f"%s{k}" for k in range(length)]
    lines = ["%g: f32 = load<@x, primal>(%i)", "%j: i32 = cast(%g)"]
    rest = "%g"
    for k in range(length - 1, 0, -1):
        lines += [
            f"%c{k}: u1 = compare<eq>(%j, %k{k})",
            f"%d{k}: f32 = select(%c{k}, {rest}, %zero)",
            f"%r{k}: f32 = select(%c{k}, %zero, {rest})",
            f"%t{k}: f32 = binary<add>(%s{k}, %d{k})",
        ]
        rest = f"%r{k}"
    lines.append(f"%t0: f32 = binary<add>({rest}, %s0)")
    results = ", ".join(f"%o{k}: f32" for k in range(length))
    head = "".join(f"  %k{k}: i32 = constant<{k}>()\n" for k in range(1, length))
    body = "".join(f"    {line}\n" for line in lines)
    ends = ", ".join(f"%t{k}" for k in range(length))
    args = ", ".join(f"{name}: f32" for name in names)
    stores = "".join(f"  store<@x, primal>(%o{k}, %k{k})\n" for k in range(1, length))
    return (
        "kernel @k\narray @x: f32, 1, ndarray, () [primal]\nserial @k_0 {\n"
        "  %first: i32 = constant<0>()\n  %count: i32 = constant<5>()\n"
        f"  %zero: f32 = constant<0.0>()\n{head}"
        f"  {results} = for(%first, %count, {', '.join(['%zero'] * length)})"
        f" {{ (%i: i32, {args}):\n{body}    yield({ends})\n  }}\n"
        f"  store<@x, primal>(%o0, %first)\n{stores}  yield()\n}}\n"
    )


@pytest.mark.parametrize("length", [SHORTEST - 1, SHORTEST, 3 * SHORTEST])
def test_long_vectors_are_in_memory(length: int) -> None:
    module = parse(loop_of(length))
    before = to_text(module)
    spill_indexed_sums(module)
    verify(module)
    if length < SHORTEST:
        assert to_text(module) == before
        return
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    assert not loop.inits
    assert len(loop.body.ops) < 14
    assert [array.space for array in module.arrays] == [Space.NDARRAY, Space.LOCAL]


def test_a_sum_that_is_read_stays() -> None:
    text = loop_of(SHORTEST).replace("%j: i32 = cast(%g)", "%j: i32 = cast(%s3)")
    module = parse(text)
    before = to_text(module)
    spill_indexed_sums(module)
    assert to_text(module) == before


def picking(length: int, dtype: Any) -> Any:
    """A kernel that reads components of a local vector by indices from memory, in two loops."""

    @qd.kernel
    def pick(
        x: qd.types.ndarray(dtype, 2),
        w: qd.types.ndarray(dtype, 2),
        indices: qd.types.ndarray(qd.i32, 2),
        y: qd.types.ndarray(dtype, 1),
    ):
        for n in range(x.shape[0]):
            v = qd.Vector([0.0] * length, dt=dtype)
            for k in qd.static(range(length)):
                v[k] = qd.sin(x[n, k])
            total = qd.cast(0.0, dtype)
            for i in range(2):
                part = qd.cast(0.0, dtype)
                for j in range(n % STEPS):
                    part += w[n, j] * v[indices[n, j]]
                    part += v[(indices[n, j] + i) % length]
                total += part * part
            y[n] = total

    return pick


def expected(x: Any, w: Any, indices: Any) -> Any:
    """The gradient of the sum of what the kernel stores; an index out of range stands for 0."""
    length = x.shape[1]
    gradient = np.zeros(x.shape)
    for n in range(len(x)):
        v = np.sin(x[n].astype(np.float64))
        for i in range(2):
            slope, part = np.zeros(length), 0.0
            for j in range(n % STEPS):
                place = indices[n, j] if 0 <= indices[n, j] < length else 0
                slope[place] += w[n, j]
                part += w[n, j] * v[place]
                slope[(indices[n, j] + i) % length] += 1
                part += v[(indices[n, j] + i) % length]
            gradient[n] += 2 * part * slope
    return gradient * np.cos(x)


@pytest.mark.parametrize("simd", ["never", "always"])
@pytest.mark.parametrize(("length", "dtype"), [(9, "f32"), (17, "f64")])
def test_gradients(simd: str, length: int, dtype: str) -> None:
    qd.init(arch=qd.cpu, simd=simd, cpu_max_num_threads=2, log_level="error")
    kind = getattr(qd, dtype)
    rng = np.random.default_rng(length)
    x, w = rng.normal(size=(N, length)), rng.normal(size=(N, STEPS))
    indices = rng.integers(-2, length + 3, size=(N, STEPS)).astype(np.int32)
    arrays = []
    for host in (x, w, np.zeros(N)):
        array = qd.ndarray(kind, host.shape, needs_grad=True)
        array.from_numpy(host.astype(kind.numpy))
        arrays.append(array)
    given = qd.ndarray(qd.i32, indices.shape)
    given.from_numpy(indices)
    pick = picking(length, kind)
    arguments = arrays[0], arrays[1], given, arrays[2]
    pick(*arguments)
    arrays[2].grad.fill(1.0)
    pick.grad(*arguments)
    error = abs(arrays[0].grad.to_numpy() - expected(x, w, indices)).max()
    assert error < (2e-4 if dtype == "f32" else 1e-12)
