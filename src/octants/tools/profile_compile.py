"""Runs a program and tells where its compilation takes its time: ``octants profile-compile``."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path

import llvmlite.binding as llvm

from octants.compile_profile import CompileProfile, profiled


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the entries there, too")
    text = "also the passes of LLVM that emit code, as LLVM times them"
    parser.add_argument("--llvm", action="store_true", help=text)
    parser.add_argument("script", help="a Python program that launches kernels")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")


def main(options: argparse.Namespace) -> int:
    """Run the program; its exit status, after a table."""
    llvm.set_time_passes(options.llvm)
    with profiled() as profile:
        status = _run(options.script, options.arguments)
    print(_report(profile))
    if options.llvm:
        print(llvm.report_and_reset_timings())
    if options.json is not None:
        options.json.write_text(json.dumps(profile.to_dict(), indent=1) + "\n")
    return status


def _run(script: str, arguments: list[str]) -> int:
    """Run a program as Python would."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _report(profile: CompileProfile) -> str:
    return str(profile) if profile.entries else "nothing was compiled"
