"""A SPIR-V module under construction: its sections, types and constants."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import Any

from octants import abi
from octants.codegen.spirv.opcodes import (
    COMPUTE,
    GLSL_MEMORY,
    LOGICAL_ADDRESSING,
    MAGIC,
    PHYSICAL_ADDRESSING,
    VERSION,
    BuiltIn,
    Capability,
    Decoration,
    Mode,
    Op,
    StorageClass,
    instruction,
    text_words,
)
from octants.codegen.structured.features import Features
from octants.codegen.structured.legal_operations import legal
from octants.types.scalars import DType, f32, f64, i64, u1, u32

CUT_WORD, PUSHED_WORDS = 9, 10
"""Push constants in words of 8 bytes.

They are the address of the parameter block, the launch words, and the address of a u32 in which a
bit is set where the driver has cut a loop short. Slots of the parameter block follow (see `abi`).
"""


EXCHANGING = 128
"""The most threads of a block whose subgroups, all of them whole, exchange factors of products."""

_OF_INTEGERS = {8: Capability.INT_8, 16: Capability.INT_16, 64: Capability.INT_64}


class Assembly:
    """The sections of a module. Results are numbered from 1 on.

    Signed and unsigned integers have one type: instructions determine the sign. Where all memory
    `is_bound` to the module as one buffer, addresses are offsets in that buffer. Subgroups of
    blocks of up to `exchanging` threads exchange factors of products.
    """

    def __init__(self, features: Features, *, fast_math: bool = False) -> None:
        self.features = features
        self.legal = legal(
            features.has("float64"),
            fast_math,
            features.has("estimates"),
            extremes=fast_math,
            roots=fast_math and features.has("gathers"),
            rounds=features.has("rounds64"),
        )
        exchanges = fast_math and features.has("gathers") and features.has("whole")
        self.exchanging = EXCHANGING if exchanges and features.lanes > 1 else 0
        self.functions: list[int] = []
        self.depths: dict[int, int] = {}  # of helpers, by result
        self._bound = 0
        has_many = features.has("push256")
        self.pushed_slots = abi.MANY_PUSHED_SLOTS if has_many else abi.PUSHED_SLOTS
        self.is_bound = not (features.has("addresses") and features.has("int64"))
        self._capabilities = {Capability.SHADER: None}
        self._extensions: dict[str, None] = {}
        self._modes: list[int] = []
        self._entries: list[tuple[str, int, list[int]]] = []
        self._decorations: list[int] = []
        self._declarations: list[int] = []
        self._known: dict[Any, int] = {}
        self._types: dict[DType, int] = {}
        self._globals: list[int] = []
        self._constants: dict[int, Any] = {}
        self._helpers: dict[str, int] = {}
        self.library = self.fresh()
        if not self.is_bound:
            self.require(Capability.PHYSICAL_ADDRESSES)

    # -- results --------------------------------------------------------------------------------

    def fresh(self) -> int:
        """Return a new result id."""
        self._bound += 1
        return self._bound

    def declare(self, op: Op, *operands: int) -> int:
        """Declare a type, once for equal operands."""
        return self.once((op, *operands), lambda result: instruction(op, result, *operands))

    def once(self, key: Any, make: Callable[[int], list[int]]) -> int:
        """Return a declaration, made once for each key; ``make`` gets its result id."""
        known = self._known.get(key)
        if known is None:
            known = self.fresh()
            self._declarations += make(known)
            self._known[key] = known
        return known

    def decorate(self, *operands: int) -> None:
        self._decorations += instruction(Op.DECORATE, *operands)

    def require(self, capability: Capability, extension: str = "") -> None:
        """Require a capability of the device."""
        self._capabilities[capability] = None
        if extension:
            self._extensions[extension] = None

    def helper(self, name: str, make: Callable[[int], None]) -> int:
        """Return a helper function, which ``make`` writes at the first call."""
        known = self._helpers.get(name)
        if known is None:
            known = self._helpers[name] = self.fresh()
            make(known)
        return known

    # -- types and constants --------------------------------------------------------------------

    def type(self, dtype: DType) -> int:
        """Return the type of a value in a register."""
        known = self._types.get(dtype)
        if known is None:
            known = self._types[dtype] = self._declare_type(dtype)
        return known

    def _declare_type(self, dtype: DType) -> int:
        if dtype is u1:
            return self.declare(Op.TYPE_BOOL)
        if dtype.is_float:
            if dtype is f64:
                self.features.require("float64")
                self.require(Capability.FLOAT_64)
            return self.declare(Op.TYPE_FLOAT, dtype.bits)
        if dtype.bits != 32:
            self.features.require(f"int{dtype.bits}")
            self.require(_OF_INTEGERS[dtype.bits])
        return self.declare(Op.TYPE_INT, dtype.bits, 0)

    def void(self) -> int:
        return self.declare(Op.TYPE_VOID)

    def pointer(self, storage: StorageClass, target: int) -> int:
        """Return the type of pointers to a type."""
        return self.declare(Op.TYPE_POINTER, storage, target)

    def function_type(self, result: int, parameters: list[int]) -> int:
        return self.declare(Op.TYPE_FUNCTION, result, *parameters)

    def constant(self, value: Any, dtype: DType) -> int:
        """Return a number that ``dtype`` can hold."""
        kind = self.type(dtype)
        op, words = Op.CONSTANT, [] if dtype is u1 else _literal(value, dtype)
        if dtype is u1:
            op = Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE
        result = self.once((op, kind, *words), lambda result: instruction(op, kind, result, *words))
        self._constants.setdefault(result, value)
        return result

    def known(self, result: int) -> Any:
        """Return the number of a constant result, else None."""
        return self._constants.get(result)

    # -- variables of the module ----------------------------------------------------------------

    def pushed(self) -> int:
        """Return the variable of the push constants: words of 8 bytes, or their halves."""
        return self.once("pushed", self._declare_pushed)

    def _declare_pushed(self, result: int) -> list[int]:
        """Declare the push constants: the launch's words, as members of a struct."""
        struct_type, word = self.fresh(), i64 if self.features.has("int64") else u32
        members = (PUSHED_WORDS + self.pushed_slots) * 8 // word.size
        words = instruction(Op.TYPE_STRUCT, struct_type, *[self.type(word)] * members)
        self._declarations += words
        self.decorate(struct_type, Decoration.BLOCK)
        for member in range(members):
            offset = (struct_type, member, Decoration.OFFSET, word.size * member)
            self._decorations += instruction(Op.MEMBER_DECORATE, *offset)
        pointer = self.pointer(StorageClass.PUSH_CONSTANT, struct_type)
        self._globals.append(result)
        return instruction(Op.VARIABLE, pointer, result, StorageClass.PUSH_CONSTANT)

    def heap(self, dtype: DType) -> int:
        """Return the variable of the buffer that is all memory, as an array of numbers."""
        kind = self.type(dtype)
        return self.once(("heap", kind), lambda result: self._declare_heap(result, kind, dtype))

    def _declare_heap(self, result: int, kind: int, dtype: DType) -> list[int]:
        """Declare the buffer that is all memory, as an array of numbers of a type."""
        numbers, whole = self.fresh(), self.fresh()
        self._declarations += instruction(Op.TYPE_RUNTIME_ARRAY, numbers, kind)
        self._declarations += instruction(Op.TYPE_STRUCT, whole, numbers)
        self.decorate(numbers, Decoration.ARRAY_STRIDE, dtype.size)
        self.decorate(whole, Decoration.BLOCK)
        self._decorations += instruction(Op.MEMBER_DECORATE, whole, 0, Decoration.OFFSET, 0)
        for decoration in (Decoration.DESCRIPTOR_SET, Decoration.BINDING):
            self.decorate(result, decoration, 0)
        self.decorate(result, Decoration.ALIASED)
        pointer = self.pointer(StorageClass.BUFFER, whole)
        self._globals.append(result)
        return instruction(Op.VARIABLE, pointer, result, StorageClass.BUFFER)

    def built_in(self, which: BuiltIn) -> int:
        """Return a built-in variable: three u32, or one for built-ins of a subgroup."""
        return self.once(("built in", which), lambda result: self._declare_built_in(result, which))

    def _declare_built_in(self, result: int, which: BuiltIn) -> list[int]:
        self.decorate(result, Decoration.BUILT_IN, which)
        is_one = which in (BuiltIn.SUBGROUP, BuiltIn.LANE)
        pointer = self.pointer(StorageClass.INPUT, self.type(u32) if is_one else self.vector(3))
        self._globals.append(result)
        return instruction(Op.VARIABLE, pointer, result, StorageClass.INPUT)

    def vector(self, count: int) -> int:
        """Return the type of so many u32."""
        return self.declare(Op.TYPE_VECTOR, self.type(u32), count)

    def array(self, dtype: DType, count: int) -> int:
        """Return the type of an array of so many numbers."""
        return self.declare(Op.TYPE_ARRAY, self.type(dtype), self.constant(count, u32))

    def shared(self, dtype: DType, count: int) -> int:
        """Declare an array that the threads of a block share."""
        pointer, result = (
            self.pointer(StorageClass.WORKGROUP, self.array(dtype, count)),
            self.fresh(),
        )
        self._declarations += instruction(Op.VARIABLE, pointer, result, StorageClass.WORKGROUP)
        return result

    def add_entry(self, name: str, function: int, block: int, shared: list[int]) -> None:
        """Make a function an entry point, with so many threads in a block, which share arrays."""
        self._entries.append((name, function, shared))
        self._modes += instruction(Op.EXECUTION_MODE, function, Mode.LOCAL_SIZE, block, 1, 1)

    # -- output ---------------------------------------------------------------------------------

    def finish(self) -> bytes:
        """Return the bytes of the module."""
        self._add_float_modes()
        words: list[int] = []
        for capability in self._capabilities:
            words += instruction(Op.CAPABILITY, capability)
        for extension in self._extensions:
            words += instruction(Op.EXTENSION, *text_words(extension))
        words += instruction(Op.EXT_INST_IMPORT, self.library, *text_words("GLSL.std.450"))
        addressing = LOGICAL_ADDRESSING if self.is_bound else PHYSICAL_ADDRESSING
        words += instruction(Op.MEMORY_MODEL, addressing, GLSL_MEMORY)
        for name, function, shared in self._entries:
            operands = (COMPUTE, function, *text_words(name), *self._globals, *shared)
            words += instruction(Op.ENTRY_POINT, *operands)
        words += self._modes + self._decorations + self._declarations + self.functions
        head = (MAGIC, VERSION, 0, self._bound + 1, 0)
        return _little_endian(array("I", [*head, *words]))

    def _add_float_modes(self) -> None:
        """Set round-to-nearest, signed zeros, and NaN, as far as the device supports them."""
        modes = (
            ("nan", Mode.SIGNED_ZERO_INF_NAN_PRESERVE, Capability.SIGNED_ZERO_INF_NAN_PRESERVE),
            ("rte", Mode.ROUNDING_MODE_RTE, Capability.ROUNDING_MODE_RTE),
            ("denormals", Mode.DENORM_PRESERVE, Capability.DENORM_PRESERVE),
        )
        widths = [d.bits for d in (f32, f64) if (Op.TYPE_FLOAT, d.bits) in self._known]
        for name, mode, capability in modes:
            for bits in widths:
                if self.features.has(f"{name}{bits}"):
                    self.require(capability)
                    for _, function, _ in self._entries:
                        self._modes += instruction(Op.EXECUTION_MODE, function, mode, bits)


def _little_endian(words: array[int]) -> bytes:
    if struct.pack("=I", 1) != struct.pack("<I", 1):
        words.byteswap()
    return words.tobytes()


def _literal(value: Any, dtype: DType) -> list[int]:
    """Return the words of a constant; narrow integers are extended to 32 bits."""
    if dtype.is_float:
        data = struct.pack("<d" if dtype.bits == 64 else "<f", value)
    else:
        data = (value & ((1 << max(32, dtype.bits)) - 1)).to_bytes(max(4, dtype.size), "little")
        if dtype.bits < 32:
            data = (value & ((1 << dtype.bits) - 1)).to_bytes(4, "little")
    return [int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4)]
