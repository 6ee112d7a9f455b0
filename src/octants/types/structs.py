"""Structs: their types, and their values on the host."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from octants.diagnostics.library_errors import NotAMember, WrongHostValue
from octants.internal_members import internal
from octants.types import array_factory_hooks
from octants.types.default_types import resolve, uint
from octants.types.enums import Layout
from octants.types.matrix_to_numpy import require_fit
from octants.types.matrix_types import MatrixType
from octants.types.matrix_values import Matrix
from octants.types.struct_classes import OPERATOR_METHODS, StructClass


class Struct:
    """Named values: ``Struct(mass=1.0, position=Vector([0, 0]))``, or from a dict.

    Members are read and written by ``s.mass`` or ``s["mass"]``. In a kernel a struct is a value:
    assignment copies.
    """

    def __init__(self, entries: Mapping[str, Any] | None = None, **members: Any) -> None:
        given = {**(entries or {}), **members}
        methods = given.pop("__struct_methods", {})
        object.__setattr__(self, "entries", {name: _member(x) for name, x in given.items()})
        object.__setattr__(self, "methods", dict(methods))
        object.__setattr__(self, "struct_type", None)

    @property
    def keys(self) -> list[str]:
        """The names of the members."""
        return list(self.entries)

    @property
    def items(self) -> ItemsView[str, Any]:
        """Pairs of name and value."""
        return self.entries.items()  # type: ignore[no-any-return]

    def __getitem__(self, name: str) -> Any:
        return self.entries[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.entries:
            raise KeyError(name)
        kind = self.struct_type.members.get(name) if self.struct_type is not None else None
        self.entries[name] = _member(value) if kind is None else convert_member(value, kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("entries", "methods", "struct_type"):
            raise AttributeError(name)
        if name in self.entries:
            return self.entries[name]
        if name in self.methods:
            return self.methods[name].__get__(self, self.struct_type)
        if self.struct_type is not None and name in self.struct_type.constants:
            return getattr(self.struct_type.python_class, name)
        raise AttributeError(f"a struct of {self.keys} has no member `{name}`")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.entries:
            raise AttributeError(f"a struct of {self.keys} has no member `{name}`")
        self[name] = value

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def to_dict(self, include_methods: bool = False, include_ndim: bool = False) -> dict[str, Any]:
        """The members as a dict; vectors and matrices as nested lists.

        Args:
            include_methods: Add the methods, as ``"__struct_methods"``.
            include_ndim: Add the numbers of axes of vectors and matrices, as ``"__matrix_ndim"``.
        """
        found = {name: _plain(value) for name, value in self.entries.items()}
        if include_methods:
            found["__struct_methods"] = self.methods
        if include_ndim:
            matrices = {k: v for k, v in self.entries.items() if isinstance(v, Matrix)}
            found["__matrix_ndim"] = {name: len(value.shape) for name, value in matrices.items()}
        return found

    def __repr__(self) -> str:
        return str(self.to_dict())

    def __reduce__(self) -> tuple[Any, ...]:
        methods = self.methods if self.struct_type is None else {}
        return _rebuild, (self.entries, methods, self.struct_type)

    @classmethod
    def field(
        cls,
        members: Mapping[str, Any],
        methods: Mapping[str, Any] | None = None,
        shape: Any = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        device: int | None = None,
    ) -> Any:
        """A field of structs; see `octants.field` for the other arguments.

        Args:
            members: the types of the members by name, in a dict.
            methods: functions of the language by name, whose first parameter is the struct.
            layout: whether the members of a struct stand together (``Layout.AOS``), or each in an
                array of its own (``Layout.SOA``).
        """
        return StructType(members, methods).field(
            shape,
            name=name,
            offset=offset,
            needs_grad=needs_grad,
            needs_dual=needs_dual,
            layout=layout,
            device=device,
        )


class StructType:
    """The type of structs with these members; called, it makes one, on the host and in kernels.

    It takes values by position or by name; those left out are zero. A number in place of a struct
    is the first member of that.

    Args:
        members: scalar, vector, matrix or struct types by name, in a dict.
        methods: functions of the language by name, whose first parameter is the struct. Those
            named as Python's operators, such as ``__add__``, define these for the structs.
        name: the name of the type in messages.

    Raises:
        OctantsRuntimeTypeError: there are no members.
    """

    methods: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    constants: frozenset[str] = frozenset()
    """Names of attributes of ``python_class``, the class that the type was made of."""
    python_class: type | None = None
    _global_name = ""

    def __init__(
        self,
        members: Mapping[str, Any],
        methods: Mapping[str, Callable[..., Any]] | None = None,
        name: str = "struct",
    ) -> None:
        given = dict(members)
        own = given.pop("__struct_methods", {})
        self.members: dict[str, Any] = {
            key: _member_type(name, key, kind) for key, kind in given.items()
        }
        self.methods = {**own, **(methods or {})}
        self.name = name
        if not self.members:
            raise WrongHostValue(name, "a struct has at least one member").at()

    @internal
    def bind(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Values by the names of members, in order: the defaults where none are given.

        Raises `OctantsTypeError` for too many values, unknown names and doubled ones.
        """
        if len(args) > len(self.members):
            self._fail(f"has {len(self.members)} members, not {len(args)}")
        values: dict[str, Any] = dict(zip(self.members, args, strict=False))
        for name, value in named.items():
            if name not in self.members:
                self._fail(f"has no member `{name}`")
            if name in values:
                self._fail(f"is given two values for `{name}`")
            values[name] = value
        return {
            name: values.get(name, self.defaults.get(name, {} if isinstance(x, StructType) else 0))
            for name, x in self.members.items()
        }

    def _fail(self, problem: str) -> None:
        raise NotAMember(self.name, problem, ", ".join(self.members)).at()

    def __call__(self, *args: Any, **named: Any) -> Struct:
        """A value on the host."""
        bound = self.bind(args, named)
        entries = {name: convert_member(value, self.members[name]) for name, value in bound.items()}
        return _rebuild(entries, {}, self)

    def cast(self, value: Any) -> Struct:
        """A struct, or a dict of its members, with members of the types of this one."""
        cast: Struct = convert_member(value, self)
        return cast

    def filled_with_scalar(self, value: Any) -> Struct:
        """A struct whose numbers are all ``value``, those of vectors and of inner structs too."""
        inner = (
            kind.filled_with_scalar(value) if isinstance(kind, StructType) else value
            for kind in self.members.values()
        )
        return self(**dict(zip(self.members, inner, strict=True)))

    def field(self, shape: Any = None, **options: Any) -> Any:
        """A field of such structs; see `octants.field` for the options."""
        return array_factory_hooks.make("struct_field", self, shape, **options)

    @classmethod
    @internal
    def of_class(cls, python_class: type) -> StructType:
        """The type that a class describes: see `dataclass`."""
        found = StructClass(python_class)
        made = cls(found.members, found.methods, python_class.__name__)
        made.defaults = {name: made._default(name, x) for name, x in found.defaults.items()}
        made.constants, made.python_class = frozenset(found.constants), python_class
        if "<locals>" not in python_class.__qualname__:
            made._global_name, made.__module__ = python_class.__qualname__, python_class.__module__
        return made

    def _default(self, name: str, value: Any) -> Any:
        """A default as numbers, lists and dicts; `float` may mean another type at its use."""
        try:
            convert_member(value, self.members[name])
            return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else _plain(value)
        except (TypeError, ValueError):
            kind = self.members[name]
            problem = f"the member `{name}` of type {kind} cannot have the default {value!r}"
            raise WrongHostValue(self.name, problem).at() from None

    @internal
    def with_members(self, members: dict[str, Any]) -> StructType:
        """This type, with some of its members, which may be of other types."""
        defaults = {name: x for name, x in self.defaults.items() if name in members}
        made = _rebuild_type(members, self.methods, self.name, defaults)
        made.constants, made.python_class = self.constants, self.python_class
        return made

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """The class that a class with this base inherits from."""
        if self.python_class is None:
            raise WrongHostValue(self.name, "a struct type without a class cannot be a base").at()
        return (self.python_class,)

    def __getattr__(self, name: str) -> Any:
        """A method that needs no struct, such as a static one, or a constant of the class."""
        if not name.startswith("__"):
            if name in self.methods:
                return self.methods[name].__get__(None, self)
            if name in self.constants:
                return getattr(self.python_class, name)
        raise AttributeError(f"the struct type `{self.name}` has no attribute `{name}`")

    def __setattr__(self, name: str, value: Any) -> None:
        """Constants are those of the class."""
        owner = self.python_class if name in self.constants else None
        if owner is None:
            object.__setattr__(self, name, value)
        else:
            setattr(owner, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructType):
            return False
        return list(self.members.items()) == list(other.members.items()) and (
            (self.methods, self.defaults) == (other.methods, other.defaults)
        )

    def __hash__(self) -> int:
        return hash(tuple(self.members.items()))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """The name of a class that pickle can import, else what the type consists of."""
        if self._global_name:
            return self._global_name
        return _rebuild_type, (self.members, self.methods, self.name, self.defaults)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={kind}' for key, kind in self.members.items())})"


