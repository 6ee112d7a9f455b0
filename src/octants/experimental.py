"""Names that programs for older versions of Quadrants and Taichi use."""

from __future__ import annotations

from octants.api import real_func as real_func
