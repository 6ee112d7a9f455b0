"""Finds what a Python function reads when a kernel calls it while it is compiled.

The kernel depends on that as on what it reads itself: if a global changes that the function uses,
or a function that it calls is defined again, the next launch compiles the kernel again. The names
in the code tell what may be read: globals, variables of closures, and attributes of all objects
that the function can reach by such names from its arguments, its owner and its globals. Containers
are compared with their items, and the items count as objects that are reached.

Names that are put together at run time, as in ``getattr(x, "a" + "b")``, are not found. Of a
function of the standard library, such as `copy.deepcopy`, all attributes of its arguments count.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from octants.cache.build_inputs import value_now
from octants.cache.digest import is_ours
from octants.lang.library_function_marks import home_of
from octants.types.compile_time_reads import ABSENT, Read
from octants.types.likeness import likeness

LIBRARIES = ("builtins", "functools", "math", "numpy", "operator", "random", "scipy", "torch")
"""Packages whose functions are not inlined."""

_MOST_FUNCTIONS = 64
"""The most functions that are looked through for one call."""
_HOLDING = (types.MemberDescriptorType, staticmethod)
"""Descriptors whose attribute is what the object or the class holds."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_ALL_ATTRIBUTES = frozenset(("__dict__", "asdict", "astuple", "vars"))
"""Names in code that reads attributes without naming them."""
_NOT_OPERATORS = frozenset(
    f"__{name}__" for name in ("init", "new", "repr", "str", "hash", "del", "getattribute")
)


def is_library(function: Any) -> bool:
    """Whether a function is a part of Octants, or of a library that kernels cannot call."""
    return _is_of_library(home_of(function))


def _is_of_library(module: str) -> bool:
    return is_ours(module) or module.partition(".")[0] in LIBRARIES


class ReadsOfCall:
    """The names that a call of a Python function may read, found before the call.

    Those that the call itself changes, such as a dictionary of results that it keeps, are left out.
    """

    def __init__(self, function: Callable[..., Any], args: Iterable[Any]) -> None:
        self._seen: dict[int, Any] = {}
        self._names: dict[str, None] = {}
        self._functions: list[types.FunctionType] = []
        self._objects: list[Any] = []
        self._reads: list[Read] = []
        self._applies_operators = _plain_function(function) is None
        self._visit([function, *args])
        self._found = [(read, likeness(read.value)) for read in self._reads]

    def unchanged(self) -> list[Read]:
        """The reads that return what they did before the call."""
        return [
            read
            for read, before in self._found
            if before == value_now(read.kind, read.owner, read.name)
        ]

    def _visit(self, pending: list[Any]) -> None:
        """Collect the reads of values, and of the values that these lead to."""
        while pending:
            value = pending.pop()
            if isinstance(value, _PLAIN) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            function = _plain_function(value)
            if function is not None:
                pending += self._values_in(function)
            pending += _parts_of(value)
            if function is None and not _is_of_library(_home(value)):
                self._objects.append(value)
                pending += self._attributes_of(value, self._names)

    def _values_in(self, function: types.FunctionType) -> list[Any]:
        """The values of the names in a function: variables, and attributes of known objects."""
        is_known = function in self._functions
        if is_known or len(self._functions) >= _MOST_FUNCTIONS or is_library(function):
            return []
        self._functions.append(function)
        names = ("__dict__",) if _is_standard(function) else _names_in(function.__code__)
        new = dict.fromkeys(name for name in names if name not in self._names)
        self._names |= new
        reads = list(_variables_of(function, names))
        self._reads += reads
        found = [read.value for read in reads]
        for owner in self._objects:
            found += self._attributes_of(owner, new)
        return found

    def _attributes_of(self, owner: Any, names: Iterable[str]) -> list[Any]:
        """The values of the attributes with these names, and the methods that operators run."""
        if not _ALL_ATTRIBUTES.isdisjoint(names):
            names = [*names, *_namespace(owner)]
        if self._applies_operators and not isinstance(owner, (type, types.ModuleType)):
            names = [*names, *_operators_of(type(owner))]
        reads = [read for name in names for read in _attribute(owner, name)]
        self._reads += reads
        return [read.value for read in reads]


def _home(value: Any) -> str:
    """The module of a module, a class, or the class of an object."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return str((value if isinstance(value, type) else type(value)).__module__)


def _is_standard(function: types.FunctionType) -> bool:
    """Whether a function is of Python's standard library.

    It may read all attributes of its arguments, but what itself refers to, such as `sys.modules`,
    leads to everything.
    """
    file = function.__code__.co_filename
    return file.startswith((_STANDARD_LIBRARY, "<frozen ")) and "site-packages" not in file


_STANDARD_LIBRARY = os.__file__.removesuffix("os.py")


def _parts_of(value: Any) -> list[Any]:
    """The items of a container, the parts of a partial, or the function that runs in a call."""
    if isinstance(value, (list, tuple, set, frozenset, deque, UserList)):
        return list(value)
    if isinstance(value, (dict, UserDict, ChainMap, types.MappingProxyType)):
        return [*value, *value.values()]
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.dtype.hasobject else []
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type):
        return [value.__init__]  # type: ignore[misc]
    return [inspect.getattr_static(type(value), "__call__", None)]


def _plain_function(function: Any) -> types.FunctionType | None:
    """The function that decorators, a property or a static method wrap; None if Python has none."""
    if isinstance(function, property):
        function = function.fget
    elif isinstance(function, functools.cached_property):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    return function if isinstance(function, types.FunctionType) else None


@functools.lru_cache(maxsize=512)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a code, and in the functions written in it.

    Strings are among them, as in ``getattr(x, "a")``.
    """
    names = list(code.co_names)
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            names += _names_in(value)
        items = value if isinstance(value, tuple) else (value,)
        names += [item for item in items if isinstance(item, str) and item.isidentifier()]
    return tuple(dict.fromkeys(names))


def _operators_of(kind: type) -> list[str]:
    """The names of the special methods that a class has in Python: ``__getitem__``, ``__add__``."""
    found = {name: value for each in kind.__mro__ for name, value in vars(each).items()}
    return [
        name
        for name, value in found.items()
        if name.startswith("__")
        and name not in _NOT_OPERATORS
        and isinstance(value, types.FunctionType)
    ]


def _variables_of(function: types.FunctionType, names: tuple[str, ...]) -> Iterator[Read]:
    held = function.__globals__
    for name in names:
        if name in held:
            yield Read("global", function, name, held[name])
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Read("closure", function, name, cell.cell_contents)
        except ValueError:  # it has no value yet
            continue


def _namespace(owner: Any) -> Iterable[str]:
    """The names of the attributes that an object, a class or a module holds itself."""
    found = getattr(owner, "__dict__", None)  # anything, if `__getattr__` makes it
    return found if isinstance(found, (dict, types.MappingProxyType)) else ()


def _attribute(owner: Any, name: str) -> Iterator[Read]:
    """The read of an attribute that an object, a class or a module holds, or of its method."""
    value = inspect.getattr_static(owner, name, ABSENT)
    if value is ABSENT:
        return
    is_own = name in _namespace(owner)
    if is_own or isinstance(value, _HOLDING) or not hasattr(value, "__get__"):
        # A slot may be empty, and what an enumeration holds is for its members.
        yield Read("attribute", owner, name, getattr(owner, name, ABSENT))
    elif _plain_function(value) is not None or isinstance(value, classmethod):
        kind = owner if isinstance(owner, type) else type(owner)
        yield Read("attribute", kind, name, getattr(kind, name))
