"""Dataclasses whose `__init__` is compiled when it has been called several times.

The standard library compiles several functions for each dataclass when it is defined, which takes a
third of the time of an import of Octants. Here methods other than `__init__` are not compiled at
all. Most classes have few instances until the first launch has returned: a loop over the fields
makes them in less time than it takes to compile. What `dataclasses` offers for instances, such as
`fields` and `replace`, works as ever.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import reprlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(declared=None, /, *, eq=True, frozen=False, slots=False):
        """Do what `dataclasses.dataclass` does with these options."""
        if declared is None:
            return lambda later: _completed(later, eq, frozen, slots)
        return _completed(declared, eq, frozen, slots)


_FIELDS = "__dataclass_fields__"
_REAL: Any = getattr(dataclasses, "_FIELD")  # noqa: B009  # marks what `dataclasses.fields` gives
_MISSING = dataclasses.MISSING


def _completed(declared: type, eq: bool, frozen: bool, slots: bool) -> type:
    """The class with its methods; another class if it gets slots."""
    fields = _fields(declared)
    given = vars(declared)
    added: dict[str, Any] = {
        _FIELDS: fields,
        "__match_args__": tuple(e.name for e in fields.values() if e.init and not e.kw_only),
    }
    made = _with_slots(declared, fields, frozen) if slots else _with_defaults(declared, fields)
    added["__repr__"] = _represent
    if "__init__" not in given:
        added |= {"__init__": _lazy_init(made, frozen), "__signature__": _SIGNATURE}
    if eq:
        added |= _comparison([entry.name for entry in fields.values() if entry.compare], frozen)
    if frozen:
        added |= _freezing(made, frozenset(fields))
    for name, value in added.items():
        is_free = name not in given or (name == "__hash__" and given[name] is None)
        if is_free:
            setattr(made, name, value)
    return made


def _fields(declared: type) -> dict[str, Any]:
    """The fields of a class and of those that it inherits from, in their order."""
    fields: dict[str, Any] = {}
    for base in reversed(declared.__mro__[1:]):
        fields |= vars(base).get(_FIELDS, {})
    for name, annotation in vars(declared).get("__annotations__", {}).items():
        if not str(annotation).startswith("ClassVar"):
            fields[name] = _field(name, annotation, vars(declared).get(name, _MISSING))
    return fields


def _field(name: str, annotation: Any, value: Any) -> Any:
    """A field of the standard library for an annotated name and what was assigned to it."""
    is_field = isinstance(value, dataclasses.Field)
    entry: Any = value if is_field else dataclasses.field(default=value)
    entry.name, entry.type, entry._field_type = name, annotation, _REAL
    entry.kw_only = entry.kw_only is True
    return entry


def _with_defaults(declared: type, fields: dict[str, Any]) -> type:
    """The class with default values where it has fields as attributes."""
    for name, value in list(vars(declared).items()):
        if isinstance(value, dataclasses.Field):
            if fields[name].default is _MISSING:
                delattr(declared, name)
            else:
                setattr(declared, name, fields[name].default)
    return declared


def _with_slots(declared: type, fields: dict[str, Any], frozen: bool) -> type:
    """The class again, with slots for those of the fields that no base has one for."""
    inherited = {slot for base in declared.__mro__ for slot in vars(base).get("__slots__", ())}
    removed = (*fields, "__dict__", "__weakref__")
    namespace = {name: value for name, value in vars(declared).items() if name not in removed}
    namespace["__slots__"] = tuple(name for name in fields if name not in inherited)
    if frozen:  # copies and pickles could not set attributes
        namespace.setdefault("__getstate__", _state)
        namespace.setdefault("__setstate__", _set_state)
    made = type(declared)(declared.__name__, declared.__bases__, namespace)
    made.__qualname__ = declared.__qualname__
    return made


# -- methods ---------------------------------------------------------------------------------------


_SEVERAL = 16
"""Calls of an `__init__` that take as long as compiling it."""


def _lazy_init(made: type, frozen: bool) -> Callable[..., None]:
    """An `__init__` that puts a compiled one in its place after several calls."""
    calls = 0

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807
        nonlocal calls
        calls += 1
        if calls <= _SEVERAL and _assign(self, made, frozen, values, named):
            return
        compiled = _compiled_init(made, frozen)
        made.__init__ = compiled  # type: ignore[misc]
        compiled(self, *values, **named)

    return __init__


def _assign(
    instance: Any, made: type, frozen: bool, values: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Do what the `__init__` of a class does; False if it does not take these arguments."""
    assign = object.__setattr__ if frozen else setattr
    count = taken = 0
    for name, entry in getattr(made, _FIELDS).items():
        if not entry.init:
            continue
        if count < len(values) and not entry.kw_only:
            value = values[count]
            count += 1
        elif name in named:
            value = named[name]
            taken += 1
        elif entry.default is not _MISSING:
            value = entry.default
        elif entry.default_factory is not _MISSING:
            value = entry.default_factory()
        else:
            return False
        assign(instance, name, value)
    if count < len(values) or taken < len(named):
        return False
    if hasattr(made, "__post_init__"):
        instance.__post_init__()
    return True


class _Signature:
    """The `__signature__` of dataclasses: that of the compiled `__init__`, called before or not."""

    def __get__(self, instance: object, owner: type) -> Any:
        makes = next(base for base in owner.__mro__ if "__init__" in vars(base))
        if instance is not None or vars(makes).get("__signature__") is not self:
            raise AttributeError("__signature__")
        found = inspect.signature(_compiled_init(makes, frozen=False))
        return found.replace(parameters=[*found.parameters.values()][1:])


_SIGNATURE = _Signature()


def _compiled_init(made: type, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _MISSING}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for entry in getattr(made, _FIELDS).values():
        name = value = entry.name
        default = "" if entry.default is _MISSING else f"=_default_{name}"
        if entry.default_factory is not _MISSING:
            default = "=_not_given"
            value = f"_default_{name}() if {name} is _not_given else {name}"
            names[f"_default_{name}"] = entry.default_factory
        elif default:
            names[f"_default_{name}"] = entry.default
        if entry.init:
            parameters[entry.kw_only].append(name + default)
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    by_name = ["*", *parameters[True]] if parameters[True] else []
    head = f"def __init__({', '.join(['self', *parameters[False], *by_name])}):"
    exec("\n ".join([head, *(lines or ["pass"])]), names)
    compiled: Callable[..., None] = names["__init__"]
    compiled.__qualname__ = f"{made.__qualname__}.__init__"
    return compiled


@reprlib.recursive_repr()
def _represent(self: Any) -> str:
    shown = (name for name, entry in getattr(self, _FIELDS).items() if entry.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _comparison(names: list[str], frozen: bool) -> dict[str, Any]:
    """`__eq__` and `__hash__` by the values of some fields."""
    key = _values_of(names)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return key(self) == key(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of attributes as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _freezing(made: Any, names: frozenset[str]) -> dict[str, Any]:
    """Methods that refuse to set or delete a field."""

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in getattr(self, _FIELDS)]


def _set_state(self: Any, state: Iterable[Any]) -> None:
    for name, value in zip(getattr(self, _FIELDS), state, strict=True):
        object.__setattr__(self, name, value)
