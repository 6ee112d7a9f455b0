"""The losses of a tape - arrays, tensors, or results of kernels - and how they are seeded."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from octants.ad.tapes.tape_entries import LaunchEntry, TapeEntry
from octants.data.array_base import Tensor
from octants.data.tape_array_protocol import StoredArray
from octants.diagnostics.tape_errors import (
    CannotCheck,
    LossNotLaunched,
    WrongAdjointSeed,
    WrongLoss,
)
from octants.ir.core import Companion
from octants.launch.gradients.taped_foreign_arrays import ForeignArray, foreign_array
from octants.launch.kernel import BoundKernel, Kernel
from octants.launch.persistent_storage import adjoint_seed
from octants.runtime.arguments.conversions import with_gradient
from octants.runtime.arguments.parameters import is_torch


class Loss(Protocol):
    """The quantity that a tape differentiates."""

    @property
    def array(self) -> StoredArray | None:
        """The array that holds it, if it is one; the tape sets it to zero with the gradients."""

    def reset(self) -> None:
        """Prepare the loss for the body of the tape, besides setting its array to zero."""

    def seed(self, entries: Sequence[TapeEntry], /) -> None:
        """Set its adjoint to the seed, or to one."""

    @property
    def key(self) -> Hashable:
        """It differs for another array or seed; None if only `seed` may set the adjoint."""

    def note_seed(self) -> None:
        """Note that its adjoint was set to the seed again, without `seed`."""

    def value(self) -> float:
        """Its present value, weighted by the seed."""


class ArrayLoss:
    """A field or an ndarray, of one element unless there is a seed for each element."""

    def __init__(self, array: Any, seed: Any = None) -> None:
        shape = (*array.shape, *array.element_shape)
        if seed is None and shape and math.prod(shape) != 1:
            elements = f" and elements of shape {array.element_shape}" * bool(array.element_shape)
            raise WrongLoss(f"has the shape {array.shape}{elements}, not one number").at()
        if not array.dtype.is_float:
            raise WrongLoss(f"is of {array.dtype}, which has no gradient").at()
        if not array.has_grad():
            raise WrongLoss("has no gradient").at()
        self.array: StoredArray = array
        self._gradient = array.companion_array(Companion.ADJOINT)
        self._seed: Any = 1.0
        self._seed_bits: Hashable = None
        if seed is not None:
            self._seed = adjoint_seed(array.describe(), seed, shape)
            bits = np.asarray(self._seed)
            self._seed_bits = bits.dtype.str, bits.shape, bits.tobytes()

    @property
    def key(self) -> Hashable:
        identity = getattr(self.array, "explicit_identity", None)
        return None if identity is None else (identity, self._seed_bits)

    def note_seed(self) -> None:
        self._gradient.note_write(())

    def reset(self) -> None:
        """Nothing to do besides."""

    def seed(self, _: Sequence[TapeEntry]) -> None:
        self._gradient.write(self._seed)

    def value(self) -> float:
        return float((self.array.read() * self._seed).sum())


class _OnlySeeded:
    """The part of losses that have to be seeded by `Loss.seed` in each tape."""

    key = None

    def note_seed(self) -> None:
        """Never called."""


class TensorLoss(_OnlySeeded):
    """A torch tensor that requires a gradient, of one element unless there is a seed for each."""

    def __init__(self, tensor: Any, seed: Any = None) -> None:
        shape = tuple(tensor.shape)
        if seed is None and tensor.numel() != 1:
            raise WrongLoss(f"has the shape {shape}, not one number").at()
        if not (tensor.requires_grad and tensor.is_leaf):
            raise WrongLoss("is a tensor that requires no gradient").at()
        with_gradient(tensor)
        self._tensor = tensor
        self._seed: Any = 1.0 if seed is None else adjoint_seed("the loss", seed, shape)

    @property
    def array(self) -> StoredArray:
        return self._memory()

    def reset(self) -> None:
        """Nothing to do besides."""

    def seed(self, _: Sequence[TapeEntry]) -> None:
        gradient = self._memory().companion_array(Companion.ADJOINT)
        numbers = np.broadcast_to(self._seed, self._tensor.shape)
        gradient.restore(np.array(numbers, gradient.read().dtype))

    def value(self) -> float:
        return float((self._memory().read() * self._seed).sum())

    def _memory(self) -> ForeignArray:
        found = foreign_array(self._tensor)
        assert found is not None
        return found


class KernelLoss(_OnlySeeded):
    """The result of the only launch of a kernel: one float, or what there is a seed for."""

    def __init__(self, kernel: Kernel, seed: Any = None) -> None:
        self._kernel = kernel
        self._seed = seed
        self.array = None

    def reset(self) -> None:
        """Nothing to do: the kernel computes its result from scratch."""

    def value(self) -> float:
        raise CannotCheck("the loss is a kernel").at()

    def seed(self, entries: Sequence[TapeEntry]) -> None:
        launches = {
            entry.number: entry
            for entry in entries
            if isinstance(entry, LaunchEntry) and entry.specialisation.kernel is self._kernel
        }
        if any(self._kernel in getattr(entry, "kernels", ()) for entry in entries):
            problem = f"is kernel `{self._kernel.name}`, launched in a checkpointed loop"
            raise WrongLoss(problem).at()
        if len(launches) != 1:
            raise LossNotLaunched(self._kernel.name, len(launches)).at()
        (entry,) = launches.values()
        returns = entry.specialisation.returns
        is_number = len(returns) == 1 and not returns[0].element_shape
        has_float = any(kind.dtype.is_float for kind in returns)
        if not has_float or not (is_number or self._seed is not None):
            problem = f"is kernel `{self._kernel.name}`, which does not return a float"
            raise WrongLoss(problem).at()
        entry.seed_result(self._seed)


class OuterLoss(_OnlySeeded, ABC):
    """A loss that another library computes of arrays, when the body of the tape has ended.

    `octants.torch.loss` and `octants.jax.loss` make it. `number` is the loss of the last tape.
    """

    array = None

    def __init__(self, arrays: Sequence[Any]) -> None:
        for each in arrays:
            if not isinstance(each, Tensor) or each.companion is not Companion.PRIMAL:
                raise WrongLoss(f"is of a {type(each).__name__}, not of fields or ndarrays").at()
            if not each.has_grad():
                raise WrongLoss(f"is of {each.describe()}, which has no gradient").at()
        self._arrays = list(arrays)
        self.number = math.nan

    @abstractmethod
    def differentiate(self, arrays: list[Any]) -> tuple[float, list[Any]]:
        """The loss, and its derivatives by arrays of numpy."""

    def reset(self) -> None:
        """Forget the value of the tape before."""
        self.number = math.nan

    def seed(self, _: Sequence[TapeEntry]) -> None:
        self.number, adjoints = self.differentiate([each.to_numpy() for each in self._arrays])
        for array, adjoint in zip(self._arrays, adjoints, strict=True):
            array.companion_array(Companion.ADJOINT).add(np.asarray(adjoint, array.dtype.numpy))

    def value(self) -> float:
        return self.differentiate([each.to_numpy() for each in self._arrays])[0]


def make_losses(loss: Any, seed: Any = None) -> list[Loss]:
    """The losses for ``Tape(loss=..., seed=...)``.

    Args:
        loss: an array, a tensor, a kernel, or a list of these, possibly nested.
        seed: the adjoint of the loss; for a list of losses, a list.

    Raises:
        OctantsRuntimeError: a loss cannot be differentiated.
        OctantsValueError: a seed does not fit.
    """
    if loss is None:
        return []
    if not isinstance(loss, (list, tuple)):
        return [_make_loss(loss, seed)]
    seeds = [None] * len(loss) if seed is None else list(seed)
    if len(seeds) != len(loss):
        raise WrongAdjointSeed(f"{len(loss)} losses", f"its length is {len(seeds)}").at()
    return [each for pair in zip(loss, seeds, strict=True) for each in make_losses(*pair)]


def _make_loss(loss: Any, seed: Any) -> Loss:
    if isinstance(loss, StoredArray) and loss.companion is Companion.PRIMAL:
        return ArrayLoss(loss, seed)
    if isinstance(loss, BoundKernel):
        return KernelLoss(loss.kernel, seed)
    if isinstance(loss, Kernel):
        return KernelLoss(loss, seed)
    if isinstance(loss, OuterLoss):
        if seed is not None:
            raise WrongAdjointSeed("a loss of another library", "scale the loss itself").at()
        return loss
    if is_torch(type(loss)):
        return TensorLoss(loss, seed)
    raise WrongLoss(f"cannot be a {type(loss).__name__}").at()
