"""Writes a program as a script that stands alone."""

from __future__ import annotations

from octants.fuzz.program import HOST_WRITES, FloatArray, Program

TEMPLATE = '''\
"""{problems}

Found by: {command}
"""

import numpy as np
import octants as qd

qd.init(
    arch=qd.{arch}, default_fp=qd.{precision}, random_seed={random_seed}, fast_math={fast_math}
)
FP = qd.{precision}

{source}

INPUTS = {inputs}
WEIGHTS = {weights}
DIRECTION = {direction}
for name, values in INPUTS.items():
    globals()[name].from_numpy(np.array(values, globals()[name].to_numpy().dtype))

with qd.ad.Tape():
{launches}
    for name, values in WEIGHTS.items():
        grad = globals()[name].grad
        grad.from_numpy(np.array(values, grad.to_numpy().dtype))
for name in INPUTS:
    print(name, "=", globals()[name].to_numpy().tolist())
for name in WEIGHTS:
    print(name, ".grad =", globals()[name].grad.to_numpy().tolist())
'''


def command(program: Program, backend: str) -> str:
    """The command that finds a program again."""
    return (
        f"python -m octants.fuzz --seed {program.seed} --count 1 --backend {backend}"
        f" --precision {program.precision}"
    )


def script(program: Program, problems: list[str], backend: str) -> str:
    """The text of a script that runs the program under a tape and prints what comes out."""
    calls = []
    name, _, variant = backend.partition("-")
    for kernel, arguments in program.launches:
        texts = [a if isinstance(a, str) else repr(a) for a in arguments]
        if kernel in HOST_WRITES:
            calls.append(f"    {texts[0]}.{kernel}({', '.join(texts[1:])})")
        else:
            calls.append(f"    print({kernel!r}, {kernel}({', '.join(texts)}))")
    return TEMPLATE.format(
        problems="\n".join(problems).replace('"""', "'''"),
        command=command(program, backend),
        arch={"interpreter": "python"}.get(name, name),
        fast_math=variant == "fast",
        precision=program.precision,
        random_seed=program.random_seed,
        source=program.source.strip(),
        inputs=_literal(program.inputs),
        weights=_literal(program.weights),
        direction=_literal(program.direction),
        launches="\n".join(calls),
    )


def _literal(arrays: dict[str, FloatArray]) -> str:
    entries = [f"    {name!r}: {values.tolist()!r}," for name, values in arrays.items()]
    return "\n".join(["{", *entries, "}"])
