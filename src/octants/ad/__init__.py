"""Derivatives on the host: tapes, forward mode, functions with gradients of their own."""

from __future__ import annotations

from octants.ad.checkpointed import checkpointed
from octants.ad.clear_gradients import clear_all_gradients
from octants.ad.custom import grad_for, grad_replaced, no_grad
from octants.ad.forward_mode import FwdMode
from octants.ad.tape import Tape

__all__ = [
    "FwdMode",
    "Tape",
    "checkpointed",
    "clear_all_gradients",
    "grad_for",
    "grad_replaced",
    "no_grad",
]
