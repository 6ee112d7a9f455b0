"""Values whose derivatives the program gives itself."""

from __future__ import annotations

from octants.ir.core import Block, InvalidIR, Operation, Value, attribute, operands, operation


@operation("custom_derivative")
class CustomDerivative(Operation):
    """``%y: f32 = custom_derivative<{ (%a: f32, %g: f32): ... yield(%h) }>(%r, %x)``

    The results are the first operands, as many as there are results; the others are the inputs that
    they were computed from. Derivatives do not flow through the first operands: `adjoint` gives the
    adjoints of the first inputs, as many as it yields, from all inputs and the adjoints of the
    results. It is a function of its arguments alone: it accesses no memory, and nothing outside.
    """

    adjoint: Block = attribute()
    given: list[Value] = operands()

    @property
    def values(self) -> list[Value]:
        """The operands that the results are equal to."""
        return self.given[: len(self.results)]

    @property
    def inputs(self) -> list[Value]:
        """The values that the results were computed from."""
        return self.given[len(self.results) :]

    @property
    def active_inputs(self) -> list[Value]:
        """The inputs that have adjoints."""
        return self.inputs[: len(self.adjoint.yielded)]

    def verify(self) -> None:
        results, given = ([value.type for value in each] for each in (self.results, self.given))
        if given[: len(results)] != results:
            raise InvalidIR(f"custom_derivative: results {results} of {given}")
        args = [arg.type for arg in self.adjoint.args]
        if args != [*given[len(results) :], *results]:
            raise InvalidIR(f"custom_derivative: the adjoint takes {args}")
        yielded = [value.type for value in self.adjoint.yielded]
        if yielded != [value.type for value in self.active_inputs]:
            raise InvalidIR(f"custom_derivative: the adjoint gives {yielded}")
