"""Writes docs/api.md from docstrings: ``python -m octants.tools.api_reference docs/api.md``.

The page lists the names of `octants` and of its public modules. A thing that has several names is
described under the shortest one.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import operator
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import octants
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
    "octants.lang.syntax": "Steering compilation",
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
    "ui",
)

Names = dict[str, Any]


def page() -> str:
    """The text of docs/api.md."""
    described: dict[int, str] = {}
    parts = [HEAD]
    names = _public(octants, "qd.")
    titles = {name: _title(value) for name, value in names.items()}
    for title in dict.fromkeys(TITLES.values()):
        chosen = {name: value for name, value in names.items() if titles[name] == title}
        parts += [f"## {title}\n", *_describe(chosen, described)] if chosen else []
    for name in MODULES:
        module = operator.attrgetter(name)(octants)
        parts += [f"## qd.{name}\n", _prose(module)]
        names = _public(module, f"qd.{name}.")
        if name.startswith("simt."):  # whose functions are written in terms of others
            names = {n: v for n, v in names.items() if _is_defined_in(module, v)}
        parts += _describe(names, described)
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _public(module: ModuleType, prefix: str) -> Names:
    """The public names of a module."""
    names = getattr(module, "__all__", None)
    if names is None:
        deferred = vars(module).get("_MODULES_OF_NAMES", {})  # see `deferred_import.names_of`
        names = [name for name in vars(module) if name[0] != "_" and name not in deferred]
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
            yield from _members(names[name])


def _value(value: Any) -> str:
    if isinstance(value, DType):
        return f": {value.kind.value}, {value.bits} bits"
    if isinstance(value, enum.Enum):
        return f": {type(value).__name__}"
    return f": {value!r}" if isinstance(value, (str, int, float)) else ""


def _signature(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        return f"A kind of {bases}.\n"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f"One of {', '.join(f'`{name}.{member.name}`' for member in value)}.\n"
    try:
        return f"`{name}{_parameters(value)}`\n"
    except (TypeError, ValueError):
        return ""


def _members(cls: type) -> Iterator[str]:
    """The methods and properties that the class itself documents, in a line each."""
    lines = []
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        doc = inspect.getdoc(function) if inspect.isroutine(function) else None
        if name.startswith("_") or not doc:
            continue
        call = "" if isinstance(member, property) else _parameters(function)
        lines.append(f"* `{name}{call}`: {_plain(doc.splitlines()[0])}")
    if lines:
        yield "\n".join(lines) + "\n"


def _parameters(function: Any) -> str:
    """The parameters with their defaults, without their types: the docstrings tell these."""
    found: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    if [*found] == ["values", "named"] and dataclasses.is_dataclass(function):
        found = _fields(function)  # of a `lazy_dataclass` that has no instance yet
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter))
        for parameter in found.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(inspect.Signature(parameters))


def _fields(cls: Any) -> Mapping[str, inspect.Parameter]:
    empty, kind = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {
        field.name: inspect.Parameter(
            field.name,
            kind,
            default=empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(cls)
    }


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
    """A docstring as Markdown: sections as lists, code between single backticks."""
    text = _SECTION.sub(_section, text)
    return re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)


def _section(match: re.Match[str]) -> str:
    """A section as a list: an entry for each line at its first indentation."""
    entries = re.sub(r"^    (?! )", "* ", match[2], flags=re.MULTILINE)
    entries = re.sub(r"^        ", "  ", entries, flags=re.MULTILINE)
    entries = re.sub(r"^\* (\w+): ", r"* `\1`: ", entries, flags=re.MULTILINE)
    return f"**{match[1]}**\n\n{entries}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