def struct(**members: Any) -> StructType:
    """The type of structs: ``struct(mass=f32, position=vector(3, f32))``.

    Example::

        Particle = qd.types.struct(mass=qd.f32, position=qd.types.vector(3, qd.f32))
        particles = Particle.field(shape=100)
        particles[0] = Particle(mass=2.0, position=[0.0, 1.0, 0.0])
    """
    return StructType(members)


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    _T = TypeVar("_T")

    @dataclass_transform()
    def dataclass(cls: type[_T]) -> type[_T]:
        """Make a class a struct type."""

else:

    def dataclass(cls: type) -> StructType:
        """Make a class a struct type: annotations are its members, functions its methods.

        A value that is assigned to a member is its default, in place of zero. Bases add what they
        have; another `dataclass` can be one. Properties, static methods and constants of the class
        work in kernels, and methods such as ``__add__`` define the operators.

        Raises:
            OctantsRuntimeTypeError: there are no members, or a type or a default is none.
            TypeError: it is no class.

        Example::

            @qd.dataclass
            class Ball:
                position: qd.types.vector(3, qd.f32)
                radius: qd.f32 = 1.0

                def volume(self):
                    return 4.0 / 3.0 * qd.math.pi * self.radius**3

            balls = Ball.field(shape=100)
        """
        if not isinstance(cls, type):
            raise TypeError(f"`@qd.dataclass` decorates classes, not {cls!r}")
        return StructType.of_class(cls)


