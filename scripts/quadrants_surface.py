"""List the public surface of Quadrants: names, signatures, and the members of classes and objects.

    python scripts/quadrants_surface.py > tests/names/quadrants_public.txt
    python scripts/quadrants_surface.py results > tests/names/quadrants_results.txt

Each line is a name, with its parameters if it can be called. `*` stands before parameters that have
to be named. A default that is not a number, a string or a container is written as `<its name>`.
Members of a class have the name of the class as a prefix; members of objects that calls return
have a prefix of OBJECTS, such as `<field>`. `tests/names/test_surface.py` compares Octants with it.

`results` are the types of these members, and of what they return if they need no arguments: a line
such as `<field>.shape: tuple[int]`.
"""

import enum
import importlib
import inspect
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

# Objects that programs get by calls. `qd` is the package, `np` numpy.
OBJECTS = {
    "<field>": "qd.field(qd.f32, 4, needs_grad=True)",
    "<matrix field>": "qd.Matrix.field(2, 2, qd.f32, 4, needs_grad=True)",
    "<struct field>": "qd.Struct.field({'a': qd.f32, 'b': qd.math.vec2}, shape=4)",
    "<ndarray>": "qd.ndarray(qd.f32, 4, needs_grad=True)",
    "<vector ndarray>": "qd.Vector.ndarray(2, qd.f32, 4)",
    "<matrix ndarray>": "qd.Matrix.ndarray(2, 2, qd.f32, 4)",
    "<tensor>": "qd.tensor(qd.f32, 4)",
    "<matrix>": "qd.Matrix([[1.0, 2.0], [3.0, 4.0]])",
    "<vector>": "qd.Vector([1.0, 2.0, 3.0, 4.0])",
    "<struct>": "qd.Struct(a=1.0, b=2)",
    "<struct type>": "qd.types.struct(a=qd.f32, b=qd.math.vec2)",
    "<vector type>": "qd.types.vector(3, qd.f32)",
    "<matrix type>": "qd.types.matrix(3, 2, qd.f32)",
    "<quantised integer>": "qd.types.quant.int(5)",
    "<quantised fixed>": "qd.types.quant.fixed(5)",
    "<quantised float>": "qd.types.quant.float(5, 6)",
    "<dtype>": "qd.f32",
    "<kernel>": "kernel(qd)",
    "<func>": "qd.func(lambda x: x)",
    "<root>": "qd.root",
    "<block>": "qd.root.dense(qd.i, 4)",
    "<builder>": "qd.FieldsBuilder()",
    "<stream>": "qd.create_stream()",
    "<event>": "qd.create_event()",
    "<ndrange>": "qd.ndrange(2, 3)",
    "<config>": "qd.cfg",
}


def kernel(qd: Any) -> Any:
    @qd.kernel
    def fill(x: qd.types.ndarray()) -> None:
        for i in x:
            x[i] = 1

    return fill


def signature(of: Any) -> str:
    """Return the parameters, in parentheses; "" if there are none that Python knows."""
    if not callable(of):
        return ""
    try:
        parameters = inspect.signature(of).parameters.values()
    except (TypeError, ValueError):
        return ""
    named = {p.kind for p in parameters}
    texts: list[str] = []
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and one.VAR_POSITIONAL not in named and "*" not in texts:
            texts.append("*")
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        texts.append(prefix + one.name + default(one.default))
    return f"({', '.join(texts)})"


def default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, enum.Enum):
        return f"=<{value.name}>"
    is_plain = value is None or isinstance(value, bool | int | float | str | tuple | list | dict)
    if is_plain and " at 0x" not in repr(value):
        return f"={value!r}"
    return f"=<{getattr(value, '__name__', type(value).__name__)}>"


def is_public(name: str) -> bool:
    """Whether a name is public; names such as `xyz` stand for their first letters."""
    return name[0] != "_" and not re.fullmatch("[xyzw]{2,4}|[rgba]{2,4}|[stpq]{2,4}", name)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of a class that Python's own classes do not have."""
    ours = [c for c in kind.__mro__ if c.__module__.partition(".")[0] == "quadrants"]
    for name in sorted({n for c in ours for n in vars(c) if is_public(n)}):
        member = inspect.getattr_static(kind, name)
        if isinstance(member, staticmethod | classmethod):
            member = getattr(kind, name)
        if callable(member):
            yield name, member


