"""``quadrants.lang.impl``: the runtime, as far as Genesis looks into it."""

from __future__ import annotations

import octants
from octants import driver, options
from octants.data import host_access_events
from octants.types.scalars import DType


class Program:
    """``get_runtime().prog``."""

    def synchronize(self) -> None:
        """Wait for all launches; ``genesis/utils/array_class.py`` does after deferred fills."""
        octants.sync()


class PyQuadrants:
    """The state of Quadrants. Methods of the class may be replaced.

    ``genesis/utils/array_class.py`` wraps ``PyQuadrants.materialize`` and ``.clear``: what it has
    deferred while fields are declared - ``V_SCALAR_FROM`` fills 0-D fields - runs after the one,
    and is dropped by the other.
    """

    prog = Program()

    def materialize(self) -> None:
        """Called when fields have just been given their memory, before anything uses it."""

    def clear(self) -> None:
        """Called by `init` and `reset`, before the arrays end."""

    @property
    def default_fp(self) -> DType:
        """The float type of `init`.

        Kernels read it, as in ``qd.static(qd.lang.impl.get_runtime().default_fp == qd.f32)`` of
        ``genesis/engine/solvers/rigid/abd/forward_dynamics.py``.
        """
        return octants.cfg.default_fp

    @property
    def default_ip(self) -> DType:
        """The integer type of `init`."""
        return octants.cfg.default_ip


def _unwrap(array: octants.Tensor) -> octants.Tensor:
    """``Tensor._unwrap()``: what is wrapped, here the array itself.

    ``genesis/utils/misc.py`` says ``value = value._unwrap()`` before it exports an array.
    """
    return array


octants.Tensor._unwrap = _unwrap  # type: ignore[attr-defined]
_runtime = PyQuadrants()


def _materialize() -> None:
    _runtime.materialize()  # which may have been replaced


host_access_events.after_allocation.observe(_materialize)


def get_runtime() -> PyQuadrants:
    """The only one; ``genesis/utils/geom.py`` asks it for the float type."""
    return _runtime


def get_max_shared_memory_bytes(*, is_lowerbound_ok: bool) -> int:  # noqa: ARG001
    """The bytes of arrays that a block can share, at least.

    ``genesis/utils/misc.py`` chooses the tiles of its GPU solvers by it.
    """
    chosen = options.current()
    blocks = driver.capabilities(chosen).blocks
    return 0 if blocks is None else blocks.shared_bytes
