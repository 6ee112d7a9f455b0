"""Run the programs of `tests/compat/programs` with one of two packages, and say what came of each.

    python -m tests.compat.outcomes quadrants [names]

A program is a function of the package, so that its source is the same for both. Its outcome is what
it returns, what it prints, or the class of the exception that it raises.
"""

import contextlib
import importlib
import json
import math
import os
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from tests.compat import programs

OF_THAT_COMPILER = re.compile(r"^\[Quadrants\]|\x1b\[|\.so\b|0x[0-9a-f]{6}|^https:|^Internal error")
"""Lines that Quadrants writes about itself, such as traces of its stack."""


def all_programs() -> dict[str, Callable[[Any], Any]]:
    """Return the programs of all modules, by name."""
    found: dict[str, Callable[[Any], Any]] = {}
    for module in pkgutil.iter_modules(programs.__path__):
        source = importlib.import_module(f"{programs.__name__}.{module.name}")
        for name, value in vars(source).items():
            if isinstance(value, FunctionType) and value.__module__ == source.__name__:
                assert name not in found, name
                found[name] = value
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, with the types that a user could tell apart."""
    if isinstance(value, np.ndarray):
        return {"array": plain(value.tolist()), "dtype": str(value.dtype)}
    if isinstance(value, np.float64):
        value = float(value)
    if isinstance(value, np.generic):
        return {"number": plain(value.item()), "dtype": str(value.dtype)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "to_list"):
        return plain(value.to_list())
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    return f"<{type(value).__name__}>" if " at 0x" in str(value) else str(value)


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Collect what Python and machine code write to the standard output."""
    sys.stdout.flush()
    kept, text = os.dup(1), [""]
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with os.fdopen(os.dup(1), "w") as out, contextlib.redirect_stdout(out):
                yield text
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            text[0] = file.read().decode(errors="replace")


def outcome(qd: Any, program: Callable[[Any], Any]) -> dict[str, Any]:
    """Run a program, and return what came of it."""
    given = getattr(program, "options", {})
    kind = {k: getattr(qd, v) if isinstance(v, str) else v for k, v in given.items()}
    result: dict[str, Any] = {}
    with captured() as text:
        qd.init(arch=qd.cpu, log_level=qd.ERROR, **kind)
        sys.stdout.flush()
        try:
            result["value"] = plain(program(qd))
            qd.sync()
        except Exception as error:
            result = {"error": public_classes(qd, error)}
    lines = [line for line in text[0].splitlines() if not OF_THAT_COMPILER.search(line)]
    if any(lines):
        result["printed"] = lines
    return result


def public_classes(qd: Any, error: Exception) -> list[str]:
    """Return the classes by which a program can catch an error, the most special one first."""
    named = [(kind.__name__.replace("Octants", "Quadrants"), kind) for kind in type(error).__mro__]
    names = [
        n for n, kind in named if kind.__module__ == "builtins" or getattr(qd, n, None) is kind
    ]
    return names[: names.index("Exception")]


def main(package: str, *names: str) -> None:
    """Write a line for each program, so that those before a crash are known."""
    found = all_programs()
    qd = importlib.import_module(package)
    for name in names or sorted(found):
        print(json.dumps({name: outcome(qd, found[name])}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
