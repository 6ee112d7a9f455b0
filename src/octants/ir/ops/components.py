"""Components of a local vector by a run-time index: one operation, however long the vector is.

A vector has one value for each component. Short ones are read and written by selects
(`ir.component_access`); `passes.storage.spill_vectors` puts the others into memory.
"""

from __future__ import annotations

from octants.ir.core import InvalidIR, Value, operand, operands, operation
from octants.ir.ops.arithmetic import Pure


@operation("extract")
class Extract(Pure):
    """``%3: f32 = extract(%i, %0, %1, %2)``: the component at an index.

    It is the first one if the index is out of range.
    """

    index: Value = operand()
    components: list[Value] = operands()

    def verify(self) -> None:
        _verify(self.index, [*self.components, self.result])


@operation("insert")
class Insert(Pure):
    """``%4: f32, %5: f32, %6: f32 = insert(%i, %x, %0, %1, %2)``: a component replaced.

    The results are the components, with %x in place of the one at the index. They are all the
    same if the index is out of range.
    """

    index: Value = operand()
    value: Value = operand()
    components: list[Value] = operands()

    def verify(self) -> None:
        _verify(self.index, [*self.components, self.value, *self.results])
        if len(self.results) != len(self.components):
            raise InvalidIR(f"{len(self.results)} components of {len(self.components)}")


def _verify(index: Value, values: list[Value]) -> None:
    if index.type.is_float or index.type.is_bool:
        raise InvalidIR(f"an index of type {index.type}")
    if len({value.type for value in values}) > 1:
        raise InvalidIR("components of several types")
