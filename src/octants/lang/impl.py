"""``lang.impl`` of the peers, for programs that look into the runtime.

It has `get_runtime` and `current_cfg`, and the words of the language that are imported from there.
What it stands for lies above this package, and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.diagnostics.absent_names import attribute_error
from octants.lang.syntax import grouped as grouped
from octants.lang.syntax import ndrange as ndrange
from octants.lang.syntax import static as static
from octants.lang.syntax import static_assert as static_assert
from octants.lang.syntax import static_print as static_print

_octants, _runtime = Deferred("octants"), Deferred("octants.compat.quadrants.lang.impl")
_OF_OCTANTS = ("axes", "field", "ndarray", "root")


def current_cfg() -> Any:
    """The options in force, as attributes: ``qd.cfg``."""
    return _octants.cfg


def get_runtime() -> Any:
    """The runtime, with the default types and ``prog.synchronize()``; see `octants.compat`."""
    return _runtime.get_runtime()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _OF_OCTANTS:
            return getattr(_octants, name)
        raise attribute_error(__name__, name)
