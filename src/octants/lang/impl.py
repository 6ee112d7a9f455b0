"""``lang.impl`` of the peers, for programs that look into the runtime.

It has `get_runtime` and `current_cfg`, and the words of the language that are imported from there.
What it stands for lies above this package, and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.deferred_import import Deferred
from octants.deferred_import import names_of as _names_of
from octants.lang.directives import grouped as grouped
from octants.lang.directives import ndrange as ndrange
from octants.lang.directives import static as static
from octants.lang.directives import static_assert as static_assert
from octants.lang.directives import static_print as static_print

_octants, _runtime = Deferred("octants"), Deferred("octants.compat.quadrants.lang.impl")
_MODULES_OF_NAMES = {
    "axes": "data.axes",
    "field": "data.field_factories",
    "ndarray": "data.ndarray",
    "root": "data.tree_roots",
}


def current_cfg() -> Any:
    """The options in force, as attributes: ``qd.cfg``."""
    return _octants.cfg


def get_runtime() -> Any:
    """The runtime, with the default types and ``prog.synchronize()``; see `octants.compat`."""
    return _runtime.get_runtime()


if not TYPE_CHECKING:
    __getattr__ = _names_of(__name__, sources=_MODULES_OF_NAMES)
