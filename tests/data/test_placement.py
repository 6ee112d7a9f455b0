"""Where fields stand in the memory of their trees."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octants.data import axes as ax
from octants.data import current_runtime
from octants.data.field_factories import field, make_field
from octants.data.ndarray import ndarray
from octants.data.tree import PlaceNode, SNode
from octants.data.tree_roots import FieldsBuilder, root
from octants.diagnostics.exceptions import (
    OctantsError,
    OctantsMemoryError,
    OctantsRuntimeError,
    OctantsValueError,
    OctantsWarning,
)
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.runtime.devices.null import NullDevice
from octants.types.companions import Companion
from octants.types.enums import Layout as ElementLayout
from octants.types.enums import SNodeGradType
from octants.types.layouts import Layout, Term
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f16, f32, f64, i8, i32, i64, u1
from octants.types.specialisation_signature import FieldHandle
from octants.types.structs import Struct

PRIMAL, ADJOINT, TANGENT = Companion.PRIMAL, Companion.ADJOINT, Companion.TANGENT


def offset_of(layout: Layout, index: tuple[int, ...]) -> int:
    """The byte offset of an element, straight from the definition of `Layout`."""
    rank = len(layout.shape)
    total = sum(k * stride for k, stride in zip(index[rank:], layout.element_strides, strict=True))
    for term in layout.terms:
        part = index[term.axis] // term.divisor
        total += (part % term.modulus if term.modulus else part) * term.stride
    return total


def all_indices(x: Any) -> list[tuple[int, ...]]:
    return list(np.ndindex(*x.shape, *x.element_shape))


def bytes_of(x: Any, companion: Companion = PRIMAL) -> set[int]:
    """The addresses of all bytes of the elements."""
    layout, start = x.layouts()[companion], x.address(companion)
    found: set[int] = set()
    for index in all_indices(x):
        first = start + offset_of(layout, index)
        assert first % x.dtype.size == 0
        found.update(range(first, first + x.dtype.size))
    assert len(found) == len(all_indices(x)) * x.dtype.size, "elements overlap"
    return found


# -- layouts by hand -------------------------------------------------------------------------------


def test_field_with_a_shape_is_row_major() -> None:
    x = field(f32, (3, 5))
    assert x.layouts() == {PRIMAL: Layout((3, 5), (Term(0, 1, 0, 20), Term(1, 1, 0, 4)))}
    assert isinstance(x, FieldHandle)


def test_order_puts_the_last_letter_innermost() -> None:
    x = field(f64, (3, 5), order="ji")
    assert x.layouts() == {PRIMAL: Layout((3, 5), (Term(0, 1, 0, 8), Term(1, 1, 0, 24)))}


def test_interleaved_with_its_gradient_and_another_field() -> None:
    x, y = field(f32), field(f64)
    root.dense(ax.i, 4).place(x, x.grad, y)
    assert x.layouts() == {
        PRIMAL: Layout((4,), (Term(0, 1, 0, 16),)),
        ADJOINT: Layout((4,), (Term(0, 1, 0, 16),)),
    }
    assert x.address(ADJOINT) - x.address(PRIMAL) == 4
    assert y.address(PRIMAL) - x.address(PRIMAL) == 8


def test_cells_are_padded_to_their_alignment() -> None:
    x, y = field(f64), field(i8)
    root.dense(ax.i, 4).place(y, x, field(u1))
    assert x.layouts() == {PRIMAL: Layout((4,), (Term(0, 1, 0, 24),))}
    assert x.address(PRIMAL) - y.address(PRIMAL) == 8


def test_fields_without_gaps_begin_at_multiples_of_64() -> None:
    x, y, z = field(f32, (3, 5)), field(f32), field(f32)
    outer = root.dense(ax.i, 1)
    outer.dense(ax.j, 5).place(y)
    outer.dense(ax.j, 7).place(z)
    for each in (x, y, z):
        (layout,) = each.layouts().values()
        assert layout.spanned_bytes((), 4) == 4 * math.prod(each.shape)
        assert each.address(PRIMAL) % 64 == 0


def test_axis_that_is_split_has_several_terms() -> None:
    x, y = field(f32), field(f32)
    inner = root.dense(ax.i, 3).place(y).dense(ax.i, 5)
    inner.place(x)
    assert x.shape == (15,)
    assert x.layouts() == {PRIMAL: Layout((15,), (Term(0, 5, 0, 24), Term(0, 1, 5, 4)))}


def test_axis_that_is_split_without_a_gap_has_one_term() -> None:
    x = field(f32)
    root.dense(ax.i, 3).dense(ax.i, 5).dense(ax.i, 1).place(x)
    assert x.layouts() == {PRIMAL: Layout((15,), (Term(0, 1, 0, 4),))}


def test_tiles() -> None:
    x = field(f32)
    root.dense(ax.ij, (2, 3)).dense(ax.ij, (4, 5)).place(x)
    expected = (Term(0, 4, 0, 240), Term(0, 1, 4, 20), Term(1, 5, 0, 80), Term(1, 1, 5, 4))
    assert x.layouts() == {PRIMAL: Layout((8, 15), expected)}


def test_three_levels_of_one_axis() -> None:
    x, y, z = field(i32), field(i32), field(i32)
    outer = root.dense(ax.i, 2).place(y)
    outer.dense(ax.i, 3).place(z).dense(ax.i, 5).place(x)
    terms = x.layouts()[PRIMAL].terms
    assert terms == (Term(0, 15, 0, 76), Term(0, 5, 3, 24), Term(0, 1, 5, 4))


def test_axes_are_sorted_by_their_letters() -> None:
    x = field(f32)
    root.dense(ax.k, 4).dense(ax.i, 3).place(x)
    assert x.shape == (3, 4)
    assert x.layouts() == {PRIMAL: Layout((3, 4), (Term(0, 1, 0, 4), Term(1, 1, 0, 12)))}


def test_axes_of_one_block_are_in_order_of_their_letters() -> None:
    x = field(f32)
    root.dense(ax.j + ax.i, (4, 3)).place(x)
    assert x.layouts() == {PRIMAL: Layout((3, 4), (Term(0, 1, 0, 16), Term(1, 1, 0, 4)))}


def test_zero_dimensional() -> None:
    x, y = field(f32), field(f32, ())
    root.place(x, x.grad)
    assert x.layouts() == {PRIMAL: Layout((), ()), ADJOINT: Layout((), ())}
    assert y.shape == x.shape == ()
    x[None], x.grad[None], y[None] = 1, 2, 3
    assert (x[None], x.grad[None], y[None]) == (1, 2, 3)


def test_vectors_and_matrices_stand_together() -> None:
    v = Vector.field(3, f32, 4)
    m = Matrix.field(2, 3, f64, (4, 5))
    assert v.layouts() == {PRIMAL: Layout((4,), (Term(0, 1, 0, 12),), (4,))}
    assert m.layouts()[PRIMAL].element_strides == (24, 8)


def test_soa_puts_each_component_in_an_array_of_its_own() -> None:
    m = Matrix.field(2, 3, f32, 10, layout=ElementLayout.SOA, needs_grad=True)
    layout = m.layouts()[PRIMAL]
    assert layout.terms == (Term(0, 1, 0, 4),)
    row, column = layout.element_strides
    assert column >= 40
    assert row == 3 * column
    assert m.layouts()[ADJOINT] == layout
    assert not bytes_of(m) & bytes_of(m, ADJOINT)


def test_components_placed_one_by_one() -> None:
    v = Vector.field(2, f32)
    x, y = v.get_scalar_field(0), v.get_scalar_field(1)
    root.dense(ax.i, 4).place(x, field(f64), y)
    assert v.layouts() == {PRIMAL: Layout((4,), (Term(0, 1, 0, 24),), (16,))}
    v[3] = [1, 2]
    assert (x[3], y[3]) == (1, 2)
    y[3] = 7
    assert v[3].to_list() == [1, 7]
    assert y.to_numpy().tolist() == [0, 0, 0, 7]


def test_components_in_reverse_have_a_negative_stride() -> None:
    v = Vector.field(2, f32)
    root.dense(ax.i, 4).place(v.get_scalar_field(1), v.get_scalar_field(0))
    assert v.layouts()[PRIMAL].element_strides == (-4,)
    assert v.extent == (v.address(PRIMAL) - 4, v.address(PRIMAL) + 28)
    v[2] = [1, 2]
    assert v.to_numpy()[2].tolist() == [1, 2]


@pytest.mark.parametrize("extents", [(4, 5), (4, 4, 6)])
def test_components_must_be_evenly_spaced(extents: tuple[int, ...]) -> None:
    v = Vector.field(len(extents), f32)
    for k, extent in enumerate(extents):
        root.dense(ax.i, extent).place(v.get_scalar_field(k))
    with pytest.raises(OctantsValueError, match="equal distances"):
        v[0]


def test_all_components_must_be_placed() -> None:
    v = Vector.field(3, f32)
    root.dense(ax.i, 4).place(v.get_scalar_field(0), v.get_scalar_field(2))
    with pytest.raises(OctantsRuntimeError, match="only 2 of its 3 components"):
        v[0]


# -- trees at random -------------------------------------------------------------------------------

DTYPES = (i8, f16, f32, f64)


@st.composite
def trees(draw: Any) -> list[Any]:
    """Builds a tree under `root` and gives its fields."""
    fields: list[Any] = []

    def fill(block: SNode, depth: int) -> None:
        for _ in range(draw(st.integers(0 if depth else 1, 2))):
            element = draw(st.sampled_from([(), (), (3,), (2, 2)]))
            dtype = draw(st.sampled_from(DTYPES))
            x = make_field(
                dtype, element_shape=element, needs_grad=dtype.is_float and draw(st.booleans())
            )
            companions = [x.grad] if dtype.is_float and draw(st.booleans()) else []
            block.place(x, *companions)
            fields.append(x)
        if depth < 3 and (depth == 0 or draw(st.booleans())):
            for _ in range(draw(st.integers(1, 2))):
                chosen = draw(st.sampled_from([ax.i, ax.j, ax.k, ax.ij, ax.j + ax.i, ax.ik]))
                extents = [draw(st.integers(1, 4)) for _ in chosen]
                fill(block.dense(chosen, extents), depth + 1)

    fill(root.node, 0)
    return fields


@given(st.data())
def test_random_trees(data: Any) -> None:
    current_runtime.start(DevicesInUse(NullDevice()))
    fields = data.draw(trees())
    arrays = [each for x in fields for each in (x, x.grad) if each is not None]
    arrays = [each for each in arrays if each.companion is PRIMAL or each.primal.has_grad()]
    taken: set[int] = set()
    for array in arrays:
        own = bytes_of(array)
        assert not own & taken, "two fields share bytes"
        start, end = array.extent
        assert min(own) == start
        assert max(own) + 1 == end
        taken |= own
    check_values(arrays)


def check_values(arrays: list[Any]) -> None:
    """Write all arrays, in whole and by element, and read them back in both ways."""
    numbers = itertools.count(1)
    expected = {}
    for array in arrays:
        shape = (*array.shape, *array.element_shape)
        values = np.array([next(numbers) % 100 for _ in range(int(np.prod(shape)))])
        expected[array] = values.reshape(shape).astype(array.dtype.numpy)
        array.from_numpy(expected[array])
    for array in arrays:
        assert np.array_equal(array.read(), expected[array])
        for index in np.ndindex(*array.shape):
            assert np.array_equal(np.asarray(array[index]), expected[array][index])
            in_memory = array.window().address + offset_of(
                array.layouts()[PRIMAL], (*index, *(0,) * len(array.element_shape))
            )
            byte = in_memory - array.window().storage.address
            stored = (
                array.window().storage.bytes[byte : byte + array.dtype.size].view(array.dtype.numpy)
            )
            assert stored[0] == expected[array][index].flat[0]
    for array in arrays[::2]:
        array.clear()
        expected[array][...] = 0
    for array in arrays:
        assert np.array_equal(array.read(), expected[array])


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans())
def test_each_index_of_a_split_axis_has_its_own_place(extents: list[int], gaps: bool) -> None:
    current_runtime.start(DevicesInUse(NullDevice()))
    x, block = field(i32), root.node
    for extent in extents:
        block = block.dense(ax.i, extent)
        if gaps:
            block.place(field(i32))
    block.place(x)
    assert len(bytes_of(x)) == 4 * int(np.prod(extents))
    x.from_numpy(np.arange(x.shape[0]))
    assert [x[k] for k in range(x.shape[0])] == list(range(x.shape[0]))


# -- placing ---------------------------------------------------------------------------------------


def test_one_tree_is_one_piece_of_memory() -> None:
    x, y = field(f32, 8), field(f64, 3, needs_grad=True)
    assert not x.is_allocated
    x[0]
    assert y.is_allocated
    assert y.grad.window().storage is x.window().storage
    z = field(f32, 8)
    assert z.window().storage is not x.window().storage


def test_blocks_of_different_fields_share_no_cache_line() -> None:
    x, y = field(f32, 3), field(f32, 3)
    assert x.address(PRIMAL) % 64 == y.address(PRIMAL) % 64 == 0


def test_needs_grad_places_the_gradient_where_nobody_did() -> None:
    x = field(f32, needs_grad=True, needs_dual=True)
    root.dense(ax.ij, (2, 3)).place(x)
    assert x.has_grad()
    assert x.grad[1, 2] == 0
    assert set(x.layouts()) == {PRIMAL, ADJOINT, TANGENT}


def test_lazy_grad_and_lazy_dual() -> None:
    x, n, v = field(f32), field(i32), Vector.field(2, f64)
    y = field(f32, 7)
    root.dense(ax.i, 4).place(x, n).dense(ax.j, 3).place(v)
    root.lazy_grad()
    root.lazy_dual()
    root.lazy_grad()
    assert set(x.layouts()) == set(v.layouts()) == set(y.layouts()) == {PRIMAL, ADJOINT, TANGENT}
    assert set(n.layouts()) == {PRIMAL}
    assert n.grad is None
    v.grad[3, 2] = [1, 2]
    assert v[3, 2].to_list() == [0, 0]


def test_lazy_grad_comes_before_the_first_use() -> None:
    x, n = field(f32), field(i32)
    root.dense(ax.i, 4).place(x, n)
    root.lazy_grad()
    x.fill(1)
    root.lazy_grad()
    with pytest.warns(OctantsWarning, match=r"lazy_dual\(\) has no effect on the field"):
        root.lazy_dual()
    assert set(x.layouts()) == {PRIMAL, ADJOINT}
    y = field(f32)
    root.dense(ax.i, 4).place(y)
    root.lazy_dual()
    assert set(y.layouts()) == {PRIMAL, TANGENT}


def test_lazy_grad_of_one_block() -> None:
    x, y = field(f32), field(f32)
    block = root.dense(ax.i, 4).place(x)
    root.dense(ax.i, 4).place(y)
    block.lazy_grad()
    assert x.has_grad()
    assert not y.has_grad()


def test_lazy_grad_keeps_what_is_placed() -> None:
    x = field(f32)
    root.dense(ax.i, 4).place(x, x.grad)
    root.lazy_grad()
    assert x.address(ADJOINT) - x.address(PRIMAL) == 4


def test_dual_of_a_gradient() -> None:
    x = field(f32)
    root.dense(ax.i, 4).place(x, x.grad, x.dual, x.grad.dual)
    assert x.grad.dual is x.dual.grad
    assert x.grad.grad is None
    assert set(x.layouts()) == set(Companion)


def test_offset() -> None:
    x = field(f32, (4, 3), offset=(-2, 10), needs_grad=True)
    x[-2, 10], x[1, 12] = 1, 2
    x.grad[-2, 11] = 3
    assert x.to_numpy()[0, 0] == 1
    assert x.to_numpy()[3, 2] == 2
    assert x.grad.to_numpy()[0, 1] == 3
    assert x.shape == (4, 3)
    assert x.offset == x.grad.offset == (-2, 10)
    with pytest.raises(IndexError, match="goes from -2 to 1"):
        x[2, 10]


def test_offset_of_a_place() -> None:
    x = field(f32, needs_grad=True)
    root.dense(ax.i, 4).place(x, offset=5)
    x[8] = 1
    assert x.to_numpy().tolist() == [0, 0, 0, 1]
    assert x.grad[5] == 0


def test_nodes() -> None:
    x = field(f32, needs_grad=True, needs_dual=True)
    block = root.dense(ax.ij, (2, 3))
    assert block.dense(ax.i, 4).place(x) is x.parent()
    assert x.parent(2) is block
    assert x.parent(0) is x.snode
    assert x.parent(9) is None
    assert (x.parent().shape, block.shape, x.parent(3).shape) == ((8, 3), (2, 3), ())
    x[0, 0]
    assert x.snode.ptr.get_snode_grad_type() is SNodeGradType.PRIMAL
    assert x.grad.snode.ptr.get_snode_grad_type() is SNodeGradType.ADJOINT
    assert x.dual.snode.ptr.get_snode_grad_type() is SNodeGradType.DUAL
    assert x.snode.has_adjoint()
    assert x.snode.has_dual()
    assert str(x.snode) == "qd.root => dense [i=2, j=3] => dense [i=4] => place"


def test_companions_know_their_field() -> None:
    x = field(f32, 3, needs_grad=True)
    assert x.grad is x.grad
    assert x.grad.primal is x
    assert x.grad.companion is ADJOINT
    assert x.primal is x
    assert x.grad.layouts() == {PRIMAL: x.layouts()[ADJOINT]}
    assert x.grad.address(PRIMAL) == x.address(ADJOINT)


def test_fields_builder() -> None:
    builder = FieldsBuilder()
    x = field(f32)
    builder.dense(ax.i, 5).place(x)
    with pytest.raises(OctantsRuntimeError, match="not finalized"):
        x[0]
    tree = builder.finalize()
    x[4] = 2
    y = field(f32, 3)
    assert y.window().storage is not x.window().storage
    with pytest.raises(OctantsRuntimeError, match="is finalized"):
        builder.dense(ax.i, 3)
    tree.destroy()
    with pytest.raises(OctantsRuntimeError, match="destroyed"):
        tree.destroy()
    with pytest.raises(OctantsRuntimeError, match="destroyed"):
        x[0]
    assert y[0] == 0


def test_destroy_before_use() -> None:
    builder = FieldsBuilder()
    x = field(f32, needs_grad=True)
    builder.dense(ax.i, 5).place(x)
    builder.finalize().destroy()
    with pytest.raises(OctantsRuntimeError, match="destroyed"):
        x[0]
    with pytest.raises(OctantsRuntimeError, match="gradient of .* destroyed"):
        x.grad[0]


def test_memory_of_unused_fields_is_freed(runtime: current_runtime.Runtime) -> None:
    storages = []
    for _ in range(3):
        x = field(f32, 4, needs_grad=True)
        x[0] = 1
        storages.append(weakref.ref(x.window().storage.bytes))
        del x
    gc.collect()
    assert [storage() for storage in storages] == [None] * 3


def test_a_failed_allocation_leaves_the_tree_open() -> None:
    x, y = field(f32), field(f32)
    block = root.dense(ax.i, 4).place(x.grad)
    with pytest.raises(OctantsRuntimeError, match="the field itself is not"):
        x.grad[0]
    block.place(x, y)
    assert x.grad[0] == 0
    with pytest.raises(OctantsRuntimeError, match="allocated already"):
        block.place(field(f32))


class Small(NullDevice):
    """A device that refuses more than a kilobyte at once."""

    def allocate(self, nbytes: int, what: str = "") -> Any:
        if nbytes > 1024:
            raise MemoryError
        return super().allocate(nbytes, what)


def test_a_refused_field_leaves_the_others_alone() -> None:
    current_runtime.start(DevicesInUse(Small()))
    before, big, after = field(f32, 3), field(f64, 1000, needs_grad=True), field(f32, 3)
    separate = make_field(f32, element_shape=(2,))
    for k in range(2):
        root.dense(ax.i, 3).place(separate.get_scalar_field(k))  # type: ignore[attr-defined]
    after[0] = 1
    for used in (big, big.grad, big):
        with pytest.raises(OctantsMemoryError, match=r"tree of 2 fields, .*15\.6 KiB"):
            used.fill(0)
    before[0], separate[2] = 2, [3, 4]
    assert (before[0], after[0], separate[2].to_list()) == (2, 1, [3, 4])
    del big
    later = field(f32, 3)
    later[0] = 5
    assert later[0] == 5


def test_many_small_fields_that_are_too_large_together() -> None:
    current_runtime.start(DevicesInUse(Small()))
    fields = [field(f32, 100) for _ in range(5)]
    for number, x in enumerate(fields):
        x[99] = number
    assert [x[99] for x in fields] == [0, 1, 2, 3, 4]


def test_fields_that_are_gone_before_they_were_used_take_no_memory() -> None:
    current_runtime.start(DevicesInUse(Small()))
    block = root.dense(ax.i, 1000)
    x = field(f64)
    block.place(x)
    del x
    y = field(f32, 3)
    y[0] = 1
    assert y.window().storage.nbytes < 1024


def test_a_field_placed_wrongly_is_no_hindrance_when_it_is_gone() -> None:
    x, y = field(f32), field(f32, 3)
    root.dense(ax.i, 4).place(x.grad)
    with pytest.raises(OctantsRuntimeError, match="the field itself is not"):
        y[0] = 1
    del x
    gc.collect()
    y[0] = 1
    assert y[0] == 1


def test_a_gradient_is_none_when_it_cannot_be_placed_any_more() -> None:
    x, n = field(f32), ndarray(f32, 3)
    s = Struct.field({"a": f32, "b": i32})
    v = make_field(f32, element_shape=(2,))
    root.dense(ax.i, 3).place(x, s, v)
    assert None not in (x.grad, x.dual, s.grad, s.dual, v.grad, v.get_scalar_field(0).grad)  # type: ignore[attr-defined]
    for each in (x, s, v):
        each.fill(0)
        assert (each.grad, each.dual, each.has_grad()) == (None, None, False)
    assert (n.grad, n.dual, v.get_scalar_field(0).grad) == (None, None, None)  # type: ignore[attr-defined]


def test_a_field_of_a_shape_has_the_gradient_that_was_asked_for() -> None:
    x, s = field(f32, 3), Struct.field({"a": f32, "b": i32}, shape=3)
    v = make_field(f32, 3, element_shape=(2,))
    for each in (x, s, v):
        assert (each.grad, each.dual, each.has_grad()) == (None, None, False)
    root.lazy_grad()
    assert x.grad[1] == s.grad.a[1] == 0
    assert v.dual is None


def test_placing_twice_changes_nothing() -> None:
    x, y = field(f32), field(f32, 3)
    block = root.dense(ax.i, 4)
    with pytest.raises(OctantsError, match="placed already"):
        block.place(x, y)
    with pytest.raises(OctantsError, match="placed already"):
        block.place(x, x)
    assert x.parent() is None
    assert not block.children
    block.place([x, x.grad])
    assert x.shape == (4,)


def test_place_node_of_a_field_that_is_gone() -> None:
    block = root.dense(ax.i, 4)
    x = field(f32)
    block.place(x)
    x[0]
    del x
    assert isinstance(block.children[0], PlaceNode)
    assert block.children[0].field is None


def test_large_shapes_have_no_32_bit_limits() -> None:
    x = field(i8, (1 << 20, 1 << 12))
    assert x.layouts()[PRIMAL].terms[0].stride == 1 << 12
    x[(1 << 20) - 1, 5] = 7
    assert x.extent[1] - x.extent[0] == 1 << 32
    assert x[(1 << 20) - 1, 5] == 7
    assert i64.size == 8


def test_hashed_blocks_are_an_error() -> None:
    for parent in (root, root.dense(ax.i, 4)):
        with pytest.raises(OctantsRuntimeError, match=r"OCT519: blocks of kind `hash`"):
            parent.hash(ax.j, 8)