def is_exported(qd: Any, module: types.ModuleType, name: str) -> bool:
    """Whether a module defines or exports a name, rather than merely import it."""
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):
        return module is qd or value.__name__.startswith(module.__name__ + ".")
    exports = getattr(module, "__all__", None)
    home = getattr(value, "__module__", None)
    if module is qd or home is None:
        return module is qd or name in (exports or [name])
    if module.__name__ in ("quadrants.types", "quadrants.types.primitive_types"):
        return home.startswith("quadrants")
    is_imported = getattr(qd, name, None) is value and name not in (exports or [])
    is_private = "_lib" in home and not module.__name__.startswith("quadrants.types")
    return home.startswith("quadrants.") and not is_imported and not is_private


def names(qd: Any, prefix: str, of: Any, seen: set[int]) -> Iterator[str]:
    """Yield the lines of a module, a class or a function."""
    if isinstance(of, types.ModuleType):
        yield prefix
        if id(of) not in seen and of is not qd.lang:
            seen.add(id(of))
            for name in filter(is_public, dir(of)):
                if is_exported(qd, of, name):
                    yield from names(qd, f"{prefix}.{name}", getattr(of, name), seen)
        return
    yield prefix + signature(of)
    if isinstance(of, type):
        for name, member in members(of):
            yield f"{prefix}.{name}{signature(member)}"


def of_object(prefix: str, of: Any) -> Iterator[str]:
    for name in filter(is_public, dir(of)):
        if hasattr(object, name) or hasattr(int, name) or hasattr(types.FunctionType, name):
            continue
        try:
            member = getattr(of, name)
        except Exception:  # a property that this object does not have
            continue
        bound = isinstance(member, types.MethodType | types.FunctionType | types.BuiltinMethodType)
        yield f"{prefix}.{name}{signature(member) if bound else ''}"


def type_names(value: Any) -> list[str]:
    """What the type of a value is called, and what its base classes are."""
    kind = type(value)
    if callable(value) and not isinstance(value, type):
        return ["a callable"]
    if isinstance(value, tuple | list | dict):
        items = value.values() if isinstance(value, dict) else value
        return [f"{kind.__name__}[{', '.join(sorted({type_names(v)[0] for v in items}))}]"]
    if hasattr(kind, "dtype") and kind.__module__ == "numpy":
        is_number = kind.__name__ != "ndarray"
        return [type(value.item()).__name__] if is_number else [f"ndarray of {value.dtype}"]
    return [base.__name__ for base in kind.__mro__[:-1]] or [kind.__name__]


def results(qd: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the types of the members of OBJECTS, and of the results of their calls."""
    for prefix, text in OBJECTS.items():
        qd.init(arch=qd.cpu, log_level=qd.ERROR)
        for line in of_object(prefix, eval(text, {"qd": qd, "kernel": kernel})):
            name, _, given = line.partition("(")
            needed = [p for p in given[:-1].split(", ") if p and p[0] != "*" and "=" not in p]
            if needed or prefix == "<config>":
                continue
            found = getattr(eval(text, {"qd": qd, "kernel": kernel}), name.partition(">.")[2])
            try:
                yield f"{name}()" if given else name, type_names(found() if given else found)
            except Exception as error:
                yield f"{name}()", [f"raises {type(error).__name__}"]


def main(what: str = "names") -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # Quadrants writes about itself
    qd = importlib.import_module("quadrants")
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    if what == "results":
        lines = [f"{name}: {kinds[0]}" for name, kinds in results(qd)]
    else:
        lines = list(names(qd, "qd", qd, set()))[1:]
        for prefix, text in OBJECTS.items():
            lines += of_object(prefix, eval(text, {"qd": qd, "kernel": kernel}))
    with os.fdopen(out, "w") as file:
        print(*sorted(set(lines)), sep="\n", file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
