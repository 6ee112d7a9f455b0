"""Writes docs/api.md from docstrings: ``python scripts/api_reference.py docs/api.md``.

The page lists the names of `octants` and of its public modules. A thing that has several names is
described under the shortest one. Members of classes that only Octants calls are left out; see
`internal_members`.
"""

from __future__ import annotations

import ast
import enum
import inspect
import operator
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import octants
from octants.ad.functions.jvp_vjp_hvp import HessianProduct
from octants.ad.functions.value_and_gradient import ValueAndGrad
from octants.cached_property import cached_property
from octants.data.tree_roots import Root
from octants.internal_members import is_internal
from octants.launch.gradients.explain_gradient_report import Explanation
from octants.launch.gradients.kernel_gradient import Gradient
from octants.launch.inspection import Inspection
from octants.launch.kernel import Kernel
from octants.types.matrix_types import MatrixType
from octants.types.scalars import DType

HEAD = """\
# All public names

Generated from the docstrings by `make docs`. `import octants as qd` is assumed.
"""

# The title of the names that a module defines, by the longest prefix that fits; in this order.
TITLES = {
    "octants.api": "Running",
    "octants.algorithms": "Algorithms",
    "octants.linalg": "Sparse linear systems",
    "octants.kernels": "Running",
    "octants.lang.directives": "Steering compilation",
    "octants.lang": "Functions in kernels",
    "octants.data": "Data",
    "octants.types": "Types",
    "octants.diagnostics": "Errors",
    "octants": "More",
}


MODULES = (  # the others are parts of the compiler
    "ad",
    "algorithms",
    "graph",
    "linalg",
    "types",
    "types.quant",
    "math",
    "simt.block",
    "simt.subgroup",
    "simt.warp",
    "simt.grid",
    "profiler",
    "ui",
)

NEED_PACKAGES = ("torch", "jax")
"""Modules that cannot be imported everywhere, whose source is read instead."""

OBJECTS = {
    "Kernel": Kernel,
    "Gradient": Gradient,
    "Explanation": Explanation,
    "Inspection": Inspection,
    "ValueAndGrad": ValueAndGrad,
    "HessianProduct": HessianProduct,
}
"""Classes that have no public name, whose instances users work with: how the page calls them."""

Names = dict[str, Any]


def page() -> str:
    """The text of docs/api.md."""
    described: dict[int, str] = {}
    parts = [HEAD]
    names = names_of_module("")
    titles = {name: _title(value) for name, value in names.items()}
    for title in dict.fromkeys(TITLES.values()):
        chosen = {name: value for name, value in names.items() if titles[name] == title}
        parts += [f"## {title}\n", *_describe(chosen, described)] if chosen else []
        if title == "Running":
            parts += ["## What functions return\n", *_objects()]
    for name in MODULES:
        module = operator.attrgetter(name)(octants)
        parts += [f"## qd.{name}\n", _prose(module)]
        parts += _describe(names_of_module(name), described)
    for name in NEED_PACKAGES:
        parts += _module_from_source(name)
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def names_of_module(name: str) -> Names:
    """The public names of a module of `MODULES`, or of `octants` itself, with their values."""
    if not name:
        return _public(octants, "qd.")
    module = operator.attrgetter(name)(octants)
    names = _public(module, f"qd.{name}.")
    if name.startswith("simt."):  # whose functions are written in terms of others
        return {n: v for n, v in names.items() if _is_defined_in(module, v)}
    if name == "types.quant":
        return {n: v for n, v in names.items() if _home(v) in QUANTISED}
    return names


QUANTISED = ("octants.types.quant", "octants.types.quantised_types")
"""The modules of `types.quant` and its types; it imports others for their names."""


