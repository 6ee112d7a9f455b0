"""What each pass changes in the programs of examples/, and what that is worth.

    python bench/passes.py [PROGRAM ...] [--worth] [--markdown]

For each pass of `octants.pipeline`: how many modules it was given, primal and derivatives, how many
of them it changed, how many operations went and came, and in which programs. Passes of GPUs are run
on the same modules as if for a GPU; what they are worth has to be measured on one. ``--worth``
times each program that a pass changes without that pass, and with it: a value of 1.10 says that the
run without it takes 10 % more of the process's time (the least of rounds in turn).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import octants as qd
from octants import pipeline
from octants.ir.core import Module
from octants.ir.rewriter import copy_module
from octants.pipeline import Pass
from octants.pipeline_stage import Stage
from octants.target import Blocks, Capabilities

EXAMPLES = Path(__file__).parent.parent / "examples"
PHASES = ("LOWER", "FINISH")
GPU = Capabilities(contracts=True, fills=2 * 132 * 2048, splits=True, blocks=Blocks())
"""As large as an H100."""
FIXED = Capabilities(contracts=True, serialises_blocks=True, deterministic=True)
MACHINES = {"cpu": None, "gpu": GPU, "deterministic": FIXED}
ROUNDS = 5


@dataclass
class Changes:
    """What a pass did to the modules that it was given."""

    given: int = 0
    changed: int = 0
    removed: int = 0
    added: int = 0
    programs: list[str] = field(default_factory=list)

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
    """The operations of a module by what they do; options of tasks count as some."""
    found = Counter(f"{op.NAME}{op.attributes}{len(op.results)}" for op in module.walk())
    found.update(f"{task.name}{task.options}" for task in module.tasks)
    return found


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


def leave_out(name: str) -> None:
    """Take a pass out of the pipeline."""
    for phase in PHASES:
        rows = getattr(pipeline, phase)
        setattr(pipeline, phase, tuple(row for row in rows if row.name != name))


def load(name: str) -> tuple[Callable[[], Any], Callable[[], Any] | None]:
    """The forward run and the gradient of a program, on one thread in f32."""
    path = EXAMPLES / f"{name}.py"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    options = {"offline_cache": False, "log_level": "error", "cpu_max_num_threads": 1}
    qd.init(arch=qd.cpu, default_fp=qd.f32, **options)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    forward, backward = module.workload()
    return forward, backward


def work(name: str, without: str | None, count: bool) -> None:
    """Run a program; print what its passes changed, or the seconds of its two runs."""
    counting = Counting(name) if count else None
    if without:
        leave_out(without)
    runs = [run for run in load(name) if run is not None]
    for run in runs:
        run()
    if counting is not None:
        print(json.dumps({key: asdict(value) for key, value in counting.found.items()}))
        return
    print(json.dumps([min(seconds(run) for _ in range(3)) for run in runs]))


def seconds(run: Callable[[], Any]) -> float:
    """The time of the process that a run takes."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def ask(name: str, *more: str) -> Any:
    """What a worker prints."""
    command = [sys.executable, __file__, name, "--worker", *more]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def worth(row: str, programs: Collection[str]) -> str:
    """The time without a pass over that with it: forward and gradient of each program."""
    cells = []
    for name in programs:
        best: dict[bool, list[float]] = {}
        for _ in range(ROUNDS):
            for without in (False, True):
                found = ask(name, *(("--without", row) if without else ()))
                best[without] = list(map(min, zip(found, best.get(without, found), strict=True)))
        ratios = [w / max(o, 1e-9) for o, w in zip(best[False], best[True], strict=True)]
        cells.append(f"{name} {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    return ", ".join(cells)


def main() -> None:
    """Count, and time if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    parser.add_argument("names", nargs="*", default=names, help=f"some of {', '.join(names)}")
    parser.add_argument("--worth", nargs="*", help="time these passes, or all that change anything")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--without", help=argparse.SUPPRESS)
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.names[0], options.without, options.count)
        return
    total: dict[str, Changes] = {}
    for name in options.names:
        for key, changes in ask(name, "--count").items():
            found = total.setdefault(key, Changes())
            one = Changes(**changes)
            for number in ("given", "changed", "removed", "added"):
                setattr(found, number, getattr(found, number) + getattr(one, number))
            found.programs += one.programs
    print(table(total, options.worth))


def table(total: dict[str, Changes], timed: list[str] | None) -> str:
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
            is_timed = timed is not None and (row in timed or not timed) and machine == "cpu"
            cells = [row, machine, found.given, found.changed, found.removed, found.added]
            cells += [", ".join(found.programs)]
            cells += [worth(row, found.programs) if is_timed and found.programs else ""]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
