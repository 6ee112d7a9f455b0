"""Writes a program as a standalone script."""

from __future__ import annotations

from typing import Any

from octants.fuzz.backends import has_free_order, options
from octants.fuzz.program import HOST_WRITES, FloatArray, Program, Text

TEMPLATE = '''\
"""{problems}

Found by: {command}
"""

import numpy as np
import octants as qd

OPTIONS = {options}
qd.init(
    arch=qd.{arch},
    default_fp=qd.{precision},
    random_seed={random_seed},
    **OPTIONS,
)
FP = qd.{precision}

{source}

INPUTS = {inputs}
WEIGHTS = {weights}
DIRECTION = {direction}


def write(array, values):
    array.from_numpy(np.array(values, array.to_numpy().dtype))


def write_elements(array, values):
    for index in np.argwhere(np.reshape(values, (*array.shape, -1)).any(axis=-1)):
        array[tuple(map(int, index))] = np.array(values)[tuple(index)].tolist()


for name, values in INPUTS.items():
    (write_elements if name in {sparse} else write)(eval(name), values)
with qd.ad.Tape():
{launches}
    for name, values in WEIGHTS.items():
        write(eval(name).grad, values)
for name in INPUTS:
    print(name, "=", eval(name).to_numpy().tolist())
for name in WEIGHTS:
    print(name, ".grad =", eval(name).grad.to_numpy().tolist())
'''


def _argument(given: Any) -> str:
    if isinstance(given, Text):
        return given.text
    return given if isinstance(given, str) else repr(given)


def command(program: Program, backend: str) -> str:
    """The command that finds a program again."""
    return (
        f"python -m octants.fuzz --seed {program.seed} --count 1 --backend {backend}"
        f" --precision {program.precision} --profile {program.profile}"
    )


def script(program: Program, problems: list[str], backend: str) -> str:
    """The text of a script that runs the program under a tape and prints what comes out."""
    calls = []
    name, _, variant = backend.partition("-")
    chosen = options(program.seed, name)
    if has_free_order(program, name):
        chosen["deterministic"] = False
    if variant:
        chosen["fast_math"] = variant == "fast"
    for kernel, arguments in program.launches:
        texts = [_argument(given) for given in arguments]
        if kernel == "from_numpy":
            calls.append(f"    write({', '.join(texts)})")
        elif kernel in HOST_WRITES:
            calls.append(f"    {texts[0]}.{kernel}({', '.join(texts[1:])})")
        else:
            calls.append(f"    print({kernel!r}, {kernel}({', '.join(texts)}))")
    return TEMPLATE.format(
        problems="\n".join(problems).replace('"""', "'''"),
        command=command(program, backend),
        arch={"interpreter": "python"}.get(name, name),
        options=chosen,
        precision=program.precision,
        random_seed=program.random_seed,
        source=program.source.strip(),
        sparse=program.sparse,
        inputs=_literal(program.inputs),
        weights=_literal(program.weights),
        direction=_literal(program.direction),
        launches="\n".join(calls),
    )


def _literal(arrays: dict[str, FloatArray]) -> str:
    entries = [f"    {name!r}: {values.tolist()!r}," for name, values in arrays.items()]
    return "\n".join(["{", *entries, "}"])
