"""From Python functions to modules. `build` is the entry point."""

from __future__ import annotations

from octants.frontend.build import Built, build
from octants.types.compile_time_reads import Read

__all__ = ["Built", "Read", "build"]
