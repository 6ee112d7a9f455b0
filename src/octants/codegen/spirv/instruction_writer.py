"""`Code` over the instructions of one SPIR-V function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.analysis.indices.affine_arithmetic import wrapped
from octants.codegen.instruction_writer import Kind, Pointer, UnaddressedElement
from octants.codegen.spirv.control_flow import ControlFlowCode, Words
from octants.codegen.spirv.opcode_tables import (
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
from octants.codegen.spirv.opcodes import (
    ACQUIRE_RELEASE,
    ALIGNED,
    BLOCK_SCOPE,
    DEVICE_SCOPE,
    OF_MEMORY,
    OF_SHARED_MEMORY,
    RELAXED,
    SUBGROUP_SCOPE,
    BuiltIn,
    Capability,
    Op,
    StorageClass,
    instruction,
)
from octants.codegen.structured.f16_conversions import call_half_function
from octants.types.scalars import DType, f32, f64, i32, i64, u1, u32, u64

FEW_ELEMENTS, LEAST_ELEMENTS = 5, 65
"""Elements of an array of a work item. NVIDIA's compiler (580.159) keeps those of up to 40, if not
more, in registers, and selects one of all elements in each access."""
_SCOPES = {"device": DEVICE_SCOPE, "block": BLOCK_SCOPE, "subgroup": SUBGROUP_SCOPE}


class SpirvCode(ControlFlowCode):
    """The instructions of a function of an entry point."""

    has_narrow_offsets = True

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
        if fn == "fma" and not self.assembly.features.has("fuses"):
            return self.apply("add", dtype, self.apply("mul", dtype, *operands[:2]), operands[2])
        if fn in EXTENDED:
            return self._float(Op.EXT_INST, dtype, self.assembly.library, EXTENDED[fn], *operands)
        if fn == "add":
            fn, operands = self._without_negation(*operands)
        result = self._float(FLOAT[fn], dtype, *operands)
        if fn == "neg":
            self._negated[result] = operands[0]
        return result

    def _without_negation(self, a: int, b: int) -> tuple[str, tuple[int, int]]:
        """Return a sum with a negated operand as a difference, which is the same number.

        NVIDIA's compiler (580.159) takes an instruction for a negation.
        """
        if b in self._negated:
            return "sub", (a, self._negated[b])
        if a in self._negated:
            return "sub", (b, self._negated[a])
        return "add", (a, b)

    def _integer(self, fn: str, dtype: DType, *operands: int) -> int:
        if fn == "remainder" and dtype.is_signed:  # no instruction is defined for negative numbers
            a, b = operands
            whole = self.apply("mul", dtype, self.apply("quotient", dtype, a, b), b)
            return self.apply("sub", dtype, a, whole)
        if fn == "popcount":
            return self.assign(Op.BIT_COUNT, self.assembly.type(dtype), *operands)
        table = SIGNED if dtype.is_signed else UNSIGNED
        result = self.assign(table[fn], self.assembly.type(dtype), *operands)
        if dtype is i32 and fn in ("add", "sub", "mul", "shl"):
            self._note_constant(fn, result, *operands)
        return result

    def _note_constant(self, fn: str, result: int, a: int, b: int) -> None:
        """Note of which other number and constant an i32 is the result."""
        if fn in ("add", "mul") and self._is_known(a):
            a, b = b, a
        known = self.known(b)
        if known is None or self._is_known(a):
            return
        if fn in ("add", "sub"):
            base, before = self.split_sum(a)
            more = known if fn == "add" else -known
            self._sums[result] = base, wrapped(before + more, i32.bits)
        else:
            factor = known if fn == "mul" else 1 << known
            self._zeros[result] = (factor & -factor).bit_length() - 1

    def split_sum(self, x: int) -> tuple[int, int]:
        return self._sums.get(x, (x, 0))

    def compare(self, fn: str, dtype: DType, a: int, b: int) -> int:
        if dtype.is_float:
            return self._float(FLOAT_COMPARE[fn], u1, a, b)
        if dtype is i64 and fn not in ("eq", "ne") and (self._is_known(a) or self._is_known(b)):
            return self.compare(fn, u64, self._sign_flipped(a), self._sign_flipped(b))
        if dtype is u1:
            op = {"eq": Op.LOGICAL_EQUAL, "ne": Op.LOGICAL_NOT_EQUAL}[fn]
        else:
            op = (SIGNED_COMPARE if dtype.is_signed else UNSIGNED_COMPARE)[fn]
        return self.assign(op, self.assembly.type(u1), a, b)

    def _is_known(self, operand: int) -> bool:
        return self.known(operand) is not None

    def _sign_flipped(self, x: int) -> int:
        """Return an i64 with its sign bit flipped: in the order of u64.

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

    def half_bits(self, x: int) -> int:
        return int(call_half_function(self, "half_bits", f32, u32, x))

    def half_value(self, word: int) -> int:
        return int(call_half_function(self, "half_value", u32, f32, word))

    # -- memory ---------------------------------------------------------------------------------

    def _pointer(self, address: Pointer, dtype: DType) -> int:
        """Return a pointer to a number in memory."""
        if isinstance(address, UnaddressedElement):
            pointer = self.assembly.pointer(address.array.storage, self.assembly.type(dtype))
            has_fours, index = address.array.has_fours, address.index
            where = self._position_in_fours(index) if has_fours else (index,)
            return self.assign(Op.ACCESS_CHAIN, pointer, address.array.variable, *where)
        if dtype.bits < 32:
            self.assembly.features.require(f"storage{dtype.bits}")
            small = Capability.STORAGE_8_BIT if dtype.bits == 8 else Capability.STORAGE_16_BIT
            self.assembly.require(small)
        if self.assembly.is_bound:
            return self._bound_pointer(address, dtype)
        pointer = self.assembly.pointer(StorageClass.PHYSICAL, self.assembly.type(dtype))
        return self.assign(Op.CONVERT_U_TO_PTR, pointer, address)

    def _position_in_fours(self, index: int) -> tuple[int, int]:
        """Return the four that an element is in, and its position there."""
        known, two = self.known(index), self.constant(2, u32)
        if known is not None:
            return self.constant(known >> 2, u32), self.constant(known & 3, u32)
        base, more = self.split_sum(index)
        if self._zeros.get(base, 0) >= 2:
            four = self.apply("shr", i32, base, two)
            if more >> 2:
                four = self.apply("add", i32, four, self.constant(more >> 2, i32))
            return four, self.constant(more & 3, u32)
        position = self.apply("and", u32, index, self.constant(3, u32))
        return self.apply("ushr", u32, index, two), position

    def _bound_pointer(self, address: Any, dtype: DType) -> int:
        """Return a pointer into the buffer that is all memory: an address is an offset in it."""
        number, zero = self.convert(address, u64, u32), self.constant(0, u32)
        if dtype.size > 1:
            digits = self.constant(dtype.size.bit_length() - 1, u32)
            number = self.apply("ushr", u32, number, digits)
        pointer = self.assembly.pointer(StorageClass.BUFFER, self.assembly.type(dtype))
        return self.assign(Op.ACCESS_CHAIN, pointer, self.assembly.heap(dtype), zero, number)

    def _alignment(self, address: Pointer, dtype: DType) -> tuple[int, ...]:
        is_addressed = not (isinstance(address, UnaddressedElement) or self.assembly.is_bound)
        return (ALIGNED, dtype.size) if is_addressed else ()

    def at(self, address: Pointer, nbytes: int) -> Any:
        return self.moved(address, self.constant(nbytes, i64)) if nbytes else address

    def moved(self, address: Pointer, nbytes: Any, *, inside: bool = False) -> Any:  # noqa: ARG002
        return self.apply("add", u64, address, nbytes)

    def load(self, address: Pointer, dtype: DType, of: Any = None) -> int:  # noqa: ARG002
        alignment = self._alignment(address, dtype)
        pointer, kind = self._pointer(address, dtype), self.assembly.type(dtype)
        return self.assign(Op.LOAD, kind, pointer, *alignment)

    def load_four_words(self, address: Pointer, dtype: DType, of: Any = None) -> list[int]:  # noqa: ARG002
        kind, vector = self.assembly.type(u32), self.assembly.vector(4)
        if isinstance(address, UnaddressedElement):
            pointer = self.assembly.pointer(address.array.storage, vector)
            four, _ = self._position_in_fours(address.index)
            start = self.assign(Op.ACCESS_CHAIN, pointer, address.array.variable, four)
            words = self.assign(Op.LOAD, vector, start)
        else:
            pointer = self.assembly.pointer(StorageClass.PHYSICAL, vector)
            start = self.assign(Op.CONVERT_U_TO_PTR, pointer, address)
            words = self.assign(Op.LOAD, vector, start, ALIGNED, 16)
        found = (self.assign(Op.COMPOSITE_EXTRACT, kind, words, k) for k in range(4))
        return [self.bitcast(word, u32, dtype) for word in found]

    def hold_loads(self) -> None:
        """NVIDIA's compiler (580.159) moves loads behind sums to save registers.

        It takes 64 where a block has 32 threads, though few blocks run. A barrier of the subgroup
        keeps the order.
        """
        if self.assembly.features.has("crowds"):
            semantics = self.constant(ACQUIRE_RELEASE | OF_MEMORY, u32)
            self.emit(Op.MEMORY_BARRIER, self.constant(SUBGROUP_SCOPE, u32), semantics)

    def store(self, address: Pointer, dtype: DType, value: int, of: Any = None) -> None:  # noqa: ARG002
        alignment = self._alignment(address, dtype)
        self.emit(Op.STORE, self._pointer(address, dtype), value, *alignment)

    def elements_in_memory(self, count: int) -> int:
        is_changed = count > FEW_ELEMENTS and self.assembly.features.has("selects")
        return max(count, LEAST_ELEMENTS) if is_changed else count

    def local_array(self, dtype: DType, count: int) -> Words:
        return self._local_array(self.assembly.type(dtype), count)

    def local_array_of_fours(self, dtype: DType, count: int) -> Words:  # noqa: ARG002
        return self._local_array(self.assembly.vector(4), -(-count // 4), has_fours=True)

    def _local_array(self, element: int, count: int, *, has_fours: bool = False) -> Words:
        length, result = self.assembly.constant(count, u32), self.assembly.fresh()
        kind = self.assembly.declare(Op.TYPE_ARRAY, element, length)
        pointer = self.assembly.pointer(StorageClass.FUNCTION, kind)
        self._variables += instruction(Op.VARIABLE, pointer, result, StorageClass.FUNCTION)
        return Words(StorageClass.FUNCTION, result, has_fours)

    def shared_array(self, key: Any, dtype: DType, count: int) -> Words:
        arrays = self._entry.shared
        if key not in arrays:
            arrays[key] = Words(StorageClass.WORKGROUP, self.assembly.shared(dtype, count))
        return arrays[key]

    def has_atomic(self, fn: str, dtype: DType) -> bool:
        features = self.assembly.features
        if dtype.is_float:
            return fn == "add" and features.has(f"add{dtype.bits}")
        return dtype.bits == 32 or (dtype.bits == 64 and features.has("atomic64"))

    def _atomic(self, op: Op, dtype: DType, address: Pointer, *operands: int) -> int:
        is_shared = isinstance(address, UnaddressedElement)
        if dtype.bits == 64 and not dtype.is_float:
            self.assembly.features.require("shared64" if is_shared else "atomic64")
            self.assembly.require(Capability.INT_64_ATOMICS)
        scope = self.constant(BLOCK_SCOPE if is_shared else DEVICE_SCOPE, u32)
        pointer, kind = self._pointer(address, dtype), self.assembly.type(dtype)
        return self.assign(op, kind, pointer, scope, self.constant(RELAXED, u32), *operands)

    def atomic_load(self, address: Pointer, dtype: DType) -> int:
        return self._atomic(Op.ATOMIC_LOAD, dtype, address)

    def atomic(self, fn: str, dtype: DType, address: Pointer, value: int) -> int:
        if dtype.is_float:
            sums = {f32: Capability.ATOMIC_FLOAT_32_ADD, f64: Capability.ATOMIC_FLOAT_64_ADD}
            self.assembly.require(sums[dtype], "SPV_EXT_shader_atomic_float_add")
            return self._atomic(Op.ATOMIC_F_ADD, dtype, address, value)
        return self._atomic(ATOMIC[dtype.is_signed][fn], dtype, address, value)

    def atomic_store(self, address: Pointer, dtype: DType, value: int) -> None:
        self.atomic("exchange", dtype, address, value)

    def exchange_if(self, dtype: DType, address: Pointer, expected: int, value: int) -> int:
        relaxed = self.constant(RELAXED, u32)
        op = Op.ATOMIC_COMPARE_EXCHANGE
        return self._atomic(op, dtype, address, relaxed, value, expected)

    def fence(self, scope: str = "device") -> None:
        if self.assembly.features.has("fences"):
            self.emit(Op.MEMORY_BARRIER, self._scope(scope), self._ordered(scope))

    def _scope(self, scope: str) -> int:
        return self.constant(_SCOPES[scope], u32)

    def _ordered(self, scope: str) -> int:
        shared = 0 if scope == "device" else OF_SHARED_MEMORY
        return self.constant(ACQUIRE_RELEASE | OF_MEMORY | shared, u32)

    # -- other threads --------------------------------------------------------------------------

    def barrier(self, scope: str) -> None:
        if scope == "block" or self.assembly.features.has("fences"):
            where = self._scope(scope)
            self.emit(Op.CONTROL_BARRIER, where, where, self._ordered(scope))

    def _across(self, op: Op, capability: Capability, kind: int, *operands: int) -> int:
        """Write an operation of those threads of the subgroup that arrive here."""
        self._need_lanes()
        self.assembly.require(capability)
        return self.assign(op, kind, self._scope("subgroup"), *operands)

    def _need_lanes(self) -> None:
        self.assembly.features.require("lanes")
        self.assembly.require(Capability.GROUP)
        self._entry.has_lanes = True

    def read_lane(self, x: int, dtype: DType, lane: int) -> int:
        kind = self.assembly.type(dtype)
        return self._across(Op.GROUP_SHUFFLE, Capability.GROUP_SHUFFLE, kind, x, lane)

    def ballot(self, condition: int) -> int:
        kind = self.assembly.vector(4)
        bits = self._across(Op.GROUP_BALLOT, Capability.GROUP_BALLOT, kind, condition)
        word = self.assembly.type(u32)
        low, high = (
            self.convert(self.assign(Op.COMPOSITE_EXTRACT, word, bits, k), u32, u64) for k in (0, 1)
        )
        return self.apply("or", u64, low, self.apply("shl", u64, high, self.constant(32, u64)))

    def all_at(self, address: Pointer) -> int:
        everybody = self.constant((1 << self.subgroup) - 1, u64)
        high = self.apply("ushr", u64, address, self.constant(32, u64))
        first, is_same = self.constant(0, u32), self.constant(True, u1)
        for half in (address, high):
            own = self.convert(half, u64, u32)
            other = self.read_lane(own, u32, first)  # anything, if that lane is not here
            is_same = self.apply("and", u1, is_same, self.compare("eq", u32, own, other))
        return self.compare("eq", u64, self.ballot(is_same), everybody)

    # -- functions ------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
        operands: Sequence[int],
    ) -> int:
        def write(function: int) -> None:
            code = type(self)(self.assembly, self._entry)
            code.write_function(function, parameters, result, make)
            self.assembly.depths[function] = code.nesting.deepest

        function = self.assembly.helper(name, write)
        self.nesting.see(self.assembly.depths[function])
        return self.assign(Op.FUNCTION_CALL, self._result_type(result), function, *operands)

    def _result_type(self, result: DType | None) -> int:
        return self.assembly.void() if result is None else self.assembly.type(result)

    def write_function(
        self,
        function: int,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
    ) -> None:
        """Write a complete function, with the result id ``function``, and add it to the module."""
        assembly = self.assembly
        types = [assembly.type(dtype or u64) for dtype in parameters]
        given = [assembly.fresh() for _ in parameters]
        returned = self._result_type(result)
        whole = assembly.function_type(returned, types)
        value = make(self, given)
        self.tell_cuts()
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

    # -- threads -------------------------------------------------------------------------------

    def thread(self) -> int:
        return self._wide(BuiltIn.GLOBAL_INVOCATION)

    def threads(self) -> int:
        return self.apply("mul", i64, self.blocks(), self.constant(self._entry.block, i64))

    def block(self) -> int:
        return self._wide(BuiltIn.WORKGROUP)

    def blocks(self) -> int:
        """Return the number of blocks: the grid has one dimension."""
        return self._wide(BuiltIn.NUMBER_OF_WORKGROUPS)

    def thread_in_block(self) -> int:
        if not self._entry.numbered:
            return self._built_in(BuiltIn.LOCAL_INVOCATION)

        def make() -> int:
            size = self.constant(self.subgroup, u32)
            before = self.apply("mul", u32, self.subgroup_in_block(), size)
            return self.apply("add", u32, before, self._of_subgroup(BuiltIn.LANE))

        return self.hoisted("thread in block", make)

    def threads_in_block(self) -> int:
        return self.constant(self._entry.block, u32)

    def subgroup_in_block(self) -> int:
        return self._of_subgroup(BuiltIn.SUBGROUP)

    def lane(self) -> int:
        return self._of_subgroup(BuiltIn.LANE)

    def _of_subgroup(self, which: BuiltIn) -> int:
        """Return a built-in of a subgroup. Devices number threads and lanes as they like."""
        self._need_lanes()
        kind, variable = self.assembly.type(u32), self.assembly.built_in(which)
        return self.hoisted(which, lambda: self.assign(Op.LOAD, kind, variable))

    def _wide(self, which: BuiltIn) -> int:
        number = self._built_in(which)
        return self.hoisted(("wide", which), lambda: self.convert(number, u32, i64))

    def workgroup_row(self) -> int:
        """Zero, since all workgroups stand in one row; the driver's compiler does not know that."""
        return self._built_in(BuiltIn.WORKGROUP, 1)

    def _built_in(self, which: BuiltIn, axis: int = 0) -> int:
        def make() -> int:
            vector = self.assign(Op.LOAD, self.assembly.vector(3), self.assembly.built_in(which))
            return self.assign(Op.COMPOSITE_EXTRACT, self.assembly.type(u32), vector, axis)

        return self.hoisted((which, axis), make)
