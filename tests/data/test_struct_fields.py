"""Fields of structs on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octants.data import axes as ax
from octants.data.field_factories import field
from octants.data.struct_field import StructField
from octants.data.tree_roots import root
from octants.diagnostics.exceptions import (
    OctantsError,
    OctantsRuntimeError,
    OctantsRuntimeTypeError,
)
from octants.types.companions import Companion
from octants.types.enums import Layout
from octants.types.matrix_types import matrix, vector
from octants.types.matrix_values import Vector
from octants.types.scalars import f32, f64, i8, i32
from octants.types.specialisation_signature import FieldHandle, StructHandle
from octants.types.structs import Struct, struct
from tests.devices import shares_memory

MEMBERS = {
    "mass": f64,
    "position": vector(3, f32),
    "count": i8,
    "inner": struct(a=f32, b=matrix(2, 2, f32)),
}
layouts = pytest.mark.parametrize("layout", Layout)


def make(**options: Any) -> Any:
    return Struct.field(MEMBERS, shape=(2, 3), **options)


@layouts
def test_elements_are_read_and_written_in_place(layout: Layout) -> None:
    s = make(layout=layout)
    s[0, 1].mass = 2
    s[0, 1].position = [1, 2, 3]
    s[0, 1].position[1] = 5
    s[0, 1].position.z = 6
    s[0, 1].inner.b[1, 0] = 7
    s[0, 1]["count"] = 4
    element = s[0, 1]
    assert element.to_dict() == {
        "mass": 2,
        "position": [1, 5, 6],
        "count": 4,
        "inner": {"a": 0, "b": [[0, 0], [7, 0]]},
    }
    s.mass[0, 1] = 9
    assert element.mass == 9
    assert s.inner.b[0, 1][1, 0] == 7
    assert element.keys == list(MEMBERS)
    assert s.mass.to_numpy().sum() == 9


@layouts
def test_whole_elements(layout: Layout) -> None:
    s = make(layout=layout)
    value = {"mass": 1, "position": [1, 2, 3], "count": 2, "inner": {"a": 3, "b": [[1, 2], [3, 4]]}}
    s[0, 0] = value
    s[0, 1] = s[0, 0]
    s[0, 2] = Struct(value)
    s[1, 0] = 1
    assert s[0, 1].to_dict() == s[0, 2].to_dict() == s[0, 0].to_dict() == value
    assert s[1, 0].inner.b.to_list() == [[1, 1], [1, 1]]
    assert s[1, 1].to_dict()["position"] == [0, 0, 0]


def test_a_wrong_element_changes_nothing() -> None:
    s = make()
    good = {"mass": 1, "position": [1, 2, 3], "count": 2, "inner": {"a": 3, "b": [[1, 2], [3, 4]]}}
    for name, wrong in [("count", "a"), ("position", [1, 2]), ("inner", {"a": 1})]:
        with pytest.raises(OctantsRuntimeError):
            s[0, 0] = {**good, name: wrong}
    with pytest.raises(OctantsRuntimeTypeError):
        s[0, 0] = {"mass": 1}
    with pytest.raises(IndexError):
        s[2, 0] = good
    with pytest.raises(IndexError):
        s[0]
    with pytest.raises(AttributeError):
        s[0, 0].mas = 1
    with pytest.raises(AttributeError, match="no member `mas`"):
        s.mas
    assert all(not leaf.to_numpy().any() and leaf.version == 0 for leaf in s.leaves())


@shares_memory
def test_members_of_an_element_lie_together_or_apart() -> None:
    together, apart = make(), make(layout=Layout.SOA)
    strides = [leaf.to_numpy(copy=False).strides[:2] for leaf in together.leaves()]
    assert strides == [(144, 48)] * 5
    assert apart.mass.to_numpy(copy=False).strides == (24, 8)
    assert apart.count.to_numpy(copy=False).strides == (3, 1)


@layouts
def test_gradients_are_for_the_members_that_have_one(layout: Layout) -> None:
    s = make(needs_grad=True, needs_dual=True, layout=layout)
    assert s.has_grad()
    assert s.has_dual()
    assert s.grad.keys == ["mass", "position", "inner"]
    s.grad[1, 2].inner.a = 3
    assert s.inner.a.grad[1, 2] == 3
    assert s.dual.mass[0, 0] == 0
    assert set(s.mass.layouts()) == {Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT}
    assert set(s.count.layouts()) == {Companion.PRIMAL}
    assert not make().has_grad()
    assert Struct.field({"n": i32}, shape=3).grad is None


def test_handles() -> None:
    s = make()
    assert isinstance(s, StructHandle)
    assert isinstance(s.members["inner"], StructHandle)
    assert isinstance(s.members["mass"], FieldHandle)
    assert list(s.python_type.members) == s.keys == list(MEMBERS)  # type: ignore[attr-defined]
    assert s.shape == s.inner.shape == (2, 3)  # type: ignore[attr-defined]
    assert s.get_member_field("mass") is s.mass  # type: ignore[attr-defined]


def test_placed_later() -> None:
    s, x = Struct.field({"a": f32, "v": vector(2, f32)}), field(f32)
    block = root.dense(ax.i, 4)
    block.place(s, x)
    assert s.parent() is s.a.parent() is block
    assert s.shape == (4,)
    root.lazy_grad()
    assert x.address(Companion.PRIMAL) - s.a.address(Companion.PRIMAL) == 12
    assert s.v.grad[3].to_list() == [0, 0]


def test_offset_and_options() -> None:
    s = make(offset=(-1, 5))
    s[-1, 5].mass = 3
    assert s.mass.to_numpy()[0, 0] == 3
    with pytest.raises(OctantsError, match="offset"):
        make(offset=3)
    with pytest.raises(OctantsError, match="layout"):
        make(layout="SOA")
    with pytest.raises(OctantsError, match="order"):
        field(struct(**MEMBERS), (2, 3), order="ji")
    with pytest.raises(OctantsError, match="shape"):
        Struct.field(MEMBERS, shape="a")


@layouts
def test_all_at_once(layout: Layout) -> None:
    s, t = make(layout=layout), make()
    s.fill(2)
    arrays = s.to_numpy()
    assert arrays["position"].shape == (2, 3, 3)
    assert (arrays["inner"]["b"] == 2).all()
    arrays["mass"][1, 2] = 5
    t.from_numpy(arrays)
    assert t[1, 2].mass == 5
    s.fill({"mass": 1, "position": [1, 2, 3], "count": 0, "inner": {"a": 1, "b": 2}})
    t.copy_from(s)
    assert t[1, 1].to_dict() == s[0, 0].to_dict()
    with pytest.raises(OctantsRuntimeTypeError, match="for each of"):
        t.from_numpy({"mass": np.zeros((2, 3))})
    with pytest.raises(OctantsRuntimeTypeError, match="a field of structs"):
        t.copy_from(field(f32, (2, 3)))
    with pytest.raises(OctantsRuntimeTypeError):
        s.fill("a")


def test_a_struct_type_makes_fields() -> None:
    kind = struct(a=f32, v=vector(2, f32))
    for s in (kind.field(shape=3), field(kind, 3), field(kind, 3, needs_grad=True)):
        assert isinstance(s, StructField)
        s[2].v = Vector([1, 2])
        assert s[2].v.y == 2


def test_methods_of_the_type() -> None:
    s = Struct.field({"a": f32}, {"doubled": lambda self: self.a * 2}, shape=2)
    s[1].a = 4
    assert s[1].doubled() == 8


def test_a_member_cannot_be_assigned() -> None:
    bodies = Struct.field({"mass": f32}, shape=3)
    with pytest.raises(AttributeError, match=r"x\[i\]\.mass = .*x\.mass\.fill"):
        bodies.mass = 3.0
    assert bodies.mass.shape == (3,)
