"""Octants on a fake Metal, whose kernels the CPU runs: ``init(arch=qd.metal)`` on any machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import octants as qd
from octants import driver
from octants.codegen.structured.features import Features
from octants.diagnostics.exceptions import OctantsError
from octants.runtime.metal import context
from tests.metal import wider
from tests.metal.fake_metal import FakeMetal


def install(
    patch: pytest.MonkeyPatch, fake: FakeMetal | None = None, *, is_wider: bool = False
) -> FakeMetal:
    """Have the runtime find a fake Metal, which has wider types if asked for.

    It lists the errors of kernels that need more than Metal has, in `refusals`.
    """
    fake = fake or FakeMetal()
    require = Features.require

    def noted(self: Features, name: str) -> None:
        try:
            require(self, name)
        except OctantsError as error:
            fake.refusals.append(str(error))
            raise

    patch.setattr(Features, "require", noted)
    library = fake.library()
    if is_wider:
        wider.install(patch)
    patch.setattr(context, "library", lambda: library)
    patch.setattr(driver, "_artifacts", {})
    patch.setenv("OCTANTS_OFFLINE_CACHE", "0")
    return fake


@contextlib.contextmanager
def emulated_metal(fake: FakeMetal | None = None) -> Iterator[FakeMetal]:
    """Lets ``init(arch=metal)`` start on a fake Metal, which must not be used in a wrong way."""
    with pytest.MonkeyPatch.context() as patch:
        fake = install(patch, fake)
        try:
            yield fake
        finally:
            qd.reset()
    assert not fake.problems, fake.problems[0]
