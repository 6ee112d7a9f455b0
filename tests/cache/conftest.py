"""A cache for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.sessions import Sessions


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)
