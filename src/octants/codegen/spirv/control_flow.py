"""The words of a SPIR-V function, its variables, and its control flow.

Values that loops carry are variables of the function, which drivers turn into registers. A block
that has left the function takes no more words until the next label.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from octants.abi import LAUNCH_SIZE
from octants.artifact import SYSTEM_BYTES
from octants.codegen.instruction_writer import ThreadCode
from octants.codegen.spirv.module_builder import CUT_WORD, PUSHED_WORDS, Assembly
from octants.codegen.spirv.nesting_depth import Nesting
from octants.codegen.spirv.opcodes import (
    Decoration,
    Op,
    StorageClass,
    instruction,
)
from octants.diagnostics.span import Span
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, i32, u1, u32, u64

assert LAUNCH_SIZE == 64, "the push constants have space for eight words"


@dataclass(slots=True)
class EntryPoint:
    """An entry point: the number of threads of a block, and the arrays that they share.

    With `numbered`, work items are assigned by subgroups, because their lanes are those of the
    language. `has_lanes` is set while the code is written, if subgroups have to be whole.
    """

    block: int = 1
    numbered: bool = False
    has_lanes: bool = False
    shared: dict[Any, Words] = field(default_factory=dict)


_NO_CONTROL, _DO_NOT_UNROLL = 0, 2
"""Loop controls. NVIDIA's compiler (580.159) unrolls a `while` with a condition like
``w < abs(x[0])`` by a trip count for which it reads the load of an iteration that has not run."""


@dataclass(frozen=True, slots=True)
class Words:
    """An array in memory without addresses, of words or of vectors of four words each."""

    storage: StorageClass
    variable: int
    has_fours: bool = False


class ControlFlowCode(ThreadCode):
    """A function of an entry point: its variables, its hoisted code, and the rest."""

    shares_by_address = False

    def __init__(self, assembly: Assembly, entry: EntryPoint) -> None:
        self.assembly = assembly
        self.has_f64 = assembly.features.has("float64")
        self.legal = assembly.legal
        self.subgroup = assembly.features.lanes
        self.masks = assembly.features.has("masks")
        self.loads_four_words = not (self.masks or assembly.is_bound)
        self.gathers = self.subgroup > 1 and assembly.features.has("gathers")
        if entry.block <= assembly.exchanging:
            self.exchange_subgroups = assembly.exchanging // self.subgroup
        self._entry = entry
        self._variables: list[int] = []
        self._start: list[int] = []
        self._words: list[int] = []
        self._is_open = True
        self._hoisted: dict[Any, int] = {}
        self._computed: dict[tuple[int, ...], int] = {}  # pure instructions that dominate this one
        self._computed_at_start: dict[tuple[int, ...], int] = {}
        self._types: dict[int, int] = {}  # of variables
        self._negated: dict[int, int] = {}  # floats by their negations
        self._sums: dict[int, tuple[int, int]] = {}  # i32 that are sums with a constant
        self._zeros: dict[int, int] = {}  # the number of lowest bits of an i32 that are zero
        self._loops = 0  # around the code being written
        self._exits: list[tuple[int, int | None]] = []  # merge labels
        self.nesting = Nesting(assembly.features)

    # -- instructions ---------------------------------------------------------------------------

    def emit(self, op: Op, *operands: int) -> None:
        """Append an instruction without a result."""
        if self._is_open:
            self._words += instruction(op, *operands)

    def assign(self, op: Op, kind: int, *operands: int) -> int:
        """Append an instruction with a result, or return the result of an equal one before it."""
        if not _is_pure(op):
            return self._append(op, kind, *operands)
        key = (op, kind, *operands)
        known = self._computed.get(key)
        if known is not None:
            return known
        result = self._append(op, kind, *operands)
        if self._is_open:
            self._computed[key] = result
        return result

    def _append(self, op: Op, kind: int, *operands: int) -> int:
        result = self.assembly.fresh()
        if self._is_open:
            self._words += instruction(op, kind, result, *operands)
        return result

    def _float(self, op: Op, dtype: DType, *operands: int) -> int:
        """Append an operation that must not be contracted or reassociated."""
        count = len(self._computed)
        result = self.assign(op, self.assembly.type(dtype), *operands)
        if len(self._computed) > count:
            self.assembly.decorate(result, Decoration.NO_CONTRACTION)
        return result

    @contextlib.contextmanager
    def _dominating_only_itself(self) -> Iterator[None]:
        """Forget what is computed inside, which does not dominate what follows."""
        count = len(self._computed)
        yield
        while len(self._computed) > count:
            self._computed.popitem()

    def _label(self, label: int) -> None:
        self._words += instruction(Op.LABEL, label)
        self._is_open = True

    def _jump(self, op: Op, *operands: int) -> None:
        """Append an instruction that ends a block."""
        self.emit(op, *operands)
        self._is_open = False

    def note(self, location: Span | None) -> None:
        if location is not None:
            self.assembly.features.location = location

    # -- variables and control flow -------------------------------------------------------------

    def variable(self, dtype: DType) -> int:
        kind = self.assembly.type(dtype)
        result = self.assembly.fresh()
        pointer = self.assembly.pointer(StorageClass.FUNCTION, kind)
        self._variables += instruction(Op.VARIABLE, pointer, result, StorageClass.FUNCTION)
        self._types[result] = kind
        return result

    def read(self, variable: int) -> int:
        return self.assign(Op.LOAD, self._types[variable], variable)

    def write(self, variable: int, operand: int) -> None:
        self.emit(Op.STORE, variable, operand)

    def branch(
        self,
        condition: int,
        then: Callable[[], object],
        orelse: Callable[[], object] | None = None,
        *,
        rare: bool = False,  # noqa: ARG002
    ) -> None:
        if not self._is_open:
            return
        first, second, merge = (self.assembly.fresh() for _ in range(3))
        self.emit(Op.SELECTION_MERGE, merge, 0)
        self._jump(Op.BRANCH_CONDITIONAL, condition, first, second if orelse else merge)
        for label, write in ((first, then), (second, orelse)):
            if write is not None:
                self._label(label)
                with self.nesting.inside(), self._dominating_only_itself():
                    write()
                self._jump(Op.BRANCH, merge)
        self._label(merge)

    def loop(
        self,
        test: Callable[[], int],
        body: Callable[[], object],
        is_left: Callable[[], int] | None = None,
    ) -> None:
        if not self._is_open:
            return
        if not self.assembly.features.has("cuts"):
            self._loop(test, body, _NO_CONTROL if is_left else _DO_NOT_UNROLL)
        elif is_left is None:
            self._watched_loop(test, body)
        else:
            self._loop(test, body)
            self._note_cut(is_left())

    def _loop(
        self,
        test: Callable[[], int],
        body: Callable[[], object],
        control: int = _NO_CONTROL,
        seen: int | None = None,
    ) -> None:
        """Write a loop; ``seen`` is a variable whose lowest bit is its condition."""
        header, first, inside, latch, merge = (self.assembly.fresh() for _ in range(5))
        self._exits.append((merge, seen))
        self._jump(Op.BRANCH, header)
        self._label(header)
        self.emit(Op.LOOP_MERGE, merge, latch, control)
        self._jump(Op.BRANCH, first)
        self._label(first)
        with self._dominating_only_itself():
            self._jump(Op.BRANCH_CONDITIONAL, test(), inside, merge)
            self._label(inside)
            self._loops += 1
            with self.nesting.inside():
                body()
            self._loops -= 1
            self._jump(Op.BRANCH, latch)
        self._label(latch)
        self._jump(Op.BRANCH, header)
        self._label(merge)
        self._exits.pop()

    def _watched_loop(self, test: Callable[[], int], body: Callable[[], object]) -> None:
        """Write a loop, and record whether it ended although its condition holds.

        A number has the condition as its lowest bit, and the iteration above it: the driver knows
        that the condition is false behind the loop, but it cannot derive that bit. The number is
        odd before each test.
        """
        seen, one, two = self.variable(u32), self.constant(1, u32), self.constant(2, u32)
        self.write(seen, one)

        def watched() -> int:
            goes_on = test()
            step = self.choose(goes_on, u32, two, one)
            self.write(seen, self.apply("add", u32, self.read(seen), step))
            return goes_on

        self._loop(watched, body, seen=seen)
        bit = self.apply("and", u32, self.read(seen), one)
        self._note_cut(self.compare("eq", u32, bit, one))

    def _note_cut(self, is_cut: int) -> None:
        noted = self._cuts()
        self.write(noted, self.apply("or", u1, self.read(noted), is_cut))

    def _cuts(self) -> int:
        """Return a variable that is true if any loop of the function was cut short."""

        def make() -> int:
            variable = self.variable(u1)
            self.write(variable, self.constant(False, u1))
            return variable

        return self.hoisted("cuts", make)

    def tell_cuts(self) -> None:
        """Report loops that were cut short to the host, at the end of the function."""
        if "cuts" in self._hoisted:
            word, one = self._pushed(CUT_WORD), self.constant(1, u32)
            self.branch(self.read(self._cuts()), lambda: self.atomic("or", u32, word, one))

    def stop(self) -> None:
        merge, seen = self._exits[-1]
        if seen is not None:
            self.write(seen, self.constant(0, u32))
        self._jump(Op.BRANCH, merge)

    def leave(self) -> None:
        if self._loops and self.assembly.features.has("cuts"):
            self._cuts()  # of later loops, in earlier iterations
        self.tell_cuts()
        self.nesting.leave()
        self._jump(Op.RETURN)

    def hoisted(self, key: Any, make: Callable[[], int]) -> int:
        if key not in self._hoisted:
            state = self._words, self._is_open, self._computed
            self._words, self._is_open, self._computed = self._start, True, self._computed_at_start
            self._hoisted[key] = make()
            self._words, self._is_open, self._computed = state
        return self._hoisted[key]

    # -- launch words ---------------------------------------------------------------------------

    def parameters(self) -> int:
        return self._pushed(0)

    def pushed_parameter(self, offset: int) -> int | None:
        slot = (offset - SYSTEM_BYTES) // 8
        is_pushed = 0 <= slot < self.assembly.pushed_slots
        return self._pushed(PUSHED_WORDS + slot) if is_pushed else None

    def launch_word(self, offset: int) -> int:
        return self._pushed(1 + offset // 8)

    def launch_address(self, offset: int) -> int:
        return self._pushed(1 + offset // 8)

    def _pushed(self, word: int) -> int:
        def make() -> int:
            kind, member = self.assembly.type(u64), self.constant(word, i32)
            pointer = self.assembly.pointer(StorageClass.PUSH_CONSTANT, kind)
            variable = self.assembly.pushed()
            return self.assign(
                Op.LOAD, kind, self.assign(Op.ACCESS_CHAIN, pointer, variable, member)
            )

        return self.hoisted(("pushed", word), make)


def _is_pure(op: Op) -> bool:
    """Whether an instruction depends on its operands alone: arithmetic, conversions, addresses."""
    return Op.COMPOSITE_CONSTRUCT <= op <= Op.BIT_COUNT or op in (Op.EXT_INST, Op.ACCESS_CHAIN)
