"""Integers of 64 bits that are taken apart, for drivers that get wrong what they know of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import pytest

import octants as qd
from octants.backends import vulkan
from octants.codegen.spirv.compile import compile_module
from octants.codegen.spirv.opcodes import Op
from octants.options import Options
from octants.runtime.vulkan import structures
from octants.target import Target
from octants.types import scalars
from octants.types.scalars import DType, i64, u64
from tests.codegen import test_scalar_operations as scalar
from tests.vulkan import compiled, disassembly, test_validity
from tests.vulkan import test_integer_expressions as expressions

OWN = test_validity.SPLITS
TELLING = {  # from which a driver can conclude that some bits do not matter
    *(Op.U_CONVERT, Op.S_CONVERT, Op.NOT, Op.BITWISE_AND, Op.BITWISE_OR, Op.BITWISE_XOR),
    *(Op.SHIFT_LEFT_LOGICAL, Op.SHIFT_RIGHT_LOGICAL, Op.SHIFT_RIGHT_ARITHMETIC),
    *(op for op in Op if Op.I_EQUAL <= op <= Op.S_LESS_THAN_EQUAL),
}
wide = pytest.mark.parametrize("dtype", [i64, u64], ids=str)


def telling_lines(code: bytes) -> list[str]:
    """The instructions of a module that tell something of numbers of 64 bits."""
    names, long_type, long, found = {op.name.lower() for op in TELLING}, "", set(), []
    for line in disassembly.to_text(code).splitlines():
        result, equals, rest = line.partition(" = ")
        op, *operands = rest.split() if equals else [""]
        if op == "type_int" and operands[0] == "64":
            long_type = result
        elif operands and operands[0] == long_type:
            long.add(result)
        if op in names and long & {result, *operands[1:]}:
            found.append(line)
    return found


@wide
def test_nothing_is_told_of_64_bits(dtype: DType) -> None:
    module = test_validity.every_function(dtype)
    whole = compile_module(module, test_validity.target(test_validity.MUCH))
    assert len(telling_lines(whole.code)) > 20
    assert not telling_lines(compile_module(module, test_validity.target(OWN)).code)


@pytest.mark.parametrize(("vendor", "splits"), [(0x10DE, True), (0x1002, False)])
def test_nvidias_driver_splits(vendor: int, splits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiled.device().hardware
    monkeypatch.setattr(found.properties, "vendor", vendor)
    assert ("splits" in found._features(structures.FloatControls())) == splits


# -- on a device ----------------------------------------------------------------------------------


@pytest.fixture
def splitting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code is what it is for a driver that splits."""
    compiled.device()  # or skip
    given = vulkan.VulkanBackend.target

    def target(backend: vulkan.VulkanBackend, chosen: Options) -> Target:
        own = given(backend, chosen)
        return dataclasses.replace(own, features=f"{own.features},splits")

    monkeypatch.setattr(vulkan.VulkanBackend, "target", target)
    made = functools.partial(compiled.OnVulkan, features="splits")
    monkeypatch.setattr(scalar, "Compiled", made)
    yield
    qd.reset()


@wide
@pytest.mark.usefixtures("splitting")
def test_functions_and_casts(dtype: DType) -> None:
    scalar.test_exact_functions_give_the_defined_bits(dtype, scalar.TARGET, 2)
    scalar.test_casts(dtype, scalar.TARGET)
    scalar.test_division_and_power_by_constants(dtype)


@pytest.mark.parametrize(
    "dtype",
    [scalars.u1, scalars.i8, scalars.i16, scalars.u16, scalars.u32, scalars.f64],
    ids=str,
)
@pytest.mark.usefixtures("splitting")
def test_casts_of_other_types(dtype: DType) -> None:
    scalar.test_casts(dtype, scalar.TARGET)


@pytest.mark.parametrize("as_index", [False, True], ids=["values", "indices"])
@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.usefixtures("splitting")
def test_expressions(kind: str, as_index: bool) -> None:
    check = expressions.test_expressions_give_what_they_give_on_the_cpu
    check(kind, 0, as_index)


EXCHANGES = {
    "shifts": lambda x: x << 8 | x >> 8,
    "exclusive or": lambda x: x >> 8 ^ x << 8,
    "masks": lambda x: (x & 255) << 8 | (x >> 8) & 255,
    "product": lambda x: x * qd.u16(256) | x // qd.u16(256),
    "two shifts": lambda x: (x << 7) << 1 | x >> 8,
    "masks of 32 bits": lambda x: qd.cast((x & 255) * 256 | (x & 65280) >> 8, qd.u16),
}


