"""The version of the package: read here by the build, and by whoever asks at run time."""

from __future__ import annotations

__version__ = "0.1.0"
