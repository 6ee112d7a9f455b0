"""One SPIR-V function while it is written.

Values that loops carry are variables of the function, which drivers turn into registers. A block
that has left the function takes no more words until the next label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.abi import LAUNCH_SIZE
from octants.codegen.spirv.assembly import CUT_WORD, Assembly
from octants.codegen.spirv.tables import (
    ATOMIC,
    BOOL,
    EXTENDED,
    FLOAT,
    FLOAT_COMPARE,
    SIGNED,
    SIGNED_COMPARE,
    UNSIGNED,
    UNSIGNED_COMPARE,
)
from octants.codegen.spirv.words import (
    ALIGNED,
    DEVICE_SCOPE,
    RELAXED,
    UNIFORM_ACQUIRE_RELEASE,
    BuiltIn,
    Capability,
    Decoration,
    Op,
    Storage,
    instruction,
)
from octants.codegen.structured.code import Code
from octants.diagnostics.span import Span
from octants.types.scalars import DType, f32, f64, i32, i64, u1, u32, u64

assert LAUNCH_SIZE == 64, "what is pushed has room for eight words"


class SpirvCode(Code):
    """A function: its variables, what is computed at its start, and the rest.

    ``block`` threads of an entry point run together.
    """

    def __init__(self, assembly: Assembly, block: int = 1) -> None:
        self.assembly = assembly
        self.has_f64 = assembly.features.has("float64")
        self._block = block
        self._variables: list[int] = []
        self._start: list[int] = []
        self._words: list[int] = []
        self._is_open = True
        self._hoisted: dict[Any, int] = {}
        self._types: dict[int, int] = {}  # of variables

    # -- words ----------------------------------------------------------------------------------

    def emit(self, op: Op, *operands: int) -> None:
        """An instruction without a result."""
        if self._is_open:
            self._words += instruction(op, *operands)

    def assign(self, op: Op, kind: int, *operands: int) -> int:
        """An instruction with a result."""
        result = self.assembly.fresh()
        if self._is_open:
            self._words += instruction(op, kind, result, *operands)
        return result

    def _float(self, op: Op, dtype: DType, *operands: int) -> int:
        """An operation that is not contracted with others, nor changed to one like it."""
        result = self.assign(op, self.assembly.type(dtype), *operands)
        if self._is_open:
            self.assembly.decorate(result, Decoration.NO_CONTRACTION)
        return result

    def _label(self, label: int) -> None:
        self._words += instruction(Op.LABEL, label)
        self._is_open = True

    def _jump(self, op: Op, *operands: int) -> None:
        """An instruction that ends a block."""
        self.emit(op, *operands)
        self._is_open = False

    def note(self, location: Span | None) -> None:
        if location is not None:
            self.assembly.features.location = location

    # -- values ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> int:
        return self.assembly.constant(value, dtype)

    def known(self, operand: int) -> Any:
        return self.assembly.known(operand)

    def apply(self, fn: str, dtype: DType, *operands: int) -> int:
        kind = self.assembly.type(dtype)
        if dtype is u1:
            return self.assign(BOOL[fn], kind, *operands)
        if not dtype.is_float:
            return self._integer(fn, dtype, *operands)
        if fn in EXTENDED:
            return self._float(Op.EXT_INST, dtype, self.assembly.library, EXTENDED[fn], *operands)
        return self._float(FLOAT[fn], dtype, *operands)

    def _integer(self, fn: str, dtype: DType, *operands: int) -> int:
        if fn == "remainder" and dtype.is_signed:  # of negative numbers no instruction tells it
            a, b = operands
            whole = self.apply("mul", dtype, self.apply("quotient", dtype, a, b), b)
            return self.apply("sub", dtype, a, whole)
        table = SIGNED if dtype.is_signed else UNSIGNED
        return self.assign(table[fn], self.assembly.type(dtype), *operands)

    def compare(self, fn: str, dtype: DType, a: int, b: int) -> int:
        if dtype.is_float:
            return self._float(FLOAT_COMPARE[fn], u1, a, b)
        if dtype is i64 and fn not in ("eq", "ne") and (self._is_known(a) or self._is_known(b)):
            return self.compare(fn, u64, self._turned(a), self._turned(b))
        if dtype is u1:
            op = {"eq": Op.LOGICAL_EQUAL, "ne": Op.LOGICAL_NOT_EQUAL}[fn]
        else:
            op = (SIGNED_COMPARE if dtype.is_signed else UNSIGNED_COMPARE)[fn]
        return self.assign(op, self.assembly.type(u1), a, b)

    def _is_known(self, operand: int) -> bool:
        return self.known(operand) is not None

    def _turned(self, x: int) -> int:
        """An i64 with its sign bit turned: in the order of u64.

        Mesa's optimiser gets comparisons of widened i32 with constants wrong (seen in 22.3).
        """
        sign, known = 1 << 63, self.known(x)
        if known is not None:
            return self.constant(known & (2 * sign - 1) ^ sign, u64)
        return self.apply("xor", u64, x, self.constant(sign, u64))

    def choose(self, condition: int, dtype: DType, on_true: int, on_false: int) -> int:
        return self.assign(Op.SELECT, self.assembly.type(dtype), condition, on_true, on_false)

    def convert(self, x: int, source: DType, target: DType) -> int:
        kind = self.assembly.type(target)
        if source is u1:
            return self.choose(x, target, self.constant(1, target), self.constant(0, target))
        if source.is_float:
            if target.is_float:
                return x if source is target else self._float(Op.F_CONVERT, target, x)
            op = Op.CONVERT_F_TO_S if target.is_signed else Op.CONVERT_F_TO_U
            return self.assign(op, kind, x)
        if target.is_float:
            op = Op.CONVERT_S_TO_F if source.is_signed else Op.CONVERT_U_TO_F
            return self._float(op, target, x)
        if source.bits == target.bits:
            return x
        return self.assign(Op.S_CONVERT if source.is_signed else Op.U_CONVERT, kind, x)

    def bitcast(self, x: int, source: DType, target: DType) -> int:
        if source.is_float == target.is_float:
            return x
        return self.assign(Op.BITCAST, self.assembly.type(target), x)

    def bit_count(self, x: int) -> int:
        return self.assign(Op.BIT_COUNT, self.assembly.type(u32), x)

    # -- variables, and control flow ------------------------------------------------------------

    def variable(self, dtype: DType) -> int:
        kind = self.assembly.type(dtype)
        result = self.assembly.fresh()
        pointer = self.assembly.pointer(Storage.FUNCTION, kind)
        self._variables += instruction(Op.VARIABLE, pointer, result, Storage.FUNCTION)
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
    ) -> None:
        if not self._is_open:
            return
        first, second, merge = (self.assembly.fresh() for _ in range(3))
        self.emit(Op.SELECTION_MERGE, merge, 0)
        self._jump(Op.BRANCH_CONDITIONAL, condition, first, second if orelse else merge)
        for label, write in ((first, then), (second, orelse)):
            if write is not None:
                self._label(label)
                write()
                self._jump(Op.BRANCH, merge)
        self._label(merge)

    def loop(self, test: Callable[[], int], body: Callable[[], object]) -> None:
        if not self._is_open:
            return
        if self.assembly.features.has("cuts"):
            self._watched_loop(test, body)
        else:
            self._loop(test, body)

    def _loop(self, test: Callable[[], int], body: Callable[[], object]) -> None:
        header, first, turn, latch, merge = (self.assembly.fresh() for _ in range(5))
        self._jump(Op.BRANCH, header)
        self._label(header)
        self.emit(Op.LOOP_MERGE, merge, latch, 0)
        self._jump(Op.BRANCH, first)
        self._label(first)
        self._jump(Op.BRANCH_CONDITIONAL, test(), turn, merge)
        self._label(turn)
        body()
        self._jump(Op.BRANCH, latch)
        self._label(latch)
        self._jump(Op.BRANCH, header)
        self._label(merge)

    def _watched_loop(self, test: Callable[[], int], body: Callable[[], object]) -> None:
        """A loop that tells the host where it has ended although its condition holds.

        A number has the condition as its lowest bit, and the number of the turn above it: the
        driver, which knows that the condition is false behind the loop, does not know that bit.
        """
        count, seen = self.variable(u32), self.variable(u32)
        one = self.constant(1, u32)
        self.write(count, self.constant(0, u32))

        def watched() -> int:
            goes_on = test()
            following = self.apply("add", u32, self.read(count), one)
            twice = self.apply("shl", u32, following, one)
            self.write(count, following)
            self.write(seen, self.apply("add", u32, twice, self.convert(goes_on, u1, u32)))
            return goes_on

        self._loop(watched, body)
        bit = self.apply("and", u32, self.read(seen), one)
        is_cut = self.compare("eq", u32, bit, one)
        self.branch(is_cut, lambda: self.atomic("or", u32, self._pushed(CUT_WORD), one))

    def leave(self) -> None:
        self._jump(Op.RETURN)

    def hoisted(self, key: Any, make: Callable[[], int]) -> int:
        if key not in self._hoisted:
            state = self._words, self._is_open
            self._words, self._is_open = self._start, True
            self._hoisted[key] = make()
            self._words, self._is_open = state
        return self._hoisted[key]

    # -- memory ---------------------------------------------------------------------------------

    def _place(self, address: int, dtype: DType) -> int:
        """A pointer to a number in memory."""
        if dtype.bits < 32:
            self.assembly.features.require(f"storage{dtype.bits}")
            small = Capability.STORAGE_8_BIT if dtype.bits == 8 else Capability.STORAGE_16_BIT
            self.assembly.require(small)
        pointer = self.assembly.pointer(Storage.PHYSICAL, self.assembly.type(dtype))
        return self.assign(Op.CONVERT_U_TO_PTR, pointer, address)

    def load(self, address: int, dtype: DType) -> int:
        place, kind = self._place(address, dtype), self.assembly.type(dtype)
        return self.assign(Op.LOAD, kind, place, ALIGNED, dtype.size)

    def store(self, address: int, dtype: DType, value: int) -> None:
        self.emit(Op.STORE, self._place(address, dtype), value, ALIGNED, dtype.size)

    def has_atomic(self, fn: str, dtype: DType) -> bool:
        features = self.assembly.features
        if dtype.is_float:
            return fn == "add" and features.has(f"add{dtype.bits}")
        return dtype.bits == 32 or (dtype.bits == 64 and features.has("atomic64"))

    def _atomic(self, op: Op, dtype: DType, address: int, *operands: int) -> int:
        if dtype.bits == 64 and not dtype.is_float:
            self.assembly.features.require("atomic64")
            self.assembly.require(Capability.INT_64_ATOMICS)
        scope = self.constant(DEVICE_SCOPE, u32)
        place, kind = self._place(address, dtype), self.assembly.type(dtype)
        return self.assign(op, kind, place, scope, self.constant(RELAXED, u32), *operands)

    def atomic_load(self, address: int, dtype: DType) -> int:
        return self._atomic(Op.ATOMIC_LOAD, dtype, address)

    def atomic(self, fn: str, dtype: DType, address: int, value: int) -> int:
        if dtype.is_float:
            sums = {f32: Capability.ATOMIC_FLOAT_32_ADD, f64: Capability.ATOMIC_FLOAT_64_ADD}
            self.assembly.require(sums[dtype], "SPV_EXT_shader_atomic_float_add")
            return self._atomic(Op.ATOMIC_F_ADD, dtype, address, value)
        return self._atomic(ATOMIC[dtype.is_signed][fn], dtype, address, value)

    def exchange_if(self, dtype: DType, address: int, expected: int, value: int) -> int:
        relaxed = self.constant(RELAXED, u32)
        op = Op.ATOMIC_COMPARE_EXCHANGE
        return self._atomic(op, dtype, address, relaxed, value, expected)

    def fence(self) -> None:
        if not self.assembly.features.has("fences"):
            return
        scope = self.constant(DEVICE_SCOPE, u32)
        self.emit(Op.MEMORY_BARRIER, scope, self.constant(UNIFORM_ACQUIRE_RELEASE, u32))

    # -- functions ------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        parameters: Sequence[DType],
        result: DType | None,
        make: Callable[[Code, list[Any]], Any],
        operands: Sequence[int],
    ) -> int:
        def write(function: int) -> None:
            code = SpirvCode(self.assembly)
            code.write_function(function, parameters, result, make)

        function = self.assembly.helper(name, write)
        return self.assign(Op.FUNCTION_CALL, self._result_type(result), function, *operands)

    def _result_type(self, result: DType | None) -> int:
        return self.assembly.void() if result is None else self.assembly.type(result)

    def write_function(
        self,
        function: int,
        parameters: Sequence[DType],
        result: DType | None,
        make: Callable[[Code, list[Any]], Any],
    ) -> None:
        """Write the whole of a function, as ``function``, and add it to the module."""
        assembly = self.assembly
        types = [assembly.type(dtype) for dtype in parameters]
        given = [assembly.fresh() for _ in parameters]
        returned = self._result_type(result)
        whole = assembly.function_type(returned, types)
        value = make(self, given)
        if result is None:
            self._jump(Op.RETURN)
        else:
            self._jump(Op.RETURN_VALUE, value)
        words = instruction(Op.FUNCTION, returned, function, 0, whole)
        for kind, parameter in zip(types, given, strict=True):
            words += instruction(Op.FUNCTION_PARAMETER, kind, parameter)
        words += instruction(Op.LABEL, assembly.fresh())
        words += self._variables + self._start + self._words + instruction(Op.FUNCTION_END)
        assembly.functions += words

    # -- a launch -------------------------------------------------------------------------------

    def parameters(self) -> int:
        return self._pushed(0)

    def launch_word(self, offset: int) -> int:
        return self._pushed(1 + offset // 8)

    def _pushed(self, word: int) -> int:
        def make() -> int:
            kind, member = self.assembly.type(u64), self.constant(word, i32)
            pointer = self.assembly.pointer(Storage.PUSH_CONSTANT, kind)
            variable = self.assembly.pushed()
            return self.assign(
                Op.LOAD, kind, self.assign(Op.ACCESS_CHAIN, pointer, variable, member)
            )

        return self.hoisted(("pushed", word), make)

    def thread(self) -> int:
        return self._built_in(BuiltIn.GLOBAL_INVOCATION)

    def threads(self) -> int:
        """Blocks stand in one row."""
        groups = self._built_in(BuiltIn.NUMBER_OF_WORKGROUPS)
        return self.apply("mul", i64, groups, self.constant(self._block, i64))

    def _built_in(self, which: BuiltIn) -> int:
        def make() -> int:
            vector = self.assign(Op.LOAD, self.assembly.vector(), self.assembly.built_in(which))
            number = self.assign(Op.COMPOSITE_EXTRACT, self.assembly.type(u32), vector, 0)
            return self.convert(number, u32, i64)

        return self.hoisted(which, make)
