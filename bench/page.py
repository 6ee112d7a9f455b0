"""The page of results, made of what `report.py` has stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from problems import TITLES, TOLERANCE
from systems import SYSTEMS

Data = dict[str, Any]
HEAD = """\
# Benchmarks

This page compares the speed of Octants with other systems, and with C written by hand, on one CPU.
[Another page](gpu_benchmarks.md) does so on a GPU. To measure again, with the systems that are
installed, run `make bench`; `python bench/run.py --quick` takes a minute.

Each system runs its own idiomatic program for a workload ([programs](../bench/systems),
[references in C](../bench/reference)), in a process of its own. Their runs alternate. All numbers
are f32. Before anything is timed, values and gradients are compared with those of C in double
precision.
"""
RATIOS = """\
The first column of numbers is in milliseconds; all others are quotients of times. *Octants / C,
SIMD* compares with C that is vectorised by hand, one work item in each lane: below 1, Octants is
faster. In the other columns, Octants is faster above 1. A backward run includes the forward
run that it needs. The times are medians of {rounds} rounds, in {clock} time, of one
thread, bound to one CPU.
"""
FOOTNOTE = "\\* the gradient is wrong: off by more than {tolerance:g} of its largest element."


def page(data: Data, source: str) -> str:
    """The whole page, in Markdown; ``source`` is the file of the numbers."""
    machine, options = data["machine"], data["options"]
    sections = [
        HEAD,
        _where(machine, source),
        _runs(data, options),
        _threads(data, options),
        absolute(
            data,
            "launch",
            "Calls",
            "Microseconds of a warm call of a kernel that does next to nothing.",
        ),
        absolute(
            data,
            "start",
            "Start",
            "Milliseconds. The first gradient is timed from the start of Python. *Warm* is a second"
            " process, which uses the cache of the first.",
        ),
        absolute(
            data,
            "chain",
            "Compile time",
            "Seconds to compile a chain of nonlinear statements in a dynamic loop, forward and"
            " gradient. Warp compiles both at once.",
        ),
        absolute(data, "compile", "", "Milliseconds to compile each workload."),
        absolute(data, "tape", "Tape", "Bytes of the process for one more step of one item."),
        systems_table(data),
        checks_table(data),
    ]
    return "\n".join(section for section in sections if section)


def _where(machine: Data, source: str) -> str:
    cpu = f"{machine['cpu']} ({machine['vectors']}), {machine['cores']} cores"
    return (
        f"Measured on {machine['date']}: {cpu},\n{machine['system']},"
        f" Python {machine['python']}. The numbers are in\n"
        f"[bench/results/{source}](../bench/results/{source}).\n"
    )


def table(header: list[str], lines: Iterable[list[str]]) -> str:
    """A table in Markdown, aligned, so that it reads well as text, too."""
    cells = [header, *lines]
    widths = [max(len(line[k]) for line in cells) for k in range(len(header))]
    rows = [
        "| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    rows.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(rows) + "\n"


def systems_of(rows: list[Data]) -> list[str]:
    """The systems that a section has anything to say of, in order, one thread each."""
    return [name for name in SYSTEMS if any(name in row["numbers"] for row in rows)]


def is_wrong(data: Data, row: Data, name: str) -> bool:
    """Whether the gradient that a system found for a workload was off."""
    found = data["checks"].get(row["subject"].partition(",")[0], {}).get(name)
    return bool(found and found["gradient"] > TOLERANCE and row["measure"] == "backward")


def _section(data: Data, name: str) -> list[Data]:
    return [row for row in data["rows"] if row["section"] == name]


def _runs(data: Data, options: Data) -> str:
    rows = _section(data, "run")
    if not rows:
        return ""
    names = [name for name in systems_of(rows) if name not in ("octants", "c-simd", "numba")]

    def line(row: Data) -> list[str]:
        by_hand = row["ratios"].get("c-simd")
        ours = [cell(row["numbers"]["octants"]), number(1 / by_hand["median"]) if by_hand else "-"]
        cells = [_ratio(row, name) + ("*" if is_wrong(data, row, name) else "") for name in names]
        return [row["subject"], row["measure"], *ours, *cells]

    labels = [f"{SYSTEMS[name].label} / Octants" for name in names]
    text = table(["workload", "run", "Octants, ms", "Octants / C, SIMD", *labels], map(line, rows))
    what = "".join(f"* {name}: {TITLES[name]}\n" for name in data["checks"])
    parts = ["## Run time\n", RATIOS.format(**options), text]
    if any(is_wrong(data, row, name) for row in rows for name in names):
        parts.append(FOOTNOTE.format(tolerance=TOLERANCE) + "\n")
    parts.append(what)
    if "since" in data:  # what has changed, for the better or the worse
        parts.append(f"{data['since']}\n")
    if not options["quick"]:
        parts.append("![Run times and compile times, drawn](images/benchmarks.svg)\n")
    return "\n".join(parts)


def _ratio(row: Data, name: str) -> str:
    return cell(row["ratios"].get(name, row["numbers"].get(name, "-")))


def _threads(data: Data, options: Data) -> str:
    rows = _section(data, "run")
    mark = f" x{options['threads']}"
    names = [name for name in SYSTEMS if any(name + mark in row["numbers"] for row in rows)]
    if not names:
        return ""

    def line(row: Data) -> list[str]:
        cells = []
        for name in names:
            one, several = (row["numbers"].get(key, "-") for key in (name, name + mark))
            both = not isinstance(one, str) and not isinstance(several, str)
            cells.append(f"{one['median'] / several['median']:.2f}" if both else "-")
        return [row["subject"], row["measure"], *cells]

    labels = [SYSTEMS[name].label for name in names]
    title = f"### {options['threads']} threads\n\nHow many times as fast as with one thread.\n"
    return title + "\n" + table(["workload", "run", *labels], map(line, rows))


def absolute(data: Data, section: str, title: str, text: str) -> str:
    rows = _section(data, section)
    if not rows:
        return ""
    names = [name for name in systems_of(rows) if any(is_number(row, name) for row in rows)]
    if section == "compile":
        names = [name for name in names if not name.startswith("c-")]
    lines = (
        [row["subject"], row["measure"], *(cell(row["numbers"].get(name, "-")) for name in names)]
        for row in rows
    )
    labels = [SYSTEMS[name].label for name in names]
    head = f"## {title}\n\n" if title else ""
    return f"{head}{text}\n\n" + table(["what", "", *labels], lines)


def is_number(row: Data, name: str) -> bool:
    return not isinstance(row["numbers"].get(name, "-"), str)


def cell(value: Any) -> str:
    """Three digits, or the words of a failure as far as they fit a cell."""
    if isinstance(value, str):
        return value if len(value) < 20 else "failed"
    return number(value["median"])


def number(value: float) -> str:
    """Three significant digits, never with an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - _magnitude(value))
    return f"{value:.{min(digits, 4)}f}"


