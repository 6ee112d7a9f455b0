"""The picture of docs/benchmarks.md: run times relative to C by hand, and compile times."""
# mypy: ignore-errors

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from page import is_wrong
from systems import SYSTEMS

MARKERS = {
    "octants": ("o", "#0072b2"),
    "c-simd": ("|", "#000000"),
    "c-scalar": ("x", "#555555"),
    "quadrants": ("s", "#d55e00"),
    "taichi": ("^", "#e69f00"),
    "warp": ("D", "#009e73"),
    "jax": ("v", "#cc79a7"),
    "drjit": ("P", "#56b4e9"),
}


def draw(data, path: Path) -> None:
    """Write the picture; the same numbers make the same file."""
    mpl.rcParams["svg.hashsalt"] = "octants"
    mpl.rcParams["svg.fonttype"] = "none"
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.4), width_ratios=(3, 2), layout="constrained"
    )
    _run_times(left, data)
    _compile_times(right, data)
    figure.legend(fontsize=8, loc="outside lower center", ncols=len(MARKERS))
    machine = data["machine"]
    figure.suptitle(f"{machine['date']}, {machine['cpu']}, one thread, f32", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _run_times(axes, data) -> None:
    rows = [row for row in data["rows"] if row["section"] == "run"]
    base = "c-simd" if any(_median(row, "c-simd") for row in rows) else "octants"
    labels = [f"{row['subject'].partition(',')[0]}, {row['measure']}" for row in rows]
    for name, (marker, colour) in MARKERS.items():
        points = [
            (_median(row, name) / _median(row, base), k, is_wrong(data, row, name))
            for k, row in enumerate(rows)
            if _median(row, name) and _median(row, base)
        ]
        for wrong in (False, True):
            chosen = [(x, y) for x, y, off in points if off == wrong]
            style = {"facecolors": "none", "edgecolors": colour} if wrong else {"color": colour}
            label = None if wrong else SYSTEMS[name].label
            if chosen or not wrong:
                x, y = zip(*chosen, strict=True) if chosen else ((), ())
                axes.scatter(x, y, marker=marker, s=45, label=label, zorder=3, **style)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", linewidth=0.3)
    axes.set_xlabel(f"run time, {SYSTEMS[base].label} = 1 (hollow: the gradient is wrong)")


def _compile_times(axes, data) -> None:
    rows = [row for row in data["rows"] if row["section"] == "chain"]
    both = zip(rows[::2], rows[1::2], strict=True)
    totals = [
        (
            int(forward["subject"].split()[0]),
            {
                name: (_median(forward, name) or 0) + (_median(gradient, name) or 0)
                for name in MARKERS
            },
        )
        for forward, gradient in both
    ]
    for name, (marker, colour) in MARKERS.items():
        points = [(count, seconds[name]) for count, seconds in totals if seconds[name]]
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(which="both", linewidth=0.3)
    axes.set_xlabel("statements of a chain in a loop")
    axes.set_ylabel("compile time with gradient / s")


def _median(row, name: str):
    value = row["numbers"].get(name)
    return None if value is None or isinstance(value, str) else value["median"]
