"""The page of results of a GPU, made of what `report.py` has stored."""

from __future__ import annotations

from typing import Any

from page import absolute, cell, checks_table, is_wrong, number, systems_of, systems_table, table
from problems import TITLES, TOLERANCE
from systems import SYSTEMS

Data = dict[str, Any]
HEAD = """\
# Benchmarks of GPUs

This page compares the speed of Octants with other systems, and with CUDA written by hand, on one
GPU. [Another page](benchmarks.md) does so on a CPU. To measure again, with the systems that are
installed, run `python bench/gpu.py`.

Each system runs its own idiomatic program for a workload ([programs](../bench/systems),
[references in CUDA](../bench/reference/cuda)), in a process of its own. All numbers are f32. Values
and gradients are compared with those of CUDA in double precision.
"""
RUNS = """\
Milliseconds of a call, when many are queued in a row; the least of some runs. A backward run
includes the forward run that it needs, except for `springs`, where the tape has been recorded.
*Ratio* is the time of Octants divided by that of hand-written CUDA: below 1, Octants is faster.
*Best* is the time of the fastest other system with a right gradient, divided by that of Octants:
above 1, Octants is faster than all of them.
"""
FOOTNOTE = "\\* the gradient is wrong: off by more than {tolerance:g} of its largest element.\n"


def page(data: Data, source: str) -> str:
    """The whole page, in Markdown; ``source`` is the file of the numbers."""
    launch = (
        "Microseconds of a call of a kernel that does next to nothing, when many are queued in a"
        " row."
    )
    start = (
        "Milliseconds from the start of Python to the first gradient. *Warm* is a second process,"
        " which uses the cache of the first. The least of some runs, after a run that compiles"
        " Python's bytecode."
    )
    tape = "Megabytes of GPU memory in which loops keep values for their gradients."
    sections = [
        HEAD,
        _where(data["machine"], source),
        _runs(data),
        absolute(data, "tape", "Tapes", tape),
        absolute(data, "launch", "Calls", launch),
        absolute(data, "start", "Start", start),
        absolute(
            data,
            "compile",
            "",
            "Milliseconds that the first run of each workload takes more than later ones.",
        ),
        systems_table(data),
        checks_table(data),
    ]
    return "\n".join(section for section in sections if section)


def _where(machine: Data, source: str) -> str:
    note = f"{machine['note']}\n" if "note" in machine else ""
    driver = f", driver for {machine['driver']}" if "driver" in machine else ""
    return (
        f"Measured on {machine['date']}: {machine['gpu']}{driver}; {machine['cpu']},"
        f" Python {machine['python']}.\nThe numbers are in"
        f" [bench/results/{source}](../bench/results/{source}).\n{note}"
    )


def _runs(data: Data) -> str:
    rows = [row for row in data["rows"] if row["section"] == "run"]
    if not rows:
        return ""
    names = [name for name in systems_of(rows) if name != "octants"]
    peers = [name for name in names if name != "cuda"]

    def line(row: Data) -> list[str]:
        cells = [_time(data, row, name) for name in ("octants", *names)]
        best = min((_median(row, peer) for peer in _right(data, row, peers)), default=None)
        ours, by_hand = (_median(row, name) for name in ("octants", "cuda"))
        return [row["subject"], row["measure"], *cells, _over(ours, by_hand), _over(best, ours)]

    labels = [SYSTEMS[name].label for name in ("octants", *names)]
    parts = [
        "## Run time\n",
        RUNS,
        table(["workload", "run", *labels, "ratio", "best"], map(line, rows)),
    ]
    if any(is_wrong(data, row, name) for row in rows for name in names):
        parts.append(FOOTNOTE.format(tolerance=TOLERANCE))
    subjects = dict.fromkeys(row["subject"].partition(",")[0] for row in rows)
    parts.append("".join(f"* {name}: {TITLES[name]}\n" for name in subjects))
    if "since" in data:  # what has changed, for the better or the worse
        parts.append(f"{data['since']}\n")
    return "\n".join(parts)


def _time(data: Data, row: Data, name: str) -> str:
    return cell(row["numbers"].get(name, "-")) + ("*" if is_wrong(data, row, name) else "")


def _median(row: Data, name: str) -> float | None:
    value = row["numbers"].get(name)
    return value["median"] if isinstance(value, dict) else None


def _right(data: Data, row: Data, peers: list[str]) -> list[str]:
    return [
        name for name in peers if _median(row, name) is not None and not is_wrong(data, row, name)
    ]


def _over(one: float | None, other: float | None) -> str:
    return number(one / other) if one and other else "-"
