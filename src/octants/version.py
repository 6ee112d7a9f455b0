"""The version of the package: the build and programs read it here."""

from __future__ import annotations

__version__ = "0.1.0"
