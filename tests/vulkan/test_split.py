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
from tests.vulkan import compiled, test_validity, words
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
    for line in words.to_text(code).splitlines():
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


@pytest.mark.parametrize("dtype", [scalars.u1, scalars.i8, scalars.u32, scalars.f64], ids=str)
@pytest.mark.usefixtures("splitting")
def test_casts_to_wide_types(dtype: DType) -> None:
    scalar.test_casts(dtype, scalar.TARGET)


@pytest.mark.parametrize("as_index", [False, True], ids=["values", "indices"])
@pytest.mark.parametrize("kind", ["i32", "i64"])
@pytest.mark.usefixtures("splitting")
def test_expressions(kind: str, as_index: bool) -> None:
    check = expressions.test_expressions_give_what_they_give_on_the_cpu
    check(kind, 0, as_index)


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
