"""Sets gradients and duals to zero."""

from __future__ import annotations

from octants.data import current
from octants.types.companions import Companion
from octants.types.enums import SNodeGradType

_COMPANIONS = {
    SNodeGradType.PRIMAL: Companion.PRIMAL,
    SNodeGradType.ADJOINT: Companion.ADJOINT,
    SNodeGradType.DUAL: Companion.TANGENT,
}


def clear_gradients(companion: Companion) -> None:
    """Set this companion of all fields and ndarrays of ours to zero, unseen by any tape."""
    for array in current.runtime().arrays(companion):
        if array.is_allocated:
            array.clear()


def clear_all_gradients(gradient_type: SNodeGradType = SNodeGradType.ADJOINT) -> None:
    """Set all gradients of fields and ndarrays to zero; with ``DUAL``, all duals.

    The gradients of torch tensors are torch's: they stay.
    """
    clear_gradients(_COMPANIONS[gradient_type])