def _member_type(struct_name: str, member: str, kind: Any) -> Any:
    if isinstance(kind, MatrixType) and not kind.has_dtype:
        raise kind.missing_element_type().at()
    if isinstance(kind, (MatrixType, StructType)):
        return kind
    try:
        return kind if kind in (int, float, uint) else resolve(kind)
    except TypeError:
        problem = (
            f"member `{member}` cannot be of {kind!r}; members are numbers, vectors, matrices and"
            " structs. A struct of arrays is a Python dataclass"
        )
        raise WrongHostValue(struct_name, problem).at() from None


def convert_member(value: Any, kind: Any) -> Any:
    """A value on the host as a member of this type.

    A number fills a vector or a matrix; of a struct it is the first member.
    """
    if isinstance(kind, StructType):
        entries = value.entries if isinstance(value, Struct) else value
        if isinstance(entries, Mapping):
            return kind(**entries)
        return kind(value)
    if isinstance(kind, MatrixType):
        return kind(value)
    dtype = resolve(kind)
    if dtype.is_integer:
        require_fit("struct", (value,), dtype)
    try:
        return dtype(value)
    except (TypeError, ValueError, OverflowError):
        problem = f"{value!r:.60} cannot be a member of type {kind}"
        raise WrongHostValue("struct", problem).at() from None


def _member(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Struct(value)
    return Matrix(value) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.to_dict()
    return value.to_list() if isinstance(value, Matrix) else value


def _rebuild(
    entries: dict[str, Any], methods: Mapping[str, Any], struct_type: StructType | None
) -> Struct:
    value = Struct.__new__(Struct)
    object.__setattr__(value, "entries", entries)
    object.__setattr__(value, "methods", dict(struct_type.methods if struct_type else methods))
    object.__setattr__(value, "struct_type", struct_type)
    return value


def _rebuild_type(
    members: dict[str, Any],
    methods: Mapping[str, Any],
    name: str,
    defaults: Mapping[str, Any],
) -> StructType:
    made = StructType(members, methods, name)
    made.defaults = defaults
    return made


def _operator(name: str) -> Callable[..., Any]:
    """An operator of structs, which their methods define."""

    def call(self: Struct, *others: Any) -> Any:
        method = self.methods.get(name)
        if method is None:
            return object.__ne__(self, *others) if name == "__ne__" else NotImplemented
        return method(self, *others)

    return call


for _name in OPERATOR_METHODS:
    setattr(Struct, _name, _operator(_name))
