"""Times the programs of examples/ beside other systems: ``python bench/examples.py``.

Each program runs in each system with nothing but its import changed, in processes of its own, on
one thread, in f32. The runs of the systems alternate, and the least time of all rounds counts
(`--clock cpu` on a busy machine). The first call, with the set-up before it, compiles. A gradient
that differs from Octants' by more than 1 % of its largest element is marked with the difference.
The table goes to the screen and to bench/results; with ``--docs`` also into docs/examples.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe_machine
from workers import outcome, report

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
PAGE = HERE.parent / "docs" / "examples.md"
SYSTEMS = ("octants", "quadrants", "taichi")
OPTIONS: dict[str, dict[str, Any]] = {
    "octants": {"offline_cache": False, "log_level": "error"},
    "quadrants": {
        "offline_cache": False,
        "log_level": "error",
        "ad_stack_experimental_enabled": True,
    },
    "taichi": {"offline_cache": False, "log_level": "error"},
}
TOLERANCE = 1e-2
LIBRARIES = ("torch", "jax")
"""What programs import while they run, and some systems when they start: not to be timed."""
CLOCKS = "cpu: the time of the processes, for a busy machine"
COLUMNS = ("first", "steady", "first gradient", "gradient")


def main() -> None:
    """Measure what the command line asks for, or one program as a worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    parser.add_argument("names", nargs="*", default=names, help=f"some of {', '.join(names)}")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help=CLOCKS)
    parser.add_argument("--seconds", type=float, default=2.0, help="for repeated calls, each")
    parser.add_argument("--patience", type=float, default=400.0, help="for a program in a system")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/examples.md")
    parser.add_argument("--rounds", type=int, default=3, help="of all systems in turn")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.names[0], options.worker, options)
        return
    results = {name: measure(name, options) for name in options.names}
    found = {"machine": describe_machine(), "results": results}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"examples-{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    text = table(found, options.systems)
    print(text)
    if options.docs:
        replace_table(text, path)


def work(name: str, system: str, options: argparse.Namespace) -> None:
    """Run one program in one system; reports times and the gradient."""
    qd = __import__(system)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    source = (EXAMPLES / f"{name}.py").read_text()
    for library in LIBRARIES:
        if f"import {library}" in source:
            __import__(library)
    changed = source.replace("import octants as qd", f"import {system} as qd")
    if system == "taichi":  # it does not understand annotations that are text
        changed = changed.replace("from __future__ import annotations\n", "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"  # these systems read the source of kernels
        file.write_text(changed)
        module = types.ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        qd.init(arch=qd.cpu, default_fp=qd.f32, cpu_max_num_threads=1, **OPTIONS[system])
        exec(compile(changed, str(file), "exec", dont_inherit=True), module.__dict__)
        result: dict[str, Any] = {}
        try:
            begin = clock()
            forward, backward = module.workload()  # type: ignore[attr-defined]
            forward()
            result["first"] = clock() - begin
            result["steady"] = best(forward, clock, options.seconds)
            report(result)
            if backward is not None:
                result["first gradient"], found = timed(backward, clock)
                result["found"] = np.array(found, dtype=float).ravel().tolist()
                report(result)
                result["gradient"] = best(backward, clock, options.seconds)
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        report(result)


def timed(function: Any, clock: Any) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    begin = clock()
    result = function()
    return clock() - begin, result


def best(function: Any, clock: Any, seconds: float) -> float:
    """The least seconds of a call, of as many as there is time for, but two at least."""
    times = [timed(function, clock)[0], timed(function, clock)[0]]
    end = clock() + seconds
    while clock() < end:
        times.append(timed(function, clock)[0])
    return min(times)


def measure(name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each system took, and how far its gradient is from that of the first one."""
    found: dict[str, dict[str, Any]] = {system: {} for system in options.systems}
    for _ in range(options.rounds):
        for system in options.systems:
            if "error" not in found[system]:
                found[system] = least(found[system], run(name, system, options))
    gradients = {system: np.array(one.pop("found", [])) for system, one in found.items()}
    reference = gradients[options.systems[0]]
    for system, gradient in gradients.items():
        if gradient.size and gradient.size == reference.size and gradient is not reference:
            largest = float(np.abs(reference).max())
            found[system]["difference"] = float(np.abs(gradient - reference).max()) / largest
        print(f"  {name} in {system}: {found[system]}", flush=True)
    return found


def run(name: str, system: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one process found."""
    command = [sys.executable, __file__, name, "--worker", system]
    command += ["--seconds", str(options.seconds), "--clock", options.clock]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return outcome(command, options.patience, environment)


def least(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The least times of two rounds, and what else the later one found."""
    times = {key: min(now[key], before.get(key, now[key])) for key in COLUMNS if key in now}
    return {**before, **now, **times}


def table(found: dict[str, Any], systems: list[str]) -> str:
    """The results as a table of Markdown."""
    lines = [
        f"| program | system | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for name, each in found["results"].items():
        for system in systems:
            one = each.get(system, {})
            cells = [cell(one, column) for column in COLUMNS]
            lines.append(
                f"| {name if system == systems[0] else ''} | {system} | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def cell(found: dict[str, Any], column: str) -> str:
    """One time, or why there is none."""
    if column not in found:
        problem = found.get("error")
        missing = next((each for each in COLUMNS if each not in found), None)
        if problem is None or column != missing:
            return "-"
        return problem if problem.startswith("> ") else "error"
    seconds = found[column]
    text = f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
    difference = found.get("difference", 0.0)
    if column != "gradient" or difference <= TOLERANCE:
        return text
    return (
        f"{text} ({'not a number' if math.isnan(difference) else f'differs by {difference:.0%}'})"
    )


def replace_table(text: str, path: Path) -> None:
    """Put the table between the markers of the page."""
    page = PAGE.read_text()
    block = f"<!-- times -->\n{text}\n\n([numbers](../bench/results/{path.name}))\n<!-- end -->"
    PAGE.write_text(re.sub(r"<!-- times -->.*<!-- end -->", lambda _: block, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
