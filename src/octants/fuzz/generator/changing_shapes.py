"""Kernels that are launched with arrays of one shape, then with arrays of another one."""

from __future__ import annotations

from octants.fuzz.generator.bounded_expressions import fitting
from octants.fuzz.generator.context import ArrayInfo, Context, Productions, Shared, Variable
from octants.fuzz.generator.racy_loops import Scalar
from octants.fuzz.program import HOST_WRITES

_ROWS, _COLUMNS = (1, 2, 3, 4, 5, 8, 9, 17, 33), (1, 2, 3, 4, 7, 8)
_SETS = 3
_TERMS = [
    *["0.3 * qd.sin({s} + {e})", "0.2 * {e} * qd.cos({s})", "0.5 * {e}"],
    *["0.1 * {e} * {e} * {x}", "0.2 * qd.tanh({e} * {x} + {j})"],
]


def declare(shared: Shared) -> list[str]:
    """Make three sets of arrays, each with its shape: a vector, a matrix, results, and lengths."""
    rng = shared.rng
    shared.arrays = []
    for _ in range(_SETS):
        rows, columns = rng.choice(_ROWS), rng.choice(_COLUMNS)
        for prefix, shape in (("x", (rows,)), ("w", (rows, columns)), ("y", (rows,))):
            constant = prefix != "y"
            made = ArrayInfo(shared.fresh(prefix), "f", shape, (), False, constant=constant)
            shared.arrays.append(made)
        lengths = ArrayInfo(shared.fresh("t"), "i", (rows,), (), False, constant=True)
        lengths.dtype, lengths.has_grad = "qd.i32", False
        lengths.limits = (0, columns)
        shared.arrays.append(lengths)
    return []


def body(c: Context) -> list[Scalar]:
    """Write loops over the shapes of the first set; gives no numbers to pass."""
    x, w, y, t = (array.name for array in c.shared.arrays[: len(c.shared.arrays) // _SETS])
    for _ in range(c.pick([1, 1, 2])):
        i, s, j = (c.shared.fresh(prefix) for prefix in "isk")
        over = c.pick([f"range({x}.shape[0])", f"range({w}.shape[0])", x, y])
        c.note("shapes: a loop over an array" if over in (x, y) else "shapes: a loop over a shape")
        with c.block(f"for {i} in {over}:", trips=8.0):
            c.scopes[-1].append(Variable(i, "i", 0, max(_ROWS) - 1, frozen=True))
            c.emit(f"{s} = {fitting(c, 1.0, 1).text}")
            bound = c.pick([f"{w}.shape[1]", f"{w}.shape[1]", f"{t}[{i}]", f"{w}.shape[1] - 1"])
            c.note(f"shapes: inner bound: {'data' if t in bound else 'shape'}")
            with c.block(f"for {j} in range({bound}):", trips=4.0):
                element = f"{w}[{i}, {j}]"
                names = {"s": s, "e": element, "x": f"{x}[{i}]", "j": f"0.1 * {j}"}
                if c.chance(0.2):
                    names["x"] = f"{x}[{x}.shape[0] - 1 - {i}]"
                term = c.pick(_TERMS).format(**names)
                form = c.pick([f"{s} += {term}", f"{s} = 0.7 * qd.sin({s}) + {term}"])
                if c.chance(0.2):
                    with c.block(f"if {element} > {round(c.rng.uniform(-0.5, 0.5), 2)}:"):
                        c.emit(form)
                else:
                    c.emit(form)
            own = c.pick([f"{y}[{i}] = {s}", f"{y}[{i}] += 0.5 * {s}", f"{y}[0] += 0.02 * {s}"])
            c.emit(own)
    return []


def _with_other_shapes(
    shared: Shared, lines: list[str], launches: list[tuple[str, tuple[object, ...]]]
) -> tuple[list[str], list[tuple[str, tuple[object, ...]]]]:
    """Launch each kernel with the other sets of arrays, too, in any order."""
    rng = shared.rng
    names = [array.name for array in shared.arrays]
    count = len(names) // _SETS
    found: list[tuple[str, tuple[object, ...]]] = []
    for name, given in launches:
        found.append((name, given))
        if name in HOST_WRITES:
            continue
        for other in rng.sample(range(1, _SETS), rng.randint(1, _SETS - 1)):
            stand_ins = dict(zip(names[:count], names[other * count :], strict=False))
            found.append((name, tuple(stand_ins.get(str(each), each) for each in given)))
        if rng.random() < 0.3:
            found.append((name, given))
    return lines, found


PRODUCTIONS = Productions(declare=declare, finish=_with_other_shapes)
