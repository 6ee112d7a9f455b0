"""Generates guards: conditions that what a kernel was specialised for still holds.

A kernel depends on the numbers, fields and other Python values that its names stood for when it was
built. If one of them has changed, the kernel is built again, so that it means what Python would
mean. Of a number that keeps changing (`launch.warm.changing_numbers`) only the type counts; a
launch passes it as a hidden argument. The conditions are expressions of generated code, since each
launch evaluates them (`launch.warm.warm_call`).
"""

from __future__ import annotations

import enum
import functools
import inspect
import marshal
import math
import os
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from octants.functions_from_text import define
from octants.runtime.arguments.argument_recognition import is_same
from octants.types.compile_time_reads import ABSENT, HiddenArgument, Read, ReadKey, key_of
from octants.types.likeness import can_change, likeness
from octants.types.matrix_values import Matrix
from octants.types.scalars import DType
from octants.types.specialisation_signature import (
    FieldHandle,
    NdarrayHandle,
    QuantHandle,
    StructHandle,
)
from octants.types.structs import Struct
from octants.types.weak_references import parts_of, reference_to

_NUMBERS = (int, float, bool, str, type(None))
_HANDLES = (FieldHandle, NdarrayHandle, QuantHandle, StructHandle, DType, enum.Enum)
_CONSTANT = (types.ModuleType, types.BuiltinFunctionType, type)
_MOST_TERMS = 12
"""The most conditions on items of a container, beside one on all of it."""
_MARSHAL = 2  # the last version of the format that gives equal bytes for equal objects


Terms = tuple[list[str], dict[str, Any]]
"""Conditions in generated code, and the scope of their names."""

GONE = (KeyError, ValueError, AttributeError, ArithmeticError, TypeError)
"""The exceptions of conditions where a name is gone, or a hidden argument cannot be evaluated."""


def guard_terms(seen: KernelReads, known: Mapping[int, str] | None = None) -> Terms:
    """Generate conditions that hold while the reads would return the same values.

    Classes, modules, members of enums, read-only numpy arrays and everything that Octants holds
    count as constant, as do objects that a property creates each time it is read, functions that a
    module holds, and methods of installed packages. Of the main module, functions, the defaults of
    their parameters, and names that come to hide builtins count: interactive sessions change them.
    A module that is loaded again, as notebooks do after a change, has a new spec.
    ``known`` maps the identities of objects to expressions for them, where these conditions follow
    others that have checked them. The conditions keep nothing alive that the reads have found.
    """
    conditions: dict[tuple[Any, ...], str] = {}
    scope: dict[str, Any] = {}
    for read in seen.reads:
        key = key_of(read)
        if key not in conditions and not read.varies and _is_watched(read):
            writer = _Writer(seen, known or {}, str(len(conditions)), scope)
            conditions[key] = writer.condition(read)
    values = [getattr(read.value, "__func__", read.value) for read in seen.reads]
    functions = {id(each): each for each in values if isinstance(each, types.FunctionType)}
    editable = [each for each in functions.values() if _is_editable(each.__module__)]
    modules = filter(None, map(sys.modules.get, {each.__module__ for each in editable}))
    for number, module in enumerate(modules):
        scope |= {f"m{number}": weakref.ref(module), f"s{number}": module.__spec__}
        conditions["module", number] = f"m{number}().__spec__ is s{number}"
    if _AUTORELOAD in sys.modules:
        for number, function in enumerate(editable):
            scope |= {f"f{number}": reference_to(function), f"k{number}": function.__code__}
            conditions["code", number] = f"f{number}().__code__ is k{number}"
    for number, function in enumerate(functions.values()):
        unchanged = _defaults_are_unchanged(function, f"d{number}", scope)
        if unchanged:
            scope[f"g{number}"] = reference_to(function)
            conditions["defaults", number] = f"((f := g{number}()) is None or {unchanged})"
    for number, (names, builtins) in enumerate(_builtins_of_main(seen.reads)):
        scope[f"b{number}"] = names
        tests = [f"{builtin!r} not in b{number}" for builtin in builtins]
        conditions["builtins", number] = " and ".join(tests)
    return list(conditions.values()), scope


def _defaults_are_unchanged(function: types.FunctionType, name: str, scope: dict[str, Any]) -> str:
    """The condition that the parameters of ``f`` have the same defaults; empty if they must.

    Outside of the main module only a default that was changed in place, such as a list, counts.
    """
    is_of_main = function.__module__ == "__main__"
    tests = []
    for attribute in ("__defaults__", "__kwdefaults__"):
        defaults = getattr(function, attribute) or ()
        held = tuple(defaults.values()) if isinstance(defaults, dict) else defaults
        if can_change(held) or (is_of_main and isinstance(defaults, dict)):
            scope[name + attribute] = likeness(defaults)
            tests.append(f"{name}{attribute} == f.{attribute}")
        elif is_of_main and defaults:
            scope[name + attribute] = defaults
            tests.append(f"f.{attribute} is {name}{attribute}")
    return " and ".join(tests)


