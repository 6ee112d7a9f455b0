"""Compiles recorded kernels for targets; LLVM may end the process.

    python -m tests.cross_compile.child JOBS LOG

Each line of JOBS is a target and the path of a kernel. What came of each is a line of LOG, so that
the job behind the last line there is what ended a process.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import traceback
import zlib
from dataclasses import replace
from pathlib import Path

from octants import pipeline
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.recursion_limit import deep_recursion
from octants.ir.cooperative_tasks import cooperates, sizes
from octants.ir.core import Module
from octants.options import Options
from octants.pass_context import Stage
from octants.target import Capabilities
from tests.cross_compile.recorded_kernels import RecordedKernel, read
from tests.cross_compile.targets import TARGETS
from tests.ir.parser import ParseError, parse

COMPILED, REFUSED, UNREADABLE, FAILED = "compiled", "refused", "unreadable", "failed"
_LARGE = re.compile(r"(?<=: f64 = constant<)(-?)[\d.]+e\+(?:3[89]|[4-9]\d|\d{3})(?=>)")
"""Numbers that f32 does not hold, or hardly."""
_MODULES = 8  # that are kept: the jobs of a kernel follow each other


@functools.cache
def _capabilities(name: str, chosen: Options) -> Capabilities:
    with TARGETS[name].backend() as backend:
        return backend.capabilities(chosen, None)


@functools.lru_cache(_MODULES)
def _kernel(path: str, has_f64: bool) -> tuple[RecordedKernel, Module]:
    """A kernel; where there is no f64, with f32 in its place, unless its bits are looked at."""
    kernel = read(Path(path))
    text = kernel.text
    if not has_f64 and "bitcast" not in text:
        text = _LARGE.sub(r"\g<1>1e38", text).replace("f64", "f32")
    return kernel, parse(text)


@functools.lru_cache(_MODULES)
def _finished(path: str, has_f64: bool, facts: Capabilities) -> Module:
    """The module of a kernel behind all passes; several targets may have the same facts."""
    kernel, module = _kernel(path, has_f64)
    stage = Stage(facts)
    if kernel.reversal is not None:
        module = pipeline.differentiate_reverse(module, stage, **kernel.reversal).module
    return pipeline.finish(module, stage, noalias=kernel.noalias)


def compile_kernel(name: str, path: str) -> tuple[str, str]:
    """What comes of a kernel on a target: an outcome, and text that is still to be checked."""
    target = TARGETS[name]
    try:
        kernel, module = _kernel(path, target.has_f64)
    except (ParseError, ValueError):  # it has an operation that only a test knows
        return UNREADABLE, ""
    chosen = replace(kernel.options, arch=target.arch, device=0)
    facts = _capabilities(name, chosen)
    subgroups = {sizes(task)[1] for task in module.tasks if cooperates(task)}
    if facts.blocks is None or not subgroups <= {facts.blocks.subgroup_size}:
        return REFUSED, ""
    try:
        finished = _finished(path, target.has_f64, facts)
        with target.backend() as backend:
            text = target.generate(backend, finished, chosen)
    except OctantsError as error:
        if error.diagnostic is not None and error.diagnostic.code in target.refusals:
            return REFUSED, ""
        raise
    target.finish(text, _level(kernel, name))
    return COMPILED, text


def _level(kernel: RecordedKernel, name: str) -> int:
    """The level of optimisation: 1, which takes twice as long as 0, for half of the kernels."""
    return zlib.crc32(f"{kernel.key} {name}".encode()) % 2


def main(jobs: str, log: str) -> None:
    """Run the jobs of a file, and check all texts of Metal at once, as far as they need that."""
    texts: dict[str, dict[str, str]] = {}
    with Path(log).open("a") as written:

        def report(name: str, path: str, outcome: str, said: str = "") -> None:
            written.write(json.dumps([name, path, outcome, said]) + "\n")
            written.flush()

        for line in Path(jobs).read_text().splitlines():
            name, path = line.split(" ", maxsplit=1)
            try:
                with deep_recursion(path):
                    outcome, text = compile_kernel(name, path)
            except Exception:
                report(name, path, FAILED, traceback.format_exc())
                continue
            if text and TARGETS[name].check_all is not None:
                texts.setdefault(name, {})[path] = text
            report(name, path, outcome)
        for name, by_path in texts.items():
            check = TARGETS[name].check_all
            assert check is not None
            for path, said in check(by_path).items():
                report(name, path, FAILED, said)


if __name__ == "__main__":
    main(*sys.argv[1:])
