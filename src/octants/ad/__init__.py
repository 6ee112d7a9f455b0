"""Derivatives over several launches, on the host: tapes, forward mode, custom gradients."""

# A tape records launches and host writes, saves what they overwrite, and reverses them last to
# first. The derivative of one kernel is a transformation of its module in `octants.autodiff`;
# `launch.derivative_variants` compiles it. The files:
#
# * `tape` is the recorder, with a fast path for launches that overwrite nothing (`fast_recording`).
#   Its entries are in `tape_entries`, the losses in `tape_losses`, the gradients of by-value
#   arguments in `scalar_argument_gradients`.
# * `overwrite_ledger` saves and restores the contents (`needed_contents`) that reverse kernels
#   need; `snapshot_report` says what was copied and why. `repeated_tapes` remembers it for tapes
#   that record the same launches again.
# * `checkpointed_loops` reverses a loop of launches in bounded memory: `snapshot_schedule` plans,
#   `checkpoint_snapshots` holds the state, `checkpointed_steps` runs the steps,
#   `step_repeatability` checks that they repeat.
# * `implicit` differentiates what solvers find, by the equation that they solve.
# * `forward_mode` computes tangents; `custom_gradients` has the decorators; `clear_gradients`
#   zeroes gradients.
# * `array_function` makes a function without side effects of kernels, with derivatives of first and
#   second order, for `value_and_gradient`, `jvp_vjp_hvp` and `jacobians`, and for `octants.torch`
#   and `octants.jax`. `array_function_signature` describes it, `array_library_protocol` is what it
#   asks of a library of arrays, `numpy_array_library` numpy's side. `tangents` computes tangents in
#   arrays of their own.
# * Checks: `untracked_writes`, `gradient_check`; `launch.lost_gradient_warnings` warns.

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.ad.clear_gradients import clear_all_gradients
from octants.ad.custom_gradients import grad_for, grad_replaced, no_grad
from octants.ad.forward_mode import FwdMode
from octants.ad.tape import Tape
from octants.deferred_import import names_of as _names_of

if TYPE_CHECKING:
    from octants.ad.checkpointed_loops import checkpointed
    from octants.ad.implicit import implicit
    from octants.ad.jacobians import hessian, jacobian
    from octants.ad.jvp_vjp_hvp import hvp, jvp, vjp
    from octants.ad.value_and_gradient import value_and_grad
else:
    _MODULES_OF_NAMES = {
        "checkpointed": "ad.checkpointed_loops",
        "hessian": "ad.jacobians",
        "hvp": "ad.jvp_vjp_hvp",
        "implicit": "ad.implicit",
        "jacobian": "ad.jacobians",
        "jvp": "ad.jvp_vjp_hvp",
        "value_and_grad": "ad.value_and_gradient",
        "vjp": "ad.jvp_vjp_hvp",
    }
    __getattr__ = _names_of(__name__, sources=_MODULES_OF_NAMES)

__all__ = [
    "FwdMode",
    "Tape",
    "checkpointed",
    "clear_all_gradients",
    "grad_for",
    "grad_replaced",
    "hessian",
    "hvp",
    "implicit",
    "jacobian",
    "jvp",
    "no_grad",
    "value_and_grad",
    "vjp",
]
