"""Machines that differ from the one that tests run on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from octants.backends.base import Backend
from octants.options import Options
from octants.runtime.device import Device
from octants.target import Capabilities


def pretend(patch: pytest.MonkeyPatch, backend: type[Backend], **facts: Any) -> None:
    """Have a backend give other facts of its machine."""
    given = backend.machine

    def machine(self: Backend, chosen: Options, device: Device | None) -> Capabilities:
        return replace(given(self, chosen, device), **facts)

    patch.setattr(backend, "machine", machine)