def _builtins_of_main(reads: Iterable[Read]) -> list[tuple[dict[str, Any], list[str]]]:
    """The globals of the main module, and the names of builtins that they may come to hide."""
    found: dict[int, tuple[dict[str, Any], list[str]]] = {}
    for read in reads:
        if read.kind == "global" and _is_global_of_main(read):
            names = read.owner.__globals__
            builtins = found.setdefault(id(names), (names, []))[1]
            if read.name not in names and read.name not in builtins:
                builtins.append(read.name)
    return [each for each in found.values() if each[1]]


_AUTORELOAD = "IPython.extensions.autoreload"
"""The extension of notebooks that gives the functions of changed modules new code."""


@functools.cache
def _is_editable(name: str) -> bool:
    """Whether a module comes from a file outside of the folders that packages are installed in."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    path = str(getattr(spec, "origin", None) or "")
    is_installed = path.startswith(_LIBRARY) or _PACKAGES.search(path) is not None
    return os.path.isabs(path) and not is_installed and name.partition(".")[0] != "octants"


_LIBRARY = os.path.dirname(os.__file__)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")


def hidden_terms(
    seen: KernelReads, hidden: Sequence[HiddenArgument], known: Mapping[int, str] | None = None
) -> Terms:
    """Generate conditions that evaluate the hidden arguments, and hold if the kernel can take them.

    They assign the arguments to their names. For ``known`` see `guard_terms`.
    """
    found: dict[ReadKey, str] = {}
    scope: dict[str, Any] = {}
    for read in seen.reads:
        key, number = key_of(read), len(found)
        if read.varies and key not in found:
            expression = _Writer(seen, known or {}, f"r{number}", scope).value(read)
            found[key] = f"type(r{number} := {expression}) is {type(read.value).__name__}"
    limits = [each.condition.format(f"({each.name} := {each.expression})") for each in hidden]
    return [*found.values(), *limits], scope


def make_evaluation(
    terms: Terms, hidden: Sequence[HiddenArgument]
) -> Callable[[], tuple[Any, ...]] | None:
    """A function that evaluates the hidden arguments of a launch; None if there are none."""
    if not hidden:
        return None
    conditions, names = terms
    source = f"def evaluate():\n    return ({' and '.join(conditions)}) and ({{}})"
    text = source.format("".join(f"{each.name}, " for each in hidden))
    evaluate: Callable[[], tuple[Any, ...]] = define("evaluate", text, dict(names))
    return evaluate


class KernelReads:
    """The Python values that a kernel has read, and which of them others keep alive.

    An object is anchored if it was passed as an argument, or found by its name, or in an anchored
    object: as long as it exists, so does what leads to it. A kernel that was compiled for anchored
    objects is of no use when one of them ends. Objects that are not anchored were made for the
    kernel, by a property or a function that ran when it was compiled.
    """

    def __init__(self, reads: Iterable[Read], function: Any, arguments: Iterable[Any]) -> None:
        self.reads = list(reads)
        self.function = function
        self._anchored: dict[int, Any] = {}
        for value in arguments:
            self._anchor(value)
        for read in self.reads:
            if read.kind != "field" and _is_watched(read) and self._is_lasting(read):
                self._anchor(read.value)

    def _is_lasting(self, read: Read) -> bool:
        """Whether the owner of what is read lives as long as the kernel can be used."""
        if read.kind == "closure":
            return read.owner is self.function
        return read.kind == "global" or reference_to(read.owner) is None or self.anchors(read.owner)

    def anchors(self, value: Any) -> bool:
        """Whether an object is anchored."""
        return id(value) in self._anchored

    def _anchor(self, value: Any) -> None:
        if value is None or self.anchors(value):
            return
        self._anchored[id(value)] = value
        if isinstance(value, FieldHandle):
            self._anchor(value.primal)
        inner = parts_of(value)
        if isinstance(value, StructHandle):
            inner = iter(value.members.values())
        elif isinstance(value, QuantHandle) and value.is_placed:
            inner = iter((value.words,))
        elif isinstance(value, Struct):
            inner = iter(value.entries.values())
        for part in inner:
            self._anchor(part)

    def ends(self) -> list[Any]:
        """The objects without which the kernel is of no use."""
        used = [read.value for read in self.reads if read.kind == "field"]
        others = [value for value in self._anchored.values() if not isinstance(value, FieldHandle)]
        return [*others, *(field for field in used if self.anchors(field))]

    def fields_held_weakly(self) -> list[Any]:
        """The fields that the kernel uses, and that nothing else may keep alive."""
        used = [read.value for read in self.reads if read.kind == "field"]
        return [field for field in used if not self.anchors(field)]


def make_guard(terms: Terms) -> Callable[[], bool] | None:
    """A function that checks all conditions; None if there are none."""
    conditions, names = terms
    if not conditions:
        return None
    guard = define("guard", f"def guard():\n    return {' and '.join(conditions)}", dict(names))

    def is_same() -> bool:
        try:
            return bool(guard())
        except GONE:
            return False

    return is_same


def _is_watched(read: Any) -> bool:
    owner, value = read.owner, read.value
    if read.kind in ("field", "attribute of a type"):
        return False
    if isinstance(value, _CONSTANT) or isinstance(owner, (*_HANDLES, enum.EnumMeta)):
        return False
    if isinstance(value, types.MethodType):
        return read.kind == "attribute" and _is_of_users(owner)
    if isinstance(value, types.FunctionType) and not _may_be_rebound(read):
        return False
    module = _module_of(owner)
    if read.kind == "attribute" and module.partition(".")[0] == "octants":
        return False
    if isinstance(value, (*_NUMBERS, *_HANDLES)) or value is ABSENT:
        return True
    return read.kind != "attribute" or _is_stored(owner, read.name, value)


def _may_be_rebound(read: Any) -> bool:
    """Whether a name or attribute may come to mean another function.

    A launch of a large library would take longer if it compared each function of its modules.
    """
    if read.kind == "global":
        return _is_global_of_main(read)
    if isinstance(read.owner, type):
        return _is_of_users(read.owner)
    return not isinstance(read.owner, types.ModuleType)


def _is_global_of_main(read: Any) -> bool:
    return bool(read.owner.__globals__.get("__name__") == "__main__")


def _is_of_users(owner: Any) -> bool:
    """Whether a class, or that of an object, is of the main module, or of no installed package."""
    module = _module_of(owner)
    return module == "__main__" or _is_editable(module)


def _module_of(owner: Any) -> str:
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return str((owner if isinstance(owner, type) else type(owner)).__module__)


def _is_stored(owner: Any, name: str, value: Any) -> bool:
    """Whether an object or its class holds an attribute, rather than a property creating it."""
    found = inspect.getattr_static(owner, name, ABSENT)
    if isinstance(found, staticmethod):
        return found.__func__ is value and _is_of_users(owner)
    if isinstance(found, property):  # which may return what the object holds
        return getattr(owner, name, ABSENT) is value
    return found is value or isinstance(found, types.MemberDescriptorType)


class _Writer:
    """Generates the condition of one read; names in ``scope`` end with its number."""

    def __init__(
        self, seen: KernelReads, known: Mapping[int, str], number: str, scope: dict[str, Any]
    ) -> None:
        self.seen = seen
        self.known = known
        self.number = number
        self.scope = scope

    def _name(self, letter: str, value: Any) -> str:
        name = f"{letter}{self.number}"
        self.scope[name] = value
        return name

    def condition(self, read: Read) -> str:
        """The condition that a read returns the same value."""
        test = ""
        expression = self._expression(read)
        if read.kind == "attribute" and expression is None:
            owner = self._name("o", reference_to(read.owner))
            test, expression = f"(o := {owner}()) is None or ", self._attribute("o", read)
        elif read.kind == "closure" and expression is None:
            owner = self._name("o", reference_to(read.owner))
            test = f"(o := {owner}()) is None or "
            expression = f"o.__closure__[{_position(read)}].cell_contents"
        assert expression is not None
        if isinstance(read.value, types.MethodType):  # each read of it makes another one
            method = f"{expression}.__func__"
            condition = is_same(method, read.value.__func__, f"v{self.number}", self.scope)
        else:
            condition = self._equal(expression, read.value)
        return f"({test}{condition})" if test else condition

    def value(self, read: Read) -> str:
        """The expression of a changing number; its owner is kept if nothing else keeps it."""
        expression = self._expression(read)
        if expression is not None:
            return expression
        if read.kind == "attribute":
            return self._attribute(self._name("o", read.owner), read)
        return f"{self._name('o', read.owner.__closure__[_position(read)])}.cell_contents"

    def _expression(self, read: Read) -> str | None:
        """The expression of the present value; None where its owner may be gone for good."""
        if read.kind == "attribute":
            path = self.known.get(id(read.owner))
            if path is not None:
                return self._attribute(path, read)
            reference = reference_to(read.owner)
            if reference is None:
                return self._attribute(self._name("o", read.owner), read)
            if self.seen.anchors(read.owner):
                return self._attribute(f"{self._name('o', reference)}()", read)
            return None
        if read.kind == "closure":
            if read.owner is not self.seen.function:
                return None
            cell = read.owner.__closure__[_position(read)]
            return f"{self._name('o', cell)}.cell_contents"
        if read.name not in read.owner.__globals__:
            return self._name("v", read.value)
        return f"{self._name('o', read.owner.__globals__)}[{read.name!r}]"

    def _attribute(self, owner: str, read: Read) -> str:
        if read.value is ABSENT:
            return f"getattr({owner}, {read.name!r}, {self._name('v', ABSENT)})"
        return f"{owner}.{read.name}"

    def _equal(self, expression: str, value: Any) -> str:
        """A condition that an expression equals a value."""
        if isinstance(value, (float, int, str)):
            name, kind = self._name("v", value), self._name("t", type(value))
            same = f"(type(x) is {kind} and x == {name}{self._sign(value)})"
            return f"((x := {expression}) is {name} or {same})"
        is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
        if is_array and can_change(value):
            same = is_same(f"(x := {expression})", value, f"v{self.number}", self.scope)
            return f"({same} and x.tobytes() == {self._name('c', value.tobytes())})"
        if can_change(value) or isinstance(value, tuple):
            return self._alike(expression, value)
        return is_same(expression, value, f"v{self.number}", self.scope)

    def _sign(self, value: Any) -> str:
        """The condition on the sign where a number equals zero: 0.0 and -0.0 are equal."""
        if not isinstance(value, float) or value != 0.0:
            return ""
        self.scope["sign_of"] = math.copysign
        return f" and sign_of(1.0, x) == {math.copysign(1.0, value)}"

    def _alike(self, expression: str, value: Any) -> str:
        """A condition that a container holds the same.

        Most often it has not changed: then it equals a copy, and numbers that others equal, such as
        1 and 1.0, are the same objects. Else its `likeness` decides.
        """
        if isinstance(value, Matrix):
            same = is_same(f"(x := {expression})", value, f"v{self.number}", self.scope)
            elements = value.to_numpy()
            data, dtype = self._name("c", elements.tobytes()), self._name("t", elements.dtype)
            return f"({same} and (x := x.to_numpy()).dtype is {dtype} and x.tobytes() == {data})"
        like = self._name("v", likeness(value))
        is_nest = isinstance(value, (list, tuple, dict))
        terms = _unlike_their_equals(value, "x") if is_nest else None
        if terms is None:
            return f"{like} == {expression}"
        if not can_change(value):
            return f"((x := {expression}) is {self._name('c', value)} or {like} == x)"
        if len(terms) > _MOST_TERMS:
            self.scope["dumps"] = marshal.dumps
            try:
                data = self._name("c", marshal.dumps(value, _MARSHAL))
            except ValueError:  # of a named tuple, perhaps
                return f"{like} == {expression}"
            return f"(dumps(x := {expression}, {_MARSHAL}) == {data} or {like} == x)"
        items = self._name("c", _copy(value))
        names = [f"{items}k{k}" for k in range(len(terms))]
        self.scope.update(zip(names, (item for _, item in terms), strict=True))
        tests = [test.format(name) for name, (test, _) in zip(names, terms, strict=True)]
        same = " and ".join([f"(x := {expression}) == {items}", *tests])
        return f"({same} or {like} == x)"


def _unlike_their_equals(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """Conditions that tell a container from others that equal it; None if it has objects.

    Each is a text, and what it compares with.
    """
    found: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        found.append((f"[*{path}] == {{}}", [*value]))
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if type(key) not in (int, str):
            return None
        inner = f"{path}[{key!r}]".replace("{", "{{").replace("}", "}}")
        if isinstance(item, (list, tuple, dict)):
            others = _unlike_their_equals(item, inner)
            if others is None:
                return None
            found += others
        elif type(item) in (bool, int) or (type(item) is float and item.is_integer()):
            found.append((f"{inner} is {{}}", item))
        elif type(item) not in (float, str, type(None)):
            return None
    return found


def _copy(value: Any) -> Any:
    """A copy of nested containers."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return tuple(map(_copy, value)) if isinstance(value, tuple) else value


def _position(read: Read) -> int:
    """The position of a variable's cell in a function's closure."""
    position: int = read.owner.__code__.co_freevars.index(read.name)
    return position
