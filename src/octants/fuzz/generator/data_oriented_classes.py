"""Methods of ``data_oriented`` classes, and Python dataclasses as arguments."""

from __future__ import annotations

import re
from typing import Any

from octants.fuzz.generator.context import Context, Productions, Shared
from octants.fuzz.program import Text

# -- dataclasses of arrays and numbers -------------------------------------------------------------


def bundle(c: Context, body: str, parameters: list[str], values: list[Any]) -> str:
    """Give some arguments of a kernel as the members of one dataclass."""
    chosen = [p for p in parameters if _may_be_member(p) and c.chance(0.7)]
    if not chosen or not c.chance(0.6):
        return body
    shared = c.shared
    kind, name = shared.fresh("Bundle"), shared.fresh("bundle")
    c.note("dataclass of arrays as an argument")
    if "import dataclasses" not in shared.imports:
        shared.imports.append("import dataclasses")
    shared.preamble += ["@dataclasses.dataclass", f"class {kind}:"]
    shared.preamble += [*(f"    {member}" for member in chosen), ""]
    given = []
    for member in chosen:
        position = parameters.index(member)
        del parameters[position]
        value = values.pop(position)
        given.append(value if isinstance(value, str) else repr(value))
        called = member.split(":")[0]
        body = re.sub(rf"\b{called}\b", f"{name}.{called}", body)
    parameters.append(f"{name}: {kind}")
    values.append(Text(f"{kind}({', '.join(given)})"))
    return body


def _may_be_member(parameter: str) -> bool:
    annotation = parameter.split(": ", 1)[1]
    return "ndarray(" in annotation or annotation in ("FP", "qd.i32")


# -- data_oriented classes -------------------------------------------------------------------------


def as_class(shared: Shared, lines: list[str], launches: list[Any]) -> tuple[list[str], list[Any]]:
    """Move all functions into a class; it has some of the fields, and the numbers."""
    rng = shared.rng
    if rng.random() < 0.3:
        return lines, launches
    shared.features["data_oriented class"] += 1
    text = "\n".join(lines)
    classes = re.findall(r"@dataclasses\.dataclass\nclass (?:.+\n)+", text)
    for one in classes:
        text = text.replace(one, "")
    owners = {array.owner or array.name for array in shared.arrays if array.is_field}
    fields = [name for name in sorted(owners) if rng.random() < 0.6]
    numbers = [name for name, _ in shared.constants]
    for name in [*fields, *numbers]:
        text = re.sub(rf"(?<!\.)\b{name}\b", f"self.{name}", text)
    functions = re.findall(r"^def (\w+)\(", text, re.MULTILINE)
    text = re.sub(r"^def (\w+)\(\)", r"def \1(self)", text, flags=re.MULTILINE)
    text = re.sub(r"^def (\w+)\((?!self)", r"def \1(self, ", text, flags=re.MULTILINE)
    for name in functions:
        text = re.sub(rf"(?<!def )(?<!\.)\b{name}\(", f"self.{name}(", text)
    kind = shared.fresh("Model")
    body = [f"    {line}".rstrip() for line in text.rstrip().split("\n")]
    made, objects = _objects(shared, kind)
    init = ["    def __init__(self, numbers):"]
    init.append(f"        {', '.join(f'self.{name}' for name in numbers)} = numbers")
    init += [f"        self.{name} = {name}" for name in fields]
    text_of_class = [*classes, "@qd.data_oriented", f"class {kind}:", *init, "", *body, "", *made]
    moved = [(f"{rng.choice(objects)}.{k}", a) if k in functions else (k, a) for k, a in launches]
    return text_of_class, _with_other_numbers(shared, objects, moved)


def _objects(shared: Shared, kind: str) -> tuple[list[str], list[str]]:
    """The lines that make one or two objects, and their names."""
    lines, names = [], []
    for number in range(shared.rng.choice([1, 1, 2])):
        name = shared.fresh("model")
        values = [repr(value) for _, value in shared.constants]
        if number:
            shared.features["kernel of two objects"] += 1
            values[0] = repr(round(shared.rng.uniform(-1.5, 1.5), 2))
        lines.append(f"{name} = {kind}(({', '.join(values)},))")
        names.append(name)
    return lines, names


def _with_other_numbers(shared: Shared, objects: list[str], launches: list[Any]) -> list[Any]:
    """The launches, with assignments to an attribute of the objects before some of them.

    From the third number on, kernels are passed it.
    """
    rng = shared.rng
    floats = [(name, value) for name, value in shared.constants if isinstance(value, float)]
    if len(launches) < 2 or not floats or rng.random() < 0.4:
        return launches
    shared.features["an attribute changes between launches"] += 1
    name, value = rng.choice(floats)

    def assign(one: str, number: float) -> tuple[str, tuple[Any, ...]]:
        return "__setattr__", (one, Text(repr(name)), number)

    steps = [assign(one, value) for one in objects]  # as a run before it may have left others
    for launch in launches:
        if rng.random() < 0.7:
            steps.append(assign(rng.choice(objects), round(rng.uniform(-1.5, 1.5), 2)))
        steps.append(launch)
    return steps


PRODUCTIONS = Productions(kernel=bundle, finish=as_class)
