"""The state that a kernel's functions share, on all targets."""

from __future__ import annotations

from typing import Any

from octants.artifact import (
    Artifact,
    Dispatch,
    MessageFormat,
    ParameterLayout,
    Slot,
    parameters_of,
)
from octants.cached_property import cached_property
from octants.codegen.memory_ranges_of_arrays import written_ranges
from octants.codegen.recording_facts import known_positions, recorded_loops, records_in_variables
from octants.ir import ops
from octants.ir.core import Array, Companion, Module, Record, Value
from octants.ir.random_draws import has_draws
from octants.types.scalars import i64


class KernelContext:
    """The state that a kernel's functions share: its arrays, parameter block, and messages."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.parameters: ParameterLayout = parameters_of(module)
        self.messages: list[MessageFormat] = []
        self._positions = {slot: number for number, slot in enumerate(self.parameters.slots)}
        self._numbers = {array: number for number, array in enumerate(module.arrays)}

    def offset(self, slot: Slot) -> int:
        """Return the offset of a slot in the parameter block."""
        return 8 * self._positions[slot]

    def _number(self, array: Array) -> int:
        """The position of an array, or of that of a section, in the module."""
        return self._numbers[array.whole]

    def pointer_offset(self, array: Array, companion: Companion) -> int:
        return self.offset(Slot("pointer", array=self._number(array), companion=companion))

    def shape_offset(self, array: Array, axis: int) -> int:
        return self.offset(Slot("shape", array=self._number(array), index=axis))

    def stride_offset(self, array: Array, companion: Companion, index: int) -> int:
        """Return the offset of one of the strides of an array."""
        return self.offset(Slot("stride", "", self._number(array), companion, index))

    def scalar_offset(self, array: Array) -> int:
        """Return the offset of an argument's first component; the others follow, 8 bytes each."""
        return self.offset(Slot("scalar", array=self._number(array), index=0))

    def add_message(self, message: MessageFormat) -> int:
        """Add a message, and return its id."""
        self.messages.append(message)
        return len(self.messages) - 1

    # -- facts of the module ----------------------------------------------------------------------

    @cached_property
    def widened(self) -> dict[Value, Value]:
        """The value before the cast, for each i64 that is a cast."""
        casts = (op for op in self.module.walk() if isinstance(op, ops.Cast))
        return {op.result: op.x for op in casts if op.result.type is i64}

    @cached_property
    def positions(self) -> dict[ops.RecordPush, Value]:
        """The positions of pushes that are known without their bases."""
        return known_positions(self.module)

    @cached_property
    def in_variables(self) -> set[Record]:
        """The local records whose iterations are all accessed by constant numbers."""
        return records_in_variables(self.module)

    # -- the end ----------------------------------------------------------------------------------

    def artifact(
        self,
        target: str,
        code: bytes,
        *,
        entry: str = "",
        metadata: tuple[tuple[str, Any], ...] = (),
        dispatches: tuple[Dispatch, ...] = (),
    ) -> Artifact:
        """Return the artifact of the kernel, whose functions have been written and compiled.

        Args:
            target: The name of the target.
            code: What the runtime loads.
            entry: The function that the host calls; none if there are dispatches.
            metadata: More that the runtime needs.
            dispatches: Those of a GPU.
        """
        module = self.module
        return Artifact(
            name=module.name,
            target=target,
            code=code,
            entry=entry,
            parameters=self.parameters,
            messages=tuple(self.messages),
            metadata=metadata,
            kernel=module.kernel,
            records=tuple(recorded_loops(module)),
            draws=has_draws(module),
            dispatches=dispatches,
            writes=written_ranges(module, self.parameters) if dispatches else (),
        )
