"""Times the programs of examples/ beside other systems: ``python bench/examples.py``.

Each program runs in each system with nothing but its import changed, in processes of its own, in
f32: on one thread and on two of the CPU, on Vulkan, and with ``--on CUDA`` there. The runs of the
systems alternate, and the least time of all rounds counts (`--clock cpu` on a busy machine; two
threads always go by the wall clock). The start is the import of a system and `init`. The first
call, with the set-up before it, compiles. A gradient that
differs from Octants' by more than 1 % of its largest element is marked with the difference.
The tables go to the screen and to bench/results; with ``--docs`` they also replace those of
docs/examples.md.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
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
from processes import with_bytecode
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
DEVICES: dict[str, tuple[str, dict[str, Any]]] = {
    "one thread": ("cpu", {"cpu_max_num_threads": 1}),
    "two threads": ("cpu", {"cpu_max_num_threads": 2}),
    "Vulkan": ("vulkan", {}),
    "CUDA": ("cuda", {}),
}
"""The arch of each table, and what `init` gets beside it."""
WITHOUT_GPU = ("one thread", "two threads", "Vulkan")  # a driver of Vulkan may run on the CPU
TOLERANCE = 1e-2
LIBRARIES = ("torch", "jax")
"""What some programs import while they run. The time is not that of a system, and Quadrants also
imports torch when it starts, so torch is always there."""
CLOCKS = "cpu: the time of the processes, for a busy machine"
COLUMNS = ("start", "first", "steady", "first gradient", "gradient")


def main() -> None:
    """Measure what the command line asks for, or one program as a worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="some of them (all)")
    parser.add_argument("--folder", type=Path, default=EXAMPLES, help="where the programs are")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--on", nargs="+", choices=DEVICES, default=WITHOUT_GPU)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help=CLOCKS)
    parser.add_argument("--seconds", type=float, default=2.0, help="for repeated calls, each")
    parser.add_argument("--patience", type=float, default=400.0, help="for a program in a system")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/examples.md")
    parser.add_argument("--rounds", type=int, default=3, help="of all systems in turn")
    parser.add_argument("--worker", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.names = options.names or sorted(path.stem for path in options.folder.glob("*.py"))
    if options.worker:
        work(options.names[0], options.worker, options)
        return
    compileall.compile_dir(HERE.parent / "src", quiet=2)  # as the others are when installed
    results = {
        device: {name: measure(name, device, options) for name in options.names}
        for device in options.on
    }
    found = {"machine": describe_machine(), "clock": options.clock, "results": results}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"examples-{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    tables = {
        f"{device[0].upper()}{device[1:]}": table(each, options.systems)
        for device, each in results.items()
    }
    print("\n\n".join(f"### {title}\n\n{text}" for title, text in tables.items()))
    if options.docs:
        PAGE.write_text(replace_tables(PAGE.read_text(), tables, path.name))


def work(name: str, system: str, options: argparse.Namespace) -> None:
    """Run one program in one system; reports times and the gradient."""
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    source = (options.folder / f"{name}.py").read_text()
    for library in LIBRARIES:
        if library == "torch" or f"import {library}" in source:
            with contextlib.suppress(ImportError):
                __import__(library)
    changed = source.replace("import octants as qd", f"import {system} as qd")
    if system != "octants":  # annotations for type checkers, in the words of the others
        changed = re.sub(r"NDArray\[Any, Literal\[(\d)\]\]", r"ndarray(ndim=\1)", changed)
        changed = changed.replace("qd.Template", "qd.template()")
    if system == "taichi":  # it does not understand annotations that are text
        changed = changed.replace("from __future__ import annotations\n", "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"  # these systems read the source of kernels
        file.write_text(changed)
        module = types.ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        arch, more = DEVICES[options.on[0]]
        begin = clock()
        qd = __import__(system)
        qd.init(arch=getattr(qd, arch), default_fp=qd.f32, **more, **OPTIONS[system])
        result: dict[str, Any] = {"start": clock() - begin}
        exec(compile(changed, str(file), "exec", dont_inherit=True), module.__dict__)
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


def measure(name: str, device: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What each system took, and how far its gradient is from that of the first one."""
    found: dict[str, dict[str, Any]] = {system: {} for system in options.systems}
    for _ in range(options.rounds):
        for system in options.systems:
            if "error" not in found[system]:
                found[system] = least(found[system], run(name, system, device, options))
    gradients = {system: np.array(one.pop("found", [])) for system, one in found.items()}
    reference = gradients[options.systems[0]]
    for system, gradient in gradients.items():
        if gradient.size and gradient.size == reference.size and gradient is not reference:
            largest = float(np.abs(reference).max())
            found[system]["difference"] = float(np.abs(gradient - reference).max()) / largest
        print(f"  {name} in {system}, {device}: {found[system]}", flush=True)
    return found


def run(name: str, system: str, device: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one process found."""
    command = [sys.executable, __file__, name, "--worker", system, "--on", device]
    command += ["--folder", str(options.folder)]
    clock = "wall" if device == "two threads" else options.clock  # a thread that waits is busy
    command += ["--seconds", str(options.seconds), "--clock", clock]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return outcome(command, options.patience, with_bytecode() | environment)


def least(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The least times of two rounds, and what else the later one found."""
    times = {key: min(now[key], before.get(key, now[key])) for key in COLUMNS if key in now}
    return {**before, **now, **times}


def table(results: dict[str, Any], systems: list[str]) -> str:
    """The results of a device as a table of Markdown."""
    lines = [
        f"| program | system | {' | '.join(COLUMNS)} |",
        f"|---|---|{'---|' * len(COLUMNS)}",
    ]
    for name, each in results.items():
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


def replace_tables(page: str, tables: dict[str, str], numbers: str) -> str:
    """The page with these tables by their titles, and those of other titles that it has."""
    before, rest = page.split("<!-- times -->\n")
    old, after = rest.split("<!-- end -->")
    sections = dict(part.split("\n\n", 1) for part in old.strip().split("### ") if part)
    source = f"([numbers](../bench/results/{numbers}))"
    sections |= {title: f"{text}\n\n{source}" for title, text in tables.items()}
    block = "\n\n".join(f"### {title}\n\n{text.strip()}" for title, text in sections.items())
    return f"{before}<!-- times -->\n{block}\n<!-- end -->{after}"


if __name__ == "__main__":
    main()
