"""Updates of several elements that subgroups make together, each thread one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.analysis.sums.reductions import find_shared
from octants.analysis.sums.sum_groups import find_groups
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Op
from octants.ir.core import Array, Companion, Module, Space
from octants.types import scalars
from octants.types.layouts import Layout, Term
from octants.types.scalars import DType, f16, f32, i32, u1
from tests.codegen.compiled import for_, if_, ndarray, parallel
from tests.seeds import pairwise
from tests.vulkan import compiled
from tests.vulkan.test_atomic_sums import a_target, count
from tests.vulkan.test_validity import MUCH
from tests.vulkan.validation import check, needs_validator

N, LENGTH, ITERATIONS = 1000, 40, 3
NUMBERS = [dtype for dtype in scalars.ALL if dtype not in (f16, u1)]
APART = (0, 1, 2), (0, -1, -2, -3, -4), (3, 0, 9, 1, 1, 12, 5), tuple(range(8)), tuple(range(19))


def updates(
    dtype: DType, fn: str, apart: tuple[int, ...], *, is_field: bool, ragged: bool = False
) -> Module:
    """Work items update elements ``apart`` from some that follow each other.

    With ``ragged`` another seventh of the work items leaves each of these out.
    """
    layouts = {Companion.PRIMAL: Layout((LENGTH,), (Term(0, 1, 0, dtype.size),))}
    sums = Array("sums", dtype, 1, Space.FIELD, (), layouts) if is_field else ndarray("sums", dtype)
    x, at = ndarray("x", dtype), ndarray("at", i32)

    def body(build: Any, i: Any) -> None:
        def update(build: Any, start: Any) -> list[Any]:
            for number, distance in enumerate(apart):
                own = build.binary("mul", build.load(x, [i]), build.constant(number + 1, dtype))
                build.atomic(fn, sums, [build.binary("add", start, build.index(distance))], own)
            return []

        def iteration(build: Any, j: Any, _: Any) -> list[Any]:
            if ragged:
                rest = build.binary("mod", build.binary("add", i, j), build.index(7))
                taken = build.compare("ne", rest, build.index(0))
                if_(build, taken, lambda inner: update(inner, j))
            else:
                update(build, j)
            return []

        first = build.load(at, [build.index(0)])
        last = build.binary("add", first, build.index(ITERATIONS))
        for_(build, first, last, [], iteration)

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("sums", [sums, x, at], tasks=[task])
    module.noalias = True
    (group,) = find_groups(task, find_shared(task.body), True, 32)
    assert len(group.updates) == len(apart)
    return module


def expected(
    dtype: DType, fn: str, apart: tuple[int, ...], x: Any, start: int, *, ragged: bool
) -> Any:
    wanted = [0] * LENGTH
    for j in range(start, start + ITERATIONS):
        values = (x[(np.arange(len(x)) + j) % 7 != 0] if ragged else x).astype(object)
        for number, distance in enumerate(apart if len(values) else ()):
            own, before = values * (number + 1), wanted[j + distance]
            both = before + own.sum() if fn == "add" else max(before, own.max())
            wanted[j + distance] = scalars.convert(both, dtype)
    return wanted


@pytest.mark.parametrize(
    ("fn", "apart", "is_field", "ragged"),
    pairwise(["add", "max"], APART, [False, True], [False, True]),
)
def test_each_element_gets_its_own(
    fn: str, apart: tuple[int, ...], is_field: bool, ragged: bool
) -> None:
    kernel = compiled.OnVulkan(
        updates(f32, fn, apart, is_field=is_field, ragged=ragged), features="gathers"
    )
    for items in (1, 8, 61, N):
        x = (np.arange(items) % 5).astype(np.float32)
        data = {"sums": np.zeros(LENGTH, np.float32), "x": x, "at": np.array([9], np.int32)}
        kernel.run(data)
        wanted = expected(f32, fn, apart, x, 9, ragged=ragged)
        assert data["sums"].tolist() == wanted


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers_of_each_type(dtype: DType) -> None:
    kernel = compiled.OnVulkan(updates(dtype, "add", APART[2], is_field=False), features="gathers")
    x = (np.arange(N) % 5).astype(dtype.numpy)
    data = {"sums": np.zeros(LENGTH, dtype.numpy), "x": x, "at": np.array([9], np.int32)}
    kernel.run(data)
    wanted = expected(dtype, "add", APART[2], x, 9, ragged=False)
    assert data["sums"].tolist() == wanted


@needs_validator
@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_exchanges(lanes: int) -> None:
    """A group takes one for each element but the first, as far as they are pairs.

    Two more read the halves of the first lane's address.
    """
    for apart in APART:
        module = updates(f32, "add", apart, is_field=False)
        artifact = compile_module(module, a_target(lanes, f"{MUCH},lanes,gathers,add32"))
        check(artifact)
        left, wanted = min(len(apart), lanes), 0
        for _ in range(lanes.bit_length() - 1):
            left = -(-left // 2)
            wanted += left
        further = 2 + 5 if len(apart) > lanes else 0  # of a second group
        assert count(artifact.code, Op.GROUP_SHUFFLE) == 2 + wanted + further
