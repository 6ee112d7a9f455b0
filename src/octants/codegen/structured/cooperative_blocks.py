"""Write tasks whose work items wait for each other at barriers.

All threads of a block arrive at each of its barriers, also threads without a work item, and those
whose item has ended early. So the code between two barriers is predicated on `active`. The branches
and loops around barriers are uniform over the block, as the program must ensure.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.instruction_writer import Operand, UnaddressedElement
from octants.codegen.structured import control_flow
from octants.codegen.structured.early_exits import EarlyExitFunction
from octants.ir import ops
from octants.ir.cooperative_tasks import is_block_barrier
from octants.ir.core import Block, Operation, Value
from octants.types.scalars import u1, u32


class BarrierFunction(EarlyExitFunction):
    """The work item of a thread; a thread without one is not `active`."""

    def begin_block(self, block: Block, active: Operand, whole: Operand | None) -> None:
        """Begin the code of a work item; ``whole`` is true if all threads have one.

        It is None where that is never so.
        """
        self.begin(block, active)
        self._whole = whole
        self._users: dict[Value, set[Operation]] = {}
        self._waiting: set[Operation] = set()
        self._find_users(block)

    def _find_users(self, block: Block) -> None:
        """Record the users of each value, and the operations with barriers inside."""
        for op in block.ops:
            for value in op.operands:
                self._users.setdefault(value, set()).add(op)
            for region in op.regions:
                self._find_users(region)
                for inner in region.ops:
                    self._waiting |= {op} if inner in self._waiting else set()
            if is_block_barrier(op):
                self._waiting.add(op)

    # -- between barriers -------------------------------------------------------------------------

    def steps(self, block: Block) -> list[Operand]:
        """Write the operations of a block with barriers, and return the operands that it yields."""
        run: list[Operation] = []
        for op in block.ops:
            if op in self._waiting:
                self._run(run)
                run = []
                _STEPS[type(op)](self, op)
            elif isinstance(op, ops.Constant):
                self.operation(op)
            else:
                run.append(op)
        self._run(run)
        return [self.use(value) for value in block.yielded]

    def _run(self, run: list[Operation]) -> None:
        """Write operations for active threads; results used elsewhere are zero in other threads."""
        run = [op for op in run if not isinstance(op, ops.Yield)]
        if not run:
            return
        inside = {each for op in run for each in op.walk()}
        kept = [v for op in run for v in op.results if not self._users.get(v, set()) <= inside]
        variables = [self.variable(value) for value in kept]
        for variable, value in zip(variables, kept, strict=True):
            self.code.write(variable, self.zero(value))
        self.if_active(lambda: self.write(run, lambda: self.hand(variables, kept)))
        for variable, value in zip(variables, kept, strict=True):
            self.bind(value, self.code.read(variable))

    def agreed(self, condition: Operand) -> Operand:
        """Return whether a condition holds for any active thread of the block."""
        code = self.code
        if self._whole is None:
            return self._any_active(condition)
        result = code.variable(u1)
        code.branch(
            self._whole,
            lambda: code.write(result, condition),
            lambda: code.write(result, self._any_active(condition)),
        )
        return code.read(result)

    def _any_active(self, condition: Operand) -> Operand:
        code = self.code
        flag = UnaddressedElement(code.shared_array("agreed", u32, 1), self.number(0, u32))
        first = code.compare("eq", u32, code.thread_in_block(), self.number(0, u32))
        code.barrier("block")
        code.branch(first, lambda: code.store(flag, u32, self.number(0, u32)))
        code.barrier("block")
        holds = code.apply("and", u1, code.read(self.active), condition)
        code.branch(holds, lambda: code.atomic("or", u32, flag, self.number(1, u32)))
        code.barrier("block")
        return code.compare("ne", u32, code.load(flag, u32), self.number(0, u32))

    # -- barriers, and the operations around them -------------------------------------------------

    def _barrier(self, _: ops.Barrier) -> None:
        self.code.barrier("block")

    def _if(self, op: ops.If) -> None:
        results = [self.variable(result) for result in op.results]

        def way(block: Block) -> None:
            control_flow.write_all(self, results, self.steps(block))

        condition = self.agreed(self.use(op.condition))
        self.code.branch(condition, lambda: way(op.then), lambda: way(op.orelse))
        control_flow.bind_all(self, op.results, results)

    def _for(self, op: ops.For) -> None:
        control_flow.write_for(self, op, self.steps, lambda _, make: self.agreed(make()))

    def _while(self, op: ops.While) -> None:
        control_flow.write_while(self, op, self.steps, lambda _, make: self.agreed(make()))


_STEPS: dict[type[Operation], Callable[..., None]] = {
    ops.Barrier: BarrierFunction._barrier,
    ops.If: BarrierFunction._if,
    ops.For: BarrierFunction._for,
    ops.While: BarrierFunction._while,
}
