"""What each pass changes in the programs of examples/ and the benchmarks, and what that is worth.

    python bench/passes.py [PROGRAM ...] [--worth [PASS ...]] [--seconds 60]

For each pass of `octants.pipeline`: how many modules it was given, primal and derivatives, how many
of them it changed, how many operations went and came, and in which programs. Passes of GPUs are run
on the same modules as if for a GPU; what they are worth has to be measured on one.

``--worth`` times programs without a pass, and with all: 1.10 says that the run without it takes
10 % more of the process's time. One process compiles a program with all passes, and without each
of those that change it on the CPU; then these take turns for so many ``--seconds``, and the least
time of each counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import octants as qd
import problems
from octants import pipeline
from octants.ir.cloning import copy_module
from octants.ir.core import Block, Module
from octants.pass_context import Stage
from octants.pipeline import Pass
from octants.target import Blocks, Capabilities

os.environ["BENCH_SYSTEM"] = "octants"
from systems import fields

EXAMPLES = Path(__file__).parent.parent / "examples"
PHASES = ("LOWER", "FINISH")
GPU = Capabilities(
    contracts=True,
    fuses=True,
    approximates_quotients=True,
    fills=2 * 132 * 2048,
    splits=True,
    groups_sums=True,
    exchanges_factors=True,
    allots_registers=True,
    keeps_calls=True,
    estimate_sums=8,
    blocks=Blocks(),
)
"""As large as an H100, through CUDA."""
FIXED = Capabilities(contracts=True, serialises_blocks=True, deterministic=True)
MACHINES = {"cpu": None, "gpu": GPU, "deterministic": FIXED}
NEEDED = ("outline_tasks",)
"""Passes without which nothing can be compiled."""


@dataclass
class Changes:
    """What a pass did to the modules that it was given."""

    given: int = 0
    changed: int = 0
    removed: int = 0
    added: int = 0
    programs: list[str] = field(default_factory=list)

    def add(self, other: Changes) -> None:
        """Count what has been counted of another program, too."""
        self.given += other.given
        self.changed += other.changed
        self.removed += other.removed
        self.added += other.added
        self.programs += other.programs

    def note(self, program: str, before: Counter[str], after: Counter[str]) -> None:
        """Count one module."""
        self.given += 1
        removed, added = (before - after).total(), (after - before).total()
        if removed or added:
            self.changed += 1
            self.removed += removed
            self.added += added
            if program not in self.programs:
                self.programs.append(program)


def operations(module: Module) -> Counter[str]:
    """The operations of a module by what they do, and where; options of tasks count as some."""
    found = Counter(name for block in module.blocks() for name in _nested(block, 0))
    found.update(f"{task.name}{task.options}" for task in module.tasks)
    return found


def _nested(block: Block, depth: int) -> Iterator[str]:
    for op in block.ops:
        yield f"{depth} {op.NAME}{op.attributes}{len(op.results)}"
        for region in op.regions:
            yield from _nested(region, depth + 1)


class Counting:
    """Replaces the passes of the pipeline by ones that are counted."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.found: dict[str, Changes] = {}
        self.machine = "cpu"
        self._rows = {phase: self._counted(getattr(pipeline, phase)) for phase in PHASES}
        for phase, rows in self._rows.items():
            setattr(pipeline, phase, rows)
        self._finish = pipeline.finish
        pipeline.finish = self.finish

    def _counted(self, rows: tuple[Pass, ...]) -> tuple[Pass, ...]:
        return tuple(replace(row, run=self._wrap(row)) for row in rows)

    def _wrap(self, row: Pass) -> Callable[[Module, Capabilities], None]:
        def run(module: Module, machine: Capabilities) -> None:
            before = operations(module)
            row.run(module, machine)
            changes = self.found.setdefault(f"{row.name} {self.machine}", Changes())
            changes.note(self.program, before, operations(module))

        return run

    def finish(self, module: Module, stage: Stage, *, noalias: bool = False) -> Module:
        """Finish a module for each of the machines; the result is for this one."""
        for name, machine in MACHINES.items():
            self.machine = name
            if machine is not None:
                self._finish(copy_module(module), Stage(machine), noalias=noalias)
        self.machine = "cpu"
        return self._finish(module, stage, noalias=noalias)


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Take a pass out of the pipeline, for what is compiled meanwhile."""
    before = {phase: getattr(pipeline, phase) for phase in PHASES}
    for phase, rows in before.items():
        setattr(pipeline, phase, tuple(row for row in rows if row.name != name))
    try:
        yield
    finally:
        for phase, rows in before.items():
            setattr(pipeline, phase, rows)


def start() -> None:
    """Start on one thread, in f32, with an empty cache."""
    options: dict[str, Any] = {"offline_cache": False, "log_level": "error"}
    qd.init(arch=qd.cpu, default_fp=qd.f32, cpu_max_num_threads=1, **options)


def load(name: str) -> list[Callable[[], Any]]:
    """The forward run of a program, and its gradient if it has one."""
    if name in problems.FULL:
        program = fields.PROGRAMS[name](problems.make(name, *problems.FULL[name]), "cpu")
        program.seed()
        return [program.forward, program.backward]
    path = EXAMPLES / f"{name}.py"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return [run for run in module.workload() if run is not None]


def count(name: str) -> None:
    """Run a program, and print what its passes changed."""
    counting = Counting(name)
    start()
    for run in load(name):
        run()
    print(json.dumps({key: asdict(value) for key, value in counting.found.items()}))


def compare(name: str, passes: Sequence[str], budget: float) -> None:
    """Print, for each pass, the times of a program without it over those with all passes."""
    start()
    variants = {}
    for each in ("", *passes):  # no pass is called ""
        with without(each):
            variants[each] = load(name)
            for run in variants[each]:
                run()
    best = {each: [math.inf] * len(runs) for each, runs in variants.items()}
    begin = time.process_time()
    while time.process_time() - begin < budget or math.inf in best[""]:
        for each, runs in variants.items():
            best[each] = [min(x, seconds(run)) for x, run in zip(best[each], runs, strict=True)]
    everything = best.pop("")
    print(
        json.dumps(
            {
                each: [x / max(y, 1e-9) for x, y in zip(times, everything, strict=True)]
                for each, times in best.items()
            }
        )
    )


def seconds(run: Callable[[], Any]) -> float:
    """The time of the process that a run takes."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def ask(name: str, *more: str) -> Any:
    """What a worker prints."""
    command = [sys.executable, __file__, name, *more]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Count, and time if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*sorted(path.stem for path in EXAMPLES.glob("*.py")), *problems.FULL]
    parser.add_argument("names", nargs="*", default=names, help=f"some of {', '.join(names)}")
    parser.add_argument("--worth", nargs="*", help="time these passes, or all that change anything")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="to time a program, with --worth"
    )
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--compare", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        count(options.names[0])
        return
    if options.compare:
        compare(options.names[0], options.compare, options.seconds)
        return
    total: dict[str, Changes] = {}
    worth: dict[str, list[str]] = {}
    for name in options.names:
        counted = {key: Changes(**found) for key, found in ask(name, "--count").items()}
        for key, one in counted.items():
            total.setdefault(key, Changes()).add(one)
        if options.worth is None:
            continue
        timed = [row for row in optional() if counted.get(f"{row} cpu", Changes()).changed]
        timed = [row for row in timed if not options.worth or row in options.worth]
        if timed:
            found = ask(name, "--seconds", str(options.seconds), "--compare", *timed)
            for row, ratios in found.items():
                cell = f"{name} {' '.join(f'{ratio:.2f}' for ratio in ratios)}"
                worth.setdefault(row, []).append(cell)
                print(f"{row}: {cell}", file=sys.stderr, flush=True)
    print(table(total, worth))


def optional() -> list[str]:
    """The passes without which there is a program."""
    rows = dict.fromkeys(row.name for phase in PHASES for row in getattr(pipeline, phase))
    return [row for row in rows if row not in NEEDED]


def table(total: dict[str, Changes], worth: dict[str, list[str]]) -> str:
    """A row for each pass and machine, as Markdown."""
    lines = [
        "| pass | machine | modules | changed | removed | added | programs | without it |",
        "|---|---|---:|---:|---:|---:|---|---|",
    ]
    rows = dict.fromkeys(row.name for phase in PHASES for row in getattr(pipeline, phase))
    for row in rows:
        for machine in MACHINES:
            found = total.get(f"{row} {machine}")
            if found is None:
                continue
            cells = [row, machine, found.given, found.changed, found.removed, found.added]
            cells += [", ".join(found.programs)]
            cells += [", ".join(worth.get(row, ())) if machine == "cpu" else ""]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
