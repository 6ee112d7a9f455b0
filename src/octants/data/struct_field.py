"""Fields of structs: a field for each member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

from octants.data import current_runtime
from octants.data.array_base import E
from octants.data.axes import check_offset, check_shape
from octants.data.companion_assignment import refuses_assignment
from octants.data.element_types import check_device, needed_companions
from octants.data.errors import WrongArray, WrongArrayOption, WrongValue, describe
from octants.data.field import Field
from octants.data.field_factories import (
    check_layout,
    dense_blocks,
    make_field,
    require_no_device,
)
from octants.data.host_value_conversion import convert_element
from octants.data.tree import Mirror, SNode
from octants.data.tree_roots import outermost_block
from octants.internal_members import internal
from octants.types.companions import Companion
from octants.types.enums import Layout
from octants.types.specialisation_signature import StructHandle
from octants.types.structs import Struct, StructType

if TYPE_CHECKING:
    from typing_extensions import Self

Member = Any  # a Field or a StructField

_OF_ALL_MEMBERS: dict[str, Callable[[StructField[Any]], int]] = {
    "ndim": lambda owner: len(owner.shape),
    "size": lambda owner: owner._first().size,
}
"""Attributes that a member of the same name hides."""


@refuses_assignment
class StructField(StructHandle, Generic[E]):
    """A field of structs: made by ``Struct.field({...}, shape)`` or the `field` of a struct type.

    Its members are fields, the attributes of it; ``x[i]`` is a struct that reads and writes them.
    """

    @internal
    def __init__(self, struct_type: StructType, members: Mapping[str, Member], name: str) -> None:
        self.python_type = struct_type
        self.members: Mapping[str, Member] = dict(members)
        self.name = name

    # -- members --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        members = self.__dict__.get("members", {})
        if name in members:
            return members[name]
        if name in _OF_ALL_MEMBERS and members:
            return _OF_ALL_MEMBERS[name](self)
        raise AttributeError(f"a field of structs of {list(members)} has no member `{name}`")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("members", {}):
            advice = f"write to its elements, `x[i].{name} = ...`, or to all, `x.{name}.fill(...)`"
            raise AttributeError(f"the member `{name}` of a field cannot be another one: {advice}")
        super().__setattr__(name, value)

    @property
    def keys(self) -> list[str]:
        """The names of the members."""
        return list(self.members)

    def get_member_field(self, key: str) -> Member:
        """The field of a member."""
        return self.members[key]

    @internal
    def leaves(self) -> Iterator[Field]:
        """The fields of all members, those of nested structs too."""
        for member in self.members.values():
            if isinstance(member, StructField):
                yield from member.leaves()
            else:
                yield member

    def _first(self) -> Field:
        return next(self.leaves())

    @property
    def field_dict(self) -> dict[str, Member]:
        """The fields of the members, by name."""
        return dict(self.members)

    # -- place ----------------------------------------------------------------------------------

    @internal
    def parts_to_place(self) -> list[Any]:
        """The parts that `tree.SNode.place` places."""
        return list(self.leaves())

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The extent of each axis; an error if the field is not placed."""
        return self._first().shape

    @property
    def device(self) -> int:
        """The number of the device that the members are on."""
        return self._first().device

    @property
    def snode(self) -> SNode | None:
        """The place node of the first member; None if it is not placed."""
        return self._first().snode

    def parent(self, n: int = 1) -> SNode | None:
        """The block that the first member is placed in; for larger n, the blocks around that."""
        return self._first().parent(n)

    # -- companions -----------------------------------------------------------------------------

    @internal
    def companion_array(self, companion: Companion) -> StructField | None:
        """The companions of the members that can have one; None if there are none."""
        if companion is Companion.PRIMAL:
            return self
        return self._of_members(lambda member: member.companion_array(companion))

    def _of_members(self, find: Callable[[Member], Any]) -> StructField | None:
        """Companions of the members as a field of structs; None if none has any."""
        found = self._by_member(find)
        members = {name: member for name, member in found.items() if member is not None}
        if not members:
            return None
        kinds = {name: self._kind_of(name, member) for name, member in members.items()}
        return StructField(self.python_type.with_members(kinds), members, self.name)

    def _kind_of(self, name: str, member: Member) -> Any:
        is_struct = isinstance(member, StructField)
        return member.python_type if is_struct else self.python_type.members[name]

    @property
    def grad(self) -> Self | Any:
        """The gradients of the members that have one; None where none has, as for `Tensor.grad`."""
        return self._of_members(lambda member: member.grad)

    @property
    def dual(self) -> Self | Any:
        """The duals of the members that have one; None where none has."""
        return self._of_members(lambda member: member.dual)

    def has_grad(self) -> bool:
        """Whether some member has memory for a gradient."""
        return any(leaf.has_grad() for leaf in self.leaves())

    def has_dual(self) -> bool:
        """Whether some member has memory for a dual."""
        return any(leaf.has_dual() for leaf in self.leaves())

    # -- the host -------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: int | tuple[int, ...] | None) -> E: ...
    @overload
    def __getitem__(self, key: Any) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        self._first()[key]
        return ElementStruct(self, key)

    def __len__(self) -> int:
        return len(self._first())

    def __bool__(self) -> bool:
        """True, as for other fields."""
        return True

    def __iter__(self) -> Iterator[E]:
        return (self[index] for index in self._first().host_indices())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        names = ", ".join(self.keys)
        raise TypeError(f"a field of structs is no array; `to_numpy()` has one for each of {names}")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._first()[key]
        for leaf, converted in list(self._prepare(value)):
            leaf[key] = converted

    def fill(self, val: Any) -> None:
        """Set all elements to a struct, or all members to a number."""
        for leaf, converted in list(self._prepare(val)):
            leaf.fill(converted)

    def _prepare(self, value: Any) -> Iterator[tuple[Field, Any]]:
        """The value of each leaf; errors come before anything is written."""
        for name, member in self.members.items():
            part = self._part(value, name)
            if isinstance(member, StructField):
                yield from member._prepare(part)
            else:
                what = f"member `{name}`"
                yield member, convert_element(what, part, member.dtype, member.element_shape)

    def _part(self, value: Any, name: str) -> Any:
        entries = value.entries if isinstance(value, Struct) else value
        if not isinstance(entries, Mapping):
            return value
        if set(entries) != set(self.members):
            needed = f"a struct of {self.keys}"
            raise WrongValue("field of structs", f"one of {list(entries)}", needed).at()
        return entries[name]

    def _by_member(self, function: Callable[[Member], Any]) -> dict[str, Any]:
        return {name: function(member) for name, member in self.members.items()}

    def to_numpy(self, *, copy: bool = True) -> dict[str, Any]:
        """The members as numpy arrays, in a dict; see `Tensor.to_numpy`."""
        return self._by_member(lambda member: member.to_numpy(copy=copy))

    def to_torch(self, device: Any = None, *, copy: bool = True) -> dict[str, Any]:
        """The members as torch tensors, in a dict; see `Tensor.to_torch`."""
        return self._by_member(lambda member: member.to_torch(device=device, copy=copy))

    def from_numpy(self, array_dict: Mapping[str, Any]) -> None:
        """Copy numpy arrays, in a dict, into the members."""
        self._require_members("from_numpy()", array_dict)
        for name, member in self.members.items():
            member.from_numpy(array_dict[name])

    def from_torch(self, array_dict: Mapping[str, Any]) -> None:
        """Copy torch tensors, in a dict, into the members."""
        self._require_members("from_torch()", array_dict)
        for name, member in self.members.items():
            member.from_torch(array_dict[name])

    def copy_from(self, other: Any) -> None:
        """Copy the elements of a field of structs with the same members and shape.

        Raises:
            OctantsRuntimeTypeError: it is no such field.
            OctantsValueError: it has another shape.
        """
        if not isinstance(other, StructField):
            given, needed = describe(other), "a field of structs"
            raise WrongArray("copy_from() of a field of structs", given, needed).at()
        self._require_members("copy_from()", other.members)
        for name, member in self.members.items():
            member.copy_from(other.members[name])

    def _require_members(self, what: str, given: Any) -> None:
        if not isinstance(given, Mapping) or set(given) != set(self.members):
            names = f"one of {list(given)}" if isinstance(given, Mapping) else describe(given)
            what = f"{what} of a field of structs"
            raise WrongArray(what, names, f"a dict with an array for each of {self.keys}").at()

    def __repr__(self) -> str:
        if not self._first().place_nodes:
            return f"<qd.field of {self.python_type}, not placed>"
        values = (f"\n{name}{_text_of(member)}" for name, member in self.members.items())
        return f"<qd.field of {self.python_type}, {self.shape}{''.join(values)}>"


