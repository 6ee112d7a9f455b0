"""Sums of products by exchanged factors, written for threads that numpy runs in step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from octants.analysis.sums.sums_of_products import SumsOfProducts
from octants.codegen.sums_of_products import number_at, shared_bytes, summed
from octants.ir.core import Value
from octants.types.scalars import f32


class Lockstep:
    """The code of a block of threads: each operand is an array with a number for each thread."""

    def __init__(self, threads: int, lanes: int) -> None:
        self.subgroup, self.exchange_subgroups = lanes, threads // lanes
        self.threads = np.arange(threads, dtype=np.uint32)
        self.shared: dict[Any, Any] = {}
        self.written: set[int] = set()
        self.barriers = 0

    def shared_array(self, key: Any, dtype: Any, count: int) -> Any:
        return self.shared.setdefault(key, np.full(count, 0x7FC00000, dtype.numpy))

    def constant(self, value: Any, dtype: Any) -> Any:
        return np.full(len(self.threads), value, dtype.numpy)

    def apply(self, fn: str, dtype: Any, *operands: Any) -> Any:
        assert all(operand.dtype == dtype.numpy for operand in operands)
        if fn == "fma":
            return operands[0] * operands[1] + operands[2]
        return {
            "add": np.add,
            "mul": np.multiply,
            "and": np.bitwise_and,
            "ushr": np.right_shift,
        }[fn](*operands)

    def compare(self, fn: str, dtype: Any, a: Any, b: Any) -> Any:
        return {"eq": np.equal, "ne": np.not_equal}[fn](a, b)

    def choose(self, condition: Any, dtype: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def bitcast(self, x: Any, source: Any, target: Any) -> Any:
        return x.view(target.numpy)

    def store(self, element: Any, dtype: Any, value: Any) -> None:
        places = element.index.tolist()
        assert len(set(places)) == len(places)
        assert self.written.isdisjoint(places)  # else a barrier is missing
        self.written.update(places)
        element.array[element.index] = value

    def load(self, element: Any, dtype: Any) -> Any:
        assert not self.written
        return element.array[element.index]

    def barrier(self, scope: str) -> None:
        self.written.clear()
        self.barriers += scope == "subgroup"

    def read_across(self, x: Any, dtype: Any, distance: int) -> Any:
        return x[self.threads ^ np.uint32(distance)]

    def lane(self) -> Any:
        return self.threads % np.uint32(self.subgroup)

    def subgroup_in_block(self) -> Any:
        return self.threads // np.uint32(self.subgroup)


SHAPES = {8: [(2, 4), (4, 4), (1, 8), (3, 8)], 32: [(4, 8), (8, 8), (16, 8), (2, 16), (8, 4)]}


@pytest.mark.parametrize(
    ("lanes", "shape"), [(lanes, shape) for lanes in SHAPES for shape in SHAPES[lanes]]
)
@pytest.mark.parametrize("subgroups", [1, 4])
def test_each_lane_has_its_sums(subgroups: int, lanes: int, shape: tuple[int, int]) -> None:
    random, threads = np.random.default_rng(2), subgroups * lanes
    code: Any = Lockstep(threads, lanes)
    values = {
        Value(f32): random.integers(-3, 4, threads).astype(np.float32) for _ in range(sum(shape))
    }
    f: Any = SimpleNamespace(code=code, use=values.__getitem__)
    factors = tuple(values)
    products = SumsOfProducts(factors[: shape[0]], factors[shape[0] :], guard="")
    assert products.fits(lanes)
    for _ in range(2):  # what is left from the first time is overwritten
        totals = summed(f, products)
    assert code.barriers == 4
    (memory,) = code.shared.values()
    assert memory.nbytes == shared_bytes(subgroups, lanes)
    numbers = [number for _, own in totals for number in own]
    assert sorted(numbers) == list(range(shape[0] * shape[1]))
    rows = [value.reshape(subgroups, lanes) for value in values.values()]
    for total, own in totals:
        pairs = [divmod(number, shape[1]) for number in own]
        wanted = [(rows[a] * rows[shape[0] + b]).sum(axis=1) for a, b in pairs]
        assert np.array_equal(total.reshape(subgroups, lanes), np.stack(wanted, axis=1))


def test_a_number_by_position() -> None:
    code: Any = Lockstep(8, 8)
    numbers = [5, 7, 7, 0, 1, 9, 2, 2]
    assert number_at(code, f32, numbers, code.lane()).tolist() == numbers
