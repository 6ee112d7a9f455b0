"""Addresses that a driver takes out of vectors, lane by lane: the same elements, by other code."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Op
from octants.runtime.vulkan import physical_devices
from octants.types.scalars import DType
from tests.seeds import each_once
from tests.vulkan import compiled
from tests.vulkan.disassembly import to_text
from tests.vulkan.validation import check

SIZE = 37
"""Of an array: some vectors of lanes, and a part of one."""
WITHOUT = {"vulkan_without": "lanewise"}


@pytest.fixture(autouse=True)
def _vulkan() -> Iterator[None]:
    compiled.device()
    yield
    qd.reset()


def program(dtype: DType, index: DType) -> Any:
    """Accesses of all kinds: components, repeated, of neighbours, strided, atomic, with i64."""
    point = qd.types.struct(small=qd.u8, at=qd.types.vector(3, dtype))
    points, order = point.field(shape=SIZE), qd.field(index, shape=SIZE)
    a, b = (qd.field(dtype, shape=SIZE) for _ in "ab")
    grid = qd.ndarray(dtype, (3, SIZE))
    total = qd.field(dtype, shape=5)
    numbers = np.arange(SIZE)
    order.from_numpy((numbers * 7 % SIZE).astype(order.to_numpy().dtype))
    kind = a.to_numpy().dtype
    a.from_numpy((numbers + 1).astype(kind))
    grid.from_numpy((np.arange(3 * SIZE).reshape(3, SIZE) % 50).astype(kind))

    @qd.kernel
    def run(grid: qd.types.ndarray()):
        for i in a:
            k = order[i]
            points[k].small = qd.cast(i, qd.u8)
            points[k].at[0] = a[k]
            points[k].at[2] = grid[1, k] + grid[2, k]
            b[i] = a[i]
            for j in range(i % 5):
                b[i] += a[j]  # a repeated access, from a divergent loop
                if j > 0:
                    b[i] -= a[j - 1]
            grid[0, i] += grid[1, i]
            qd.atomic_add(total[i % 5], qd.cast(1, dtype))
            points[k].at[1] = points[k].at[0] + b[i]

    def found() -> list[Any]:
        run(grid)
        own = points.to_numpy()
        return [own["small"], own["at"], b.to_numpy(), grid.to_numpy(), total.to_numpy()]

    return found


@pytest.mark.parametrize(
    ("dtype", "index"),
    each_once([qd.f32, qd.f64, qd.i16, qd.u8, qd.i64], [qd.i32, qd.i64, qd.u32]),
    ids=str,
)
def test_the_same_elements(dtype: DType, index: DType) -> None:
    found = []
    for options in ({"arch": qd.cpu}, {"arch": qd.vulkan}, {"arch": qd.vulkan, **WITHOUT}):
        qd.init(offline_cache=False, log_level="error", **options)
        found.append(program(dtype, index)())
    wanted, *others = found
    for each in others:
        for one, other in zip(each, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_each_access_has_its_own_address() -> None:
    """LLVM takes elements of the operands of those operations alone that one access uses."""
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")
    a, b = (qd.field(qd.f32, shape=SIZE) for _ in "ab")
    v = qd.Vector.field(3, qd.f32, shape=SIZE)

    @qd.kernel
    def run(x: qd.types.ndarray(), y: qd.types.ndarray()):
        for i in a:
            a[i] += b[i]
            for j in range(i):
                a[i] += v[j].norm_sqr() + x[j] * y[j]
                y[i] = x[j]

    for kind in (qd.i32, qd.f64):
        x, y = (qd.ndarray(kind, SIZE) for _ in "xy")
        module = run.inspect(x, y)._module
        own = physical_devices.choose(0).target
        features = f"{own.features},addresses,int64,lanewise"
        artifact = compile_module(module, dataclasses.replace(own, features=features))
        check(artifact)
        assert _addresses_of_one_access(to_text(artifact.code)) >= 10


def test_offsets_in_ndarrays_are_multiplied_and_added_in_32_bits() -> None:
    qd.init(arch=qd.vulkan, offline_cache=False, log_level="error")

    @qd.kernel
    def run(x: qd.types.ndarray()):
        for i in range(3):
            for j in range(i):
                x[i, j, 1] += x[j, i, 0]

    module = run.inspect(qd.ndarray(qd.f32, (3, 3, 2)))._module
    own = physical_devices.choose(0).target
    products = []
    others = set(own.features.split(",")) - {"lanewise"} | {"addresses", "int64"}
    for chosen in ({*others, "lanewise"}, others):
        features = ",".join(sorted(chosen))
        artifact = compile_module(module, dataclasses.replace(own, features=features))
        check(artifact)
        products.append(_products_of_64_bits(to_text(artifact.code)))
    narrow, wide = products
    assert narrow == 1 < wide, "only the number of the work item is wide"


def _products_of_64_bits(code: str) -> int:
    """How many instructions multiply 64-bit integers."""
    rows = [line.partition(" = ") for line in code.splitlines()]
    long = {result for result, _, rest in rows if rest.startswith(Op.TYPE_INT.name.lower() + " 64")}
    return sum(
        rest.split(" ")[:1] == [Op.I_MUL.name.lower()] and rest.split(" ")[1] in long
        for _, _, rest in rows
    )


def _addresses_of_one_access(code: str) -> int:
    """How many addresses are sums with a shifted i32; each has to be used once, as its parts."""
    names = (Op.CONVERT_U_TO_PTR, Op.I_ADD, Op.SHIFT_LEFT_LOGICAL, Op.S_CONVERT)
    pointer, plus, shift, widen = (op.name.lower() for op in names)
    made: dict[str, list[str]] = {}
    for line in code.splitlines():
        result, _, rest = line.partition(" = ")
        if rest.split(" ")[0] in (pointer, plus, shift, widen):
            made[result] = rest.split(" ")
    uses = Counter(operand for _, _, *operands in made.values() for operand in operands)
    count = 0
    for op, _, address, *_ in made.values():
        parts = made.get(address, [""])
        if op == pointer and parts[0] == plus and made.get(parts[3], [""])[0] == shift:
            wide = made[parts[3]][2]
            assert made[wide][0] == widen
            assert uses[address] == uses[parts[3]] == uses[wide] == 1
            count += 1
    return count
