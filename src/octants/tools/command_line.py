"""The commands: ``python -m octants demo|info|cache|profile-compile|fuzz``."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from octants.demos import cloth
from octants.demos.lynx_hare import command as lynx_hare
from octants.diagnostics.exceptions import OctantsError
from octants.tools import cache_command, info_command, profile_compile
from octants.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status."""
    commands = parser()
    options, rest = commands.parse_known_args(arguments)
    if options.run is None:
        commands.print_help()
        return 0
    if rest and options.run is not _fuzz:
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    options.rest = rest
    try:
        status: int | None = options.run(options)
    except OctantsError as error:
        print(f"octants: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("octants: interrupted", file=sys.stderr)
        return 130
    return status or 0


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="octants", description="Kernels with right gradients.")
    top.add_argument("--version", action="version", version=f"octants {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    top.set_defaults(run=None)

    demos = commands.add_parser("demo", help="run a demo").add_subparsers(
        title="demos", required=True, metavar="NAME"
    )
    text = "fit a differential equation to measured data by its exact gradient"
    demo = demos.add_parser("lynx-hare", help=text, description=text.capitalize() + ".")
    lynx_hare.add_options(demo)
    demo.set_defaults(run=lynx_hare.main)
    text = "find the wind that brings a cloth to a place, through all time steps"
    demo = demos.add_parser("cloth", help=text, description=text.capitalize() + ".")
    demo.set_defaults(run=_cloth)

    text = "versions, processor, GPUs, optional packages"
    info = commands.add_parser("info", help=text, description=f"Print {text}.")
    info.set_defaults(run=_information)

    text = "where the compilation of a program takes its time"
    profile = commands.add_parser(
        "profile-compile", help=text, description=f"Run a program, and print {text}."
    )
    profile_compile.add_options(profile)
    profile.set_defaults(run=profile_compile.main)

    text = "show or clear the compiled kernels that are kept on disk"
    cache = commands.add_parser("cache", help=text, description=f"{text.capitalize()}.")
    cache_command.add_options(cache)
    cache.set_defaults(run=cache_command.main)

    text = (
        "in a checkout: compare random programs with an oracle; options of python -m octants.fuzz"
    )
    fuzz = commands.add_parser("fuzz", help=text, add_help=False)
    fuzz.set_defaults(run=_fuzz)
    return top


def _cloth(_: argparse.Namespace) -> None:
    cloth.main()


def _information(_: argparse.Namespace) -> None:
    for line in info_command.lines():
        print(line)


def _fuzz(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("octants.fuzz") is None:
        print("octants fuzz: not in the installed package; run it from a checkout", file=sys.stderr)
        return 2
    command = (sys.executable, "-m", "octants.fuzz", *options.rest)
    return subprocess.run(command, check=False).returncode