def _text_of(member: Member) -> str:
    """The values of a member behind its name, for `repr`."""
    return f": {member!r}" if isinstance(member, StructField) else str(member.values_text())


class ElementStruct(Struct):
    """``x[i]`` of a field of structs: its members are read and written in place."""

    def __init__(self, owner: StructField, key: Any) -> None:
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "methods", dict(owner.python_type.methods))
        object.__setattr__(self, "struct_type", owner.python_type)

    @property
    def entries(self) -> dict[str, Any]:
        """The members now."""
        return {name: member[self._key] for name, member in self._owner.members.items()}

    def __getitem__(self, name: str) -> Any:
        return self._owner.members[name][self._key]

    def __setitem__(self, name: str, value: Any) -> None:
        self._owner.members[name][self._key] = value


# -- making fields of structs ----------------------------------------------------------------------


def make_struct_field(
    struct_type: StructType,
    shape: Any = None,
    *,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    layout: Layout = Layout.AOS,
    device: int | None = None,
) -> StructField:
    """A field of structs; see `field`.

    `layout` says whether the members of an element stand together (AOS), or each member in an array
    of its own (SOA). Gradients and duals are for members of floats; others have none.
    """
    check_layout("struct field", layout)
    needed = needed_companions(needs_grad, needs_dual)
    extents = None if shape is None else check_shape("struct field", shape)
    if extents is None and offset is not None:
        raise WrongArrayOption("struct field", "offset", "needs a shape").at()
    check_device("struct field", device)
    if extents is None:
        require_no_device("struct field", device)
    origin = check_offset("struct field", offset, len(extents or ()))
    made = _make_members(struct_type, name, needed)
    if extents is not None:
        _place(made, extents, origin, layout, device)
    return made


def _make_members(struct_type: StructType, name: str, needed: tuple[Companion, ...]) -> StructField:
    members: dict[str, Member] = {}
    for key, kind in struct_type.members.items():
        full = f"{name}.{key}" if name else key
        if isinstance(kind, StructType):
            members[key] = _make_members(kind, full, needed)
            continue
        member = make_field(kind, name=full)
        member.needed = needed if member.dtype.is_float else ()
        members[key] = member
    return StructField(struct_type, members, name)


def _place(
    made: StructField,
    extents: tuple[int, ...],
    origin: tuple[int, ...] | None,
    layout: Layout,
    device: int | None,
) -> None:
    leaves = list(made.leaves())
    groups = [leaves] if layout is Layout.AOS else [[leaf] for leaf in leaves]
    with current_runtime.runtime().lock:
        outermost = outermost_block(device)
        mirror = Mirror(outermost.tree)
        for group in groups:
            block = dense_blocks(outermost, extents, tuple(range(len(extents))))
            block.place(*group, offset=origin)
        for leaf in leaves:
            leaf.has_own_blocks = True
            for companion in leaf.needed:
                mirror.place(leaf.place_nodes[None], leaf.companion_array(companion))