@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.usefixtures("splitting")
def test_exchanged_bytes(name: str) -> None:
    """NVIDIA's compiler (580.159) gave other bytes."""
    qd.init(arch=qd.vulkan, offline_cache=False)
    exchanged = qd.func(EXCHANGES[name])
    values = np.array([0, 1, 3, 255, 256, 513, 0x1234, 0x8001, 0xFFFF], np.uint16)
    x, y, z = (qd.ndarray(dtype, len(values)) for dtype in (qd.u16, qd.u16, qd.i32))
    x.from_numpy(values)

    @qd.kernel
    def run(
        x: qd.types.ndarray(qd.u16, 1),
        y: qd.types.ndarray(qd.u16, 1),
        z: qd.types.ndarray(qd.i32, 1),
    ) -> None:
        for i in range(x.shape[0]):
            y[i] = exchanged(x[i])
            z[i] = exchanged(qd.cast(i * 517, qd.u16))

    run(x, y, z)
    assert y.to_numpy().tolist() == values.byteswap().tolist()
    numbers = (np.arange(len(values)) * 517).astype(np.uint16)
    assert z.to_numpy().tolist() == numbers.byteswap().tolist()


LOW_BITS = {
    "and": lambda x: qd.cast(x, qd.i32) & 1,
    "remainder": lambda x: qd.cast(x, qd.i32) % 2,
    "unsigned remainder": lambda x: qd.cast(qd.cast(x, qd.u32) % 2, qd.i32),
    "shifts": lambda x: qd.bit_shr(qd.cast(x, qd.i32) << 31, 31),
    "difference": lambda x: qd.cast(x, qd.i32) - ((qd.cast(x, qd.i32) >> 1) << 1),
    "byte": lambda x: qd.cast(qd.cast(x, qd.u8) & 1, qd.i32),
    "and of 64 bits": lambda x: qd.cast(x & qd.cast(1, qd.u64), qd.i32),
    "shifts of 64 bits": lambda x: qd.cast(qd.bit_shr(x << 63, 63), qd.i32),
}


@pytest.mark.parametrize("name", LOW_BITS)
@pytest.mark.usefixtures("splitting")
def test_a_factor_of_one_bit(name: str) -> None:
    """NVIDIA's compiler (580.159) asked whether any bit was set, beside a square root of f64."""
    qd.init(arch=qd.vulkan, default_fp=qd.f64, offline_cache=False)
    low_bit = qd.func(LOW_BITS[name])
    values = np.array([3, 2, 0, 1, 34, 2**63, 2**63 + 1, 2**33, 2**33 + 1], np.uint64)
    x = qd.ndarray(qd.u64, len(values))
    loaded, added = (qd.ndarray(qd.i32, len(values)) for _ in range(2))
    factor, root = qd.ndarray(qd.i32, 1), qd.ndarray(qd.f64, len(values))
    x.from_numpy(values)
    factor.fill(-7)

    @qd.kernel
    def run(
        x: qd.types.ndarray(qd.u64, 1),
        loaded: qd.types.ndarray(qd.i32, 1),
        added: qd.types.ndarray(qd.i32, 1),
        factor: qd.types.ndarray(qd.i32, 1),
        root: qd.types.ndarray(qd.f64, 1),
    ):
        for i in x:
            loaded[i] = low_bit(x[i]) * factor[0]
            added[i] = low_bit(x[i] + x[0]) * factor[0]
            root[i] += qd.sqrt(root[i] + 2.0)

    run(x, loaded, added, factor, root)
    odd = (values % 2).astype(int)
    assert loaded.to_numpy().tolist() == (-7 * odd).tolist()
    assert added.to_numpy().tolist() == (-7 * (odd ^ odd[0])).tolist()
    np.testing.assert_allclose(root.to_numpy(), np.sqrt(2.0))


@wide
def test_no_half_is_seen_as_a_part_of_its_whole(dtype: DType) -> None:
    """Bits of a half are only taken where a launch's zero was combined with it before."""
    code = compile_module(test_validity.every_function(dtype), test_validity.target(OWN)).code
    lines = [line.partition(" = ") for line in disassembly.to_text(code).splitlines()]
    parts, found = set(), 0
    for result, _, rest in lines:
        op, *operands = rest.split() or [""]
        if op == "composite_extract" and operands[1] in parts | wholes(lines):
            parts.add(result)
        if op in ("bitwise_and", "shift_left_logical", "s_convert", "u_convert"):
            found += 1
            assert not parts & set(operands[1:]), f"{result} = {rest}"
    assert found > 5


def wholes(lines: list[tuple[str, str, str]]) -> set[str]:
    """The pairs of halves that are a number of 64 bits."""
    return {result for result, _, rest in lines if rest.startswith("bitcast ")}


@pytest.mark.usefixtures("splitting")
def test_a_gradient() -> None:
    """Of a loop whose turns depend on data, in a work item that is found by a remainder."""
    qd.init(arch=qd.vulkan, default_fp=qd.f64, offline_cache=False)
    x, y = (qd.field(qd.f64, shape=9, needs_grad=True) for _ in "xy")
    x.from_numpy(np.linspace(0.5, 1.5, 9))

    @qd.kernel
    def run():
        for i in y:
            v, turns = x[i % 2], 0
            while v > 0.2 and turns < i:
                v *= 1.0 - 0.1 * v
                turns += 1
            y[i] = v

    run()
    y.grad.fill(1.0)
    run.grad()
    value, step = x.to_numpy(), 1e-6
    wanted = [0.0] * 9
    for k in range(2):
        ends = []
        for moved in (step, -step):
            x.from_numpy(value + moved * (np.arange(9) == k))
            run()
            ends.append(y.to_numpy().sum())
        wanted[k] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-7)
