"""``python -m octants.compat program.py ...``: run a program in which Quadrants is Octants.

``python -m octants.compat -m module ...`` runs a module, as Python's own ``-m`` does.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from octants.compat import install

USAGE = "usage: python -m octants.compat [-m module | program.py] [argument ...]"


def main(arguments: list[str]) -> None:
    """Run what the arguments name; they are its ``sys.argv``."""
    is_module = arguments[:1] == ["-m"]
    rest = arguments[1:] if is_module else arguments
    if not rest or rest[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if rest else sys.stderr)
        sys.exit(0 if rest else 2)
    install()
    sys.argv = rest
    if is_module:
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(rest[0]).resolve().parent))
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
