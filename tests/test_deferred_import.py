"""Modules that are imported at their first use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from octants.deferred_import import Deferred


def test_a_module_whose_import_failed_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of signals may use what is being imported, and end the import by an exception."""
    name = "imported_when_it_is_used"
    (tmp_path / f"{name}.py").write_text(
        "import sys\nbefore = 1\nsys.in_the_middle()\nafter = 2\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = Deferred(name)

    def use() -> None:
        assert module.before == 1
        assert module.after == 2

    monkeypatch.setattr(sys, "in_the_middle", use, raising=False)
    with pytest.raises(AttributeError, match="after"):
        use()
    monkeypatch.setattr(sys, "in_the_middle", int)
    use()
    monkeypatch.delitem(sys.modules, name)
    use()  # it is not imported again
    assert name not in sys.modules
