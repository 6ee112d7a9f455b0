"""Derivatives over several launches, on the host: tapes, forward mode, custom gradients."""

# The derivative of one kernel is a transformation of its module in `octants.autodiff`;
# `launch.gradients.derivative_variants` compiles it. The folders, each with a tour of its own:
#
# * `tapes` record launches and host writes, and reverse them last to first. `overwrites` saves what
#   they overwrite, and remembers it for tapes that record the same launches again.
# * `checkpoints` reverses a loop of launches in bounded memory.
# * `functions` makes functions without side effects of kernels, with derivatives of first and
#   second order, for users and for `octants.torch` and `octants.jax`; `array_libraries` is what it
#   asks of a library of arrays.
#
# `forward_mode` computes tangents in the duals of arrays, `tangents` in arrays of their own.
# `custom_gradients` has the decorators; `clear_gradients` zeroes gradients.

from __future__ import annotations

from typing import TYPE_CHECKING

from octants.ad.clear_gradients import clear_all_gradients
from octants.ad.custom_gradients import grad_for, grad_replaced, no_grad
from octants.ad.forward_mode import FwdMode
from octants.ad.tapes.tape import Tape
from octants.deferred_import import names_of as _names_of

if TYPE_CHECKING:
    from octants.ad.checkpoints.checkpointed_loops import checkpointed
    from octants.ad.functions.implicit import implicit
    from octants.ad.functions.jacobians import hessian, jacobian
    from octants.ad.functions.jvp_vjp_hvp import hvp, jvp, vjp
    from octants.ad.functions.value_and_gradient import value_and_grad
else:
    _MODULES_OF_NAMES = {
        "checkpointed": "ad.checkpoints.checkpointed_loops",
        "hessian": "ad.functions.jacobians",
        "hvp": "ad.functions.jvp_vjp_hvp",
        "implicit": "ad.functions.implicit",
        "jacobian": "ad.functions.jacobians",
        "jvp": "ad.functions.jvp_vjp_hvp",
        "value_and_grad": "ad.functions.value_and_gradient",
        "vjp": "ad.functions.jvp_vjp_hvp",
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