def _home(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _objects() -> Iterator[str]:
    """The members of objects that functions of Octants return."""
    for name, cls in OBJECTS.items():
        yield f"### {name}\n"
        yield _prose(cls)
        yield from _members(name, cls)


def _module_from_source(name: str) -> Iterator[str]:
    """The functions and classes of a module, by its syntax tree."""
    tree = ast.parse((Path(octants.__file__).parent / f"{name}.py").read_text())
    yield f"## octants.{name}\n"
    yield _plain(ast.get_docstring(tree) or "") + "\n"
    public = {node.name: node for node in tree.body if isinstance(node, _DEFINITIONS)}
    for one in sorted(public):
        if not one.startswith("_"):
            node = public[one]
            doc = ast.get_docstring(node) or ""
            yield f"### octants.{name}.{one}\n"
            yield f"`octants.{name}.{one}({_arguments(node)})`\n"
            yield _plain(doc) + "\n"


_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def _arguments(node: ast.FunctionDef | ast.ClassDef) -> str:
    """The parameters of a function, or of the `__init__` of a class, without their types."""
    if isinstance(node, ast.ClassDef):
        found = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        (node,) = [one for one in found if one.name == "__init__"]
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(node.args).removeprefix("self, ")


def _public(module: ModuleType, prefix: str) -> Names:
    """The public names of a module."""
    names = getattr(module, "__all__", None)
    if names is None:
        deferred = vars(module).get("_MODULES_OF_NAMES", {})  # see `deferred_import.names_of`
        names = [name for name in vars(module) if name[0] != "_" and name not in deferred]
        names = [name for name in names if name != "TYPE_CHECKING"]
        names += [name for name, home in deferred.items() if home not in MODULES]
    found = {f"{prefix}{name}": getattr(module, name) for name in names}
    return {name: value for name, value in found.items() if _is_ours(value)}


def _is_defined_in(module: ModuleType, value: Any) -> bool:
    """Whether a value stands in a module, or beside it in a file that has no name of its own."""
    home = str(getattr(value, "__module__", ""))
    own_names = {f"octants.lang.{name}" for name in MODULES}
    beside = home.startswith("octants.lang.simt.") and home not in own_names
    return home == module.__name__ or beside


def _is_ours(value: Any) -> bool:
    """Whether a value is not a module, and nothing that was imported from elsewhere."""
    home = getattr(value, "__module__", None) or type(value).__module__
    return home.partition(".")[0] in ("octants", "builtins") and not isinstance(value, ModuleType)


def _title(value: Any) -> str:
    home = getattr(value, "__module__", None) or type(value).__module__
    fitting = [prefix for prefix in TITLES if f"{home}.".startswith(f"{prefix}.")]
    return TITLES[max(fitting, key=len)] if fitting else TITLES["octants"]


def _describe(names: Names, described: dict[int, str]) -> Iterator[str]:
    """Values in a line each, then functions and classes with their docstrings.

    ``described`` says under which name a thing stands already, by its identity.
    """
    lines, sections = [], []
    for name in sorted(names, key=lambda name: (id(names[name]) not in described, len(name), name)):
        value = names[name]
        # What a member of an enumeration is called, such as the arch of the host, may vary.
        first = name if isinstance(value, enum.Enum) else described.setdefault(id(value), name)
        if first != name:
            lines.append(f"* `{name}`: the same as `{first}`")
        elif inspect.isroutine(value) or inspect.isclass(value):
            sections.append(name)
        else:
            lines.append(f"* `{name}`{_value(value)}")
    if lines:
        yield "\n".join(sorted(lines)) + "\n"
    for name in sorted(sections):
        yield f"### {name}\n"
        yield _signature(name, names[name])
        yield _prose(names[name])
        if inspect.isclass(names[name]):
            yield from _members(name, names[name])


def _value(value: Any) -> str:
    if isinstance(value, DType):
        return f": {value.kind.value}, {value.bits} bits"
    if isinstance(value, enum.Enum):
        return f": {type(value).__name__}"
    if isinstance(value, Root):
        return ": the root of the trees of fields, with the methods of `qd.SNode`"
    return f": {value!r}" if isinstance(value, (str, int, float, MatrixType)) else ""


def _signature(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        return f"A kind of {bases}.\n"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f"One of {', '.join(f'`{name}.{member.name}`' for member in value)}.\n"
    if inspect.isclass(value) and is_internal(value, "__init__"):
        return ""
    try:
        parameters = _parameters(value)
        is_made_elsewhere = parameters == "(*args, **named)"  # by functions such as `field`
        return "" if is_made_elsewhere else f"`{name}{parameters}`\n"
    except (TypeError, ValueError):
        return ""


def _named_classes() -> list[Any]:
    return [*vars(octants).values(), *vars(octants.types).values()]


def members_of(cls: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that users call, as functions: those of a class itself.

    Those of bases that have no public name count as its own.
    """
    named = [base for base in cls.__mro__[1:] if base in _named_classes()]
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        is_private = _home(base).startswith("octants.") and base not in _named_classes()
        if base is cls or (is_private and not any(issubclass(one, base) for one in named)):
            found.update(vars(base))
    for name, member in found.items():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "func", getattr(function, "__func__", function))
        if inspect.isroutine(function) and not (name.startswith("_") or is_internal(cls, name)):
            yield name, function


def _members(name: str, cls: type) -> Iterator[str]:
    """The methods and properties that the class itself documents.

    Those with a docstring of one line are a list; each other one has a heading.
    """
    bases = [f"`qd.{base.__name__}`" for base in cls.__bases__ if base in vars(octants).values()]
    if bases and not issubclass(cls, BaseException):
        yield f"It also has the members of {', '.join(bases)}.\n"
    lines, sections = [], []
    for member_name, function in members_of(cls):
        doc, member = inspect.getdoc(function), inspect.getattr_static(cls, member_name)
        if not doc:
            continue
        is_read = isinstance(member, (property, cached_property))
        call = "" if is_read else _parameters(function)
        first, _, rest = doc.partition("\n")
        if rest:
            sections += [f"#### {name}.{member_name}\n", f"`{name}.{member_name}{call}`\n"]
            sections.append(_plain(doc) + "\n")
        else:
            lines.append(f"* `{member_name}{call}`: {_plain(first)}")
    if lines:
        yield "**Members**\n"
        yield "\n".join(lines) + "\n"
    yield from sections


def _parameters(function: Any) -> str:
    """The parameters with their defaults, without their types: the docstrings tell these."""
    found: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter))
        for parameter in found.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(inspect.Signature(parameters))


def _default(parameter: inspect.Parameter) -> Any:
    """The default value, but only how an object is called, not its address."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return default
    if isinstance(default, enum.Enum):
        return _Name(f"{type(default).__name__}.{default.name}")
    return _Name(default.__name__) if isinstance(default, type) else default


class _Name(str):
    """A text that stands for itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _prose(value: Any) -> str:
    doc = inspect.getdoc(value)
    return _plain(doc) + "\n" if doc else ""


_SECTION = re.compile(
    r"^(Args|Returns|Raises|Attributes):\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE
)


def _plain(text: str) -> str:
    """A docstring as Markdown: sections as lists, code between single backticks or fences."""
    text = _SECTION.sub(_section, text).replace("``", "`") + "\n"
    return re.sub(r"::$", ":", _CODE.sub(_fenced, text), flags=re.MULTILINE).rstrip()


_CODE = re.compile(r"(?:::|(?<=Example):)\n\n((?:    .*\n|\n(?=    ))+)")


def _fenced(match: re.Match[str]) -> str:
    """Code in a fence: not ``python``, which the tests of pages would run."""
    return f":\n\n```py\n{textwrap.dedent(match[1])}```\n"


def _section(match: re.Match[str]) -> str:
    """A section as a list: an entry for each line at its first indentation; results as prose."""
    if match[1] == "Returns":
        return f"**Returns**\n\n{textwrap.dedent(match[2])}"
    entries = re.sub(r"^    (?! )", "* ", match[2], flags=re.MULTILINE)
    entries = re.sub(r"^        ", "  ", entries, flags=re.MULTILINE)
    entries = re.sub(r"^\* (\w+): ", r"* `\1`: ", entries, flags=re.MULTILINE)
    return f"**{match[1]}**\n\n{entries}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