def _magnitude(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def systems_table(data: Data) -> str:
    keys = ("version", "flags", "accuracy", "tape")
    lines = (
        [SYSTEMS[name].label, about.get("status", ""), *(about.get(key, "-") for key in keys)]
        for name, about in data["systems"].items()
    )
    return "## What was compared\n\n" + table(["system", "", *keys], lines)


def checks_table(data: Data) -> str:
    """How far off results were, and what failed, in full."""
    if not data["checks"]:
        return ""
    names = [name for name in SYSTEMS if any(name in found for found in data["checks"].values())]

    def line(workload: str) -> list[str]:
        found = data["checks"][workload]
        return [workload, *(_off(found[name]) if name in found else "-" for name in names)]

    title = (
        "## Are they right?\n\nThe greatest error of values / gradients, relative to their largest"
    )
    text = f"{title} element;\na gradient off by more than {TOLERANCE:g} is called wrong.\n\n"
    text += table(["workload", *(SYSTEMS[name].label for name in names)], map(line, data["checks"]))
    failures = _failures(data)
    return text + ("\n" + "\n".join(failures) + "\n" if failures else "")


def _off(found: Data) -> str:
    return f"{found['value']:.0e} / {found['gradient']:.0e}"


def _failures(data: Data) -> list[str]:
    """A line for each failure, with its words, once."""
    result: dict[str, None] = {}
    for row in data["rows"]:
        for name, value in row["numbers"].items():
            if isinstance(value, str) and len(value) >= 20:
                label = SYSTEMS[name.partition(" ")[0]].label
                result[f"* {label}, {row['subject']}: {value.replace('|', '/')}"] = None
    return list(result)
