"""Values as bytes."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from octants.cache import pickling
from octants.ir.core import Companion
from octants.target import Arch


def by_name(self: Any, _: int) -> Any:
    """What Python 3.11.0 to 3.11.3 do."""
    return getattr, (type(self), self.name)


@pytest.mark.parametrize("member", [Arch.cuda, Companion.ADJOINT], ids=str)
def test_members_of_enumerations_on_all_pythons(
    member: enum.Enum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enum.Enum, "__reduce_ex__", by_name)
    data = pickling.to_bytes([member, member], lambda _: None)
    assert data is not None
    assert pickling.from_bytes(data, lambda _: None) == [member, member]
