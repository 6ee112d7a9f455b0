"""Kernels, ndarrays and objects through pickle, cloudpickle and copy."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octants as qd
from tests.devices import ARCH
from tests.golden_files import check_golden

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def session() -> Any:
    qd.init(arch=getattr(qd, ARCH))
    yield
    qd.reset()


@qd.kernel
def add(x: qd.types.ndarray(qd.f32, 1), amount: qd.f32):
    for i in x:
        x[i] += amount


@qd.data_oriented
class Owner:
    def __init__(self) -> None:
        self.x = qd.ndarray(qd.f32, 3)
        self.factor = 5

    @qd.kernel
    def scaled(self, amount: qd.i32) -> qd.i32:
        return self.factor * amount


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


WAYS = [through_pickle, copy.copy, copy.deepcopy]


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_of_a_module_is_itself(way: Callable[[Any], Any]) -> None:
    x = qd.ndarray(qd.f32, 3)
    add(x, 1.0)  # a kernel that was launched has more to lose
    assert way(add) is add


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("element", [(), (2,), (2, 2)])
def test_an_ndarray_is_copied_with_its_companions(
    way: Callable[[Any], Any], element: tuple[int, ...]
) -> None:
    kinds = {
        0: qd.f32,
        1: qd.types.vector(*element, qd.f32) if len(element) == 1 else None,
        2: qd.types.matrix(*element, qd.f32) if len(element) == 2 else None,
    }
    x = qd.ndarray(kinds[len(element)], (3,), needs_grad=True, needs_dual=True)
    values = np.arange(3 * int(np.prod(element)), dtype=np.float32).reshape(3, *element)
    x.from_numpy(values)
    x.grad.from_numpy(values + 1)
    x.dual.from_numpy(values + 2)
    y = way(x)
    x.fill(-1.0)
    x.grad.fill(-1.0)
    assert type(y) is type(x)
    for found, wanted in ((y, values), (y.grad, values + 1), (y.dual, values + 2)):
        np.testing.assert_array_equal(found.to_numpy(), wanted)
    if not element:
        add(y, 2.0)
        np.testing.assert_array_equal(y.to_numpy(), values + 2)


def test_an_empty_array_and_a_gradient_alone_are_pickled() -> None:
    assert through_pickle(qd.ndarray(qd.i64, (0, 2))).shape == (0, 2)
    x = qd.ndarray(qd.f64, 2, needs_grad=True)
    x.grad.fill(3.0)
    assert through_pickle(x.grad).to_numpy().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("way", [through_pickle, copy.deepcopy])
def test_an_object_with_kernels_is_copied(way: Callable[[Any], Any]) -> None:
    owner = Owner()
    owner.x.fill(2.0)
    assert owner.scaled(2) == 10
    other = way(owner)
    other.factor = 7
    other.x.fill(4.0)
    assert (owner.scaled(2), other.scaled(2)) == (10, 14)
    assert owner.x.to_numpy().tolist() == [2.0] * 3


def test_a_kernel_bound_to_an_object_takes_it_along() -> None:
    owner = Owner()
    assert copy.copy(owner.scaled).owner is owner
    for way in (through_pickle, copy.deepcopy):
        other = way(owner.scaled)
        owner.factor = 1
        assert other(2) == 10
        owner.factor = 5


def test_a_kernel_that_no_import_finds_is_an_error() -> None:
    @qd.kernel
    def inner() -> qd.i32:
        return 3

    with pytest.raises(qd.QuadrantsRuntimeTypeError) as caught:
        pickle.dumps(inner)
    check_golden("errors/OCT469_kernel_not_importable", str(caught.value))
    assert copy.deepcopy(inner) is inner


def test_fields_are_aliased_and_not_copied() -> None:
    x = qd.field(qd.f32, 3)
    assert copy.copy(x) is x
    with pytest.raises(qd.QuadrantsRuntimeTypeError, match="OCT538"):
        copy.deepcopy(x)


SENDER = """
import sys
import cloudpickle
import octants as qd

SCALE = 3

@qd.func
def scaled(x):
    return SCALE * x

@qd.kernel
def k(n: qd.i32) -> qd.i32:
    return scaled(n) + 1

@qd.data_oriented
class Owner:
    def __init__(self):
        self.x = qd.ndarray(qd.i32, 2)
        self.x.fill(4)
    @qd.kernel
    def total(self, x: qd.types.ndarray()) -> qd.i32:
        return x[0] + x[1]

def make():
    @qd.kernel
    def inner() -> qd.i32:
        return SCALE
    return inner

qd.init(arch=qd.cpu)
k(1)
owner = Owner()
owner.total(owner.x)
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((k, owner, make()), file)
"""


def test_cloudpickle_sends_kernels_with_their_source(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    script, data = tmp_path / "sender.py", tmp_path / "data"
    script.write_text(SENDER)
    subprocess.run([sys.executable, str(script), str(data)], check=True)
    script.unlink()
    k, owner, inner = pickle.loads(data.read_bytes())
    assert (k(2), owner.total(owner.x), inner()) == (7, 8, 3)


def test_types_give_their_names() -> None:
    assert qd.f32.to_string() == "f32"
    assert qd.types.vector(3, qd.f32).to_string() == "vector(3, f32)"
    assert qd.types.matrix(2, 3, qd.i32).to_string() == "matrix(2, 3, i32)"
