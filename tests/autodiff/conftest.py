"""What the tests of recording plans share."""

from __future__ import annotations

from typing import Any

import pytest

from octants.autodiff import reverse
from octants.autodiff.plan.recording_plan import RecordingPlan


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[RecordingPlan]:
    """The plans of all tasks that are reversed."""
    found: list[RecordingPlan] = []
    original = reverse.plan

    def planned(*args: Any) -> RecordingPlan:
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(reverse, "plan", planned)
    return found
