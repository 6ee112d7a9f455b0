"""Times the programs of examples/ beside other systems: ``python bench/examples.py``.

Each program runs in each system with nothing but its import changed, in a process of its own, on
one thread, in f32. The first call, with the set-up before it, compiles; of the calls after it the
best one counts (`--clock cpu` on a busy machine). A gradient that differs from Octants' by more
than 1 % of its largest element is marked with the difference. The table goes to the screen and to
bench/results; with ``--docs`` also into docs/examples.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe_machine

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
    parser.add_argument("--worker", nargs=2, metavar=("SYSTEM", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.names[0], *options.worker, options)
        return
    results = {name: measure(name, options) for name in options.names}
    report = {"machine": describe_machine(), "results": results}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"examples-{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    text = table(report, options.systems)
    print(text)
    if options.docs:
        replace_table(text, path)


def work(name: str, system: str, path: str, options: argparse.Namespace) -> None:
    """Run one program in one system; writes times and the gradient to a file."""
    qd = __import__(system)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    source = (EXAMPLES / f"{name}.py").read_text()
    changed = source.replace("import octants as qd", f"import {system} as qd")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"  # these systems read the source of kernels
        file.write_text(changed)
        module = types.ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        qd.init(arch=qd.cpu, default_fp=qd.f32, cpu_max_num_threads=1, **OPTIONS[system])
        exec(compile(changed, str(file), "exec"), module.__dict__)
        result: dict[str, Any] = {}
        try:
            begin = clock()
            forward, backward = module.workload()  # type: ignore[attr-defined]
            forward()
            result["first"] = clock() - begin
            result["steady"] = best(forward, clock, options.seconds)
            store(path, result)
            if backward is not None:
                result["first gradient"], found = timed(backward, clock)
                gradient = np.array(found, copy=True)
                store(path, result, gradient)
                result["gradient"] = best(backward, clock, options.seconds)
                store(path, result, gradient)
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            store(path, result)


def store(path: str, result: dict[str, Any], gradient: Any = ()) -> None:
    """Write what is known so far, which counts if the process has to be ended."""
    new = Path(f"{path}.new.npz")
    np.savez(new, result=json.dumps(result), gradient=np.array(gradient))
    new.replace(path)


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
    found: dict[str, dict[str, Any]] = {}
    reference = None
    for system in options.systems:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.npz"
            command = [sys.executable, __file__, name, "--worker", system, str(path)]
            command += ["--seconds", str(options.seconds), "--clock", options.clock]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            problem = {}
            try:
                run = subprocess.run(
                    command,
                    check=False,
                    capture_output=True,
                    text=True,
                    timeout=options.patience,
                    env=environment,
                )
            except subprocess.TimeoutExpired:
                problem = {"error": f"> {options.patience:g} s"}
            else:
                if not path.exists():
                    lines = run.stderr.strip().splitlines() or [f"ended with {run.returncode}"]
                    problem = {"error": lines[-1][:200]}
            if not path.exists():
                found[system] = problem
                continue
            stored = np.load(path)
            found[system] = {**json.loads(str(stored["result"])), **problem}
            gradient = stored["gradient"].astype(float)
        if gradient.size and reference is None:
            reference = gradient
        elif gradient.size:
            largest = float(np.abs(reference).max())
            found[system]["difference"] = float(np.abs(gradient - reference).max()) / largest
        print(f"  {name} in {system}: {found[system]}", flush=True)
    return found


def table(report: dict[str, Any], systems: list[str]) -> str:
    """The results as a table of Markdown."""
    lines = [
        f"| program | system | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for name, found in report["results"].items():
        for system in systems:
            one = found.get(system, {})
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
    if column == "gradient" and found.get("difference", 0.0) > TOLERANCE:
        text += f" (differs by {found['difference']:.0%})"
    return text


def replace_table(text: str, path: Path) -> None:
    """Put the table between the markers of the page."""
    page = PAGE.read_text()
    block = f"<!-- times -->\n{text}\n\n([numbers](../bench/results/{path.name}))\n<!-- end -->"
    PAGE.write_text(re.sub(r"<!-- times -->.*<!-- end -->", lambda _: block, page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
