"""One function of a library of Metal while it is written, line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.instruction_writer import Kind, Pointer, ThreadCode, UnaddressedElement
from octants.codegen.instruction_writer import register as register
from octants.codegen.metal.library_text import (
    EntryPoint,
    LibraryText,
    Literal,
    memory_type,
    shared_offset,
    signed_type,
)
from octants.codegen.structured.f16_conversions import call_half_function
from octants.diagnostics.span import Span
from octants.lazy_dataclass import dataclass
from octants.types.scalars import DType, f32, i64, u1, u32, u64

_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "quotient": "/",
    "remainder": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "ushr": ">>",
}
_BOOL = {"and": "&&", "or": "||", "xor": "!=", "eq": "==", "ne": "!="}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DEPEND_ON_SIGN = ("quotient", "remainder", "shr")
_FUNCTIONS = {
    "abs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "trunc": "trunc",
    "sqrt": "precise::sqrt",
    "fma": "fma",
}
_SCOPES = {"device": "device", "block": "threadgroup", "subgroup": "simdgroup"}
_ALL_MEMORY = "mem_flags::mem_device | mem_flags::mem_threadgroup"
_DEVICE = "@device"  # until it is known whether the function has a fence of the device


@dataclass(frozen=True, slots=True)
class Words:
    """An array without addresses: its text, and whether the threads of a block share it."""

    text: str
    dtype: DType
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the function, and its type in the text."""

    name: str
    kind: str


class MetalCode(ThreadCode):
    """All instructions of a function, as text."""

    has_f64 = False
    shares_by_address = False
    masks = False

    def __init__(self, library: LibraryText, entry: EntryPoint) -> None:
        self.library = library
        self.legal = library.legal
        self.subgroup = library.features.lanes
        self.gathers = self.subgroup > 1
        self.uses_thread = False
        self._is_coherent = False
        self._entry = entry
        self._variables: list[str] = []
        self._start: list[str] = []
        self._lines: list[str] = []
        self._depth = 1
        self._is_open = True
        self._hoisted: dict[Any, Any] = {}

    # -- lines ----------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """Write a line, unless control never comes here."""
        if self._is_open:
            self._lines.append("    " * self._depth + text + "\n")

    def _assign(self, kind: str, text: str) -> str:
        """A value that has a name."""
        name = self.library.fresh("v")
        self.emit(f"{kind} {name} = {text};")
        return name

    def _of_thread(self, member: str) -> str:
        self.uses_thread = True
        return f"self.{member}"

    def note(self, location: Span | None) -> None:
        if location is not None:
            self.library.features.location = location

    # -- values ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> Literal:
        return self.library.constant(value, dtype)

    def known(self, operand: str) -> Any:
        return operand.value if isinstance(operand, Literal) else None

    def apply(self, fn: str, dtype: DType, *operands: str) -> str:
        kind = self.library.type(dtype)
        if dtype is u1:
            a, *rest = operands
            return self._assign(kind, f"{a} {_BOOL[fn]} {rest[0]}" if rest else f"!{a}")
        if dtype.is_float:
            return self._assign(kind, _float_text(fn, operands))
        return self._assign(kind, _integer_text(fn, dtype, kind, operands))

    def compare(self, fn: str, dtype: DType, a: str, b: str) -> str:
        if dtype.is_integer and dtype.is_signed and fn not in ("eq", "ne"):
            kind = signed_type(dtype)
            a, b = f"{kind}({a})", f"{kind}({b})"
        return self._assign("bool", f"{a} {_COMPARE[fn]} {b}")

    def choose(self, condition: str, dtype: DType, on_true: str, on_false: str) -> str:
        return self._assign(self.library.type(dtype), f"{condition} ? {on_true} : {on_false}")

    def convert(self, x: str, source: DType, target: DType) -> str:
        kind = self.library.type(target)
        if source is u1:
            return self.choose(x, target, self.constant(1, target), self.constant(0, target))
        if source.is_float and target.is_float:
            return x
        if source.is_float:
            return self._assign(
                kind, f"{kind}({signed_type(target)}({x}))" if target.is_signed else f"{kind}({x})"
            )
        if not target.is_float and source.bits == target.bits:
            return x
        if source.is_signed and (target.is_float or target.bits > source.bits):
            x = f"{signed_type(source)}({x})"
            x = x if target.is_float else f"{signed_type(target)}({x})"
        return self._assign(kind, f"{kind}({x})")

    def bitcast(self, x: str, source: DType, target: DType) -> str:
        if source.is_float == target.is_float:
            return x
        return self._as(self.library.type(target), x)

    def _as(self, kind: str, x: str) -> str:
        return self._assign(kind, f"as_type<{kind}>({x})")

    def half_bits(self, x: str) -> str:
        return str(call_half_function(self, "half_bits", f32, u32, x))

    def half_value(self, word: str) -> str:
        return str(call_half_function(self, "half_value", u32, f32, word))

    # -- variables, and control flow ------------------------------------------------------------

    def variable(self, dtype: DType) -> Variable:
        made = Variable(self.library.fresh("x"), self.library.type(dtype))
        self._variables.append(f"    {made.kind} {made.name};\n")
        return made

    def read(self, variable: Variable) -> str:
        return self._assign(variable.kind, variable.name)

    def write(self, variable: Variable, operand: str) -> None:
        self.emit(f"{variable.name} = {operand};")

    def branch(
        self,
        condition: str,
        then: Callable[[], object],
        orelse: Callable[[], object] | None = None,
        *,
        rare: bool = False,  # noqa: ARG002
    ) -> None:
        if not self._is_open:
            return
        self.emit(f"if ({condition}) {{")
        self._inside(then)
        if orelse is not None:
            self.emit("} else {")
            self._inside(orelse)
        self.emit("}")

    def _inside(self, write: Callable[[], object]) -> None:
        self._depth += 1
        write()
        self._depth -= 1
        self._is_open = True

    def loop(
        self,
        test: Callable[[], str],
        body: Callable[[], object],
        is_left: Callable[[], str] | None = None,  # noqa: ARG002
    ) -> None:
        if not self._is_open:
            return

        def write() -> None:
            self.emit(f"if (!{test()}) break;")
            body()

        self.emit("while (true) {")
        self._inside(write)
        self.emit("}")

    def stop(self) -> None:
        self.emit("break;")
        self._is_open = False

    def leave(self) -> None:
        self.emit("return;")
        self._is_open = False

    def hoisted(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._hoisted:
            state = self._lines, self._is_open, self._depth
            self._lines, self._is_open, self._depth = self._start, True, 1
            self._hoisted[key] = make()
            self._lines, self._is_open, self._depth = state
        return self._hoisted[key]

    # -- memory ---------------------------------------------------------------------------------

    def _pointer(self, address: Pointer, kind: str) -> str:
        """Return a pointer to an object of Metal's type `kind`, such as `uint` or `atomic_int`."""
        if not isinstance(address, UnaddressedElement):
            return f"(device {kind}*)({address})"
        words: Words = address.array
        where = "threadgroup" if words.is_shared else "thread"
        return f"({where} {kind}*)(&{words.text}[{address.index}])"

    def _number(self, address: Pointer, dtype: DType) -> str:
        """A number in memory, as an integer."""
        if isinstance(address, UnaddressedElement):
            return f"{address.array.text}[{address.index}]"
        return f"*({_DEVICE} {memory_type(dtype)}*)({address})"

    def at(self, address: Pointer, nbytes: int) -> Pointer:
        return self.moved(address, self.constant(nbytes, i64)) if nbytes else address

    def moved(self, address: Pointer, nbytes: str, *, inside: bool = False) -> Pointer:  # noqa: ARG002
        return self.apply("add", u64, address, nbytes)

    def load(self, address: Pointer, dtype: DType, of: Any = None) -> str:  # noqa: ARG002
        kind, number = self.library.type(dtype), self._number(address, dtype)
        if isinstance(address, UnaddressedElement) or not dtype.is_float:
            return self._assign(kind, number)
        return self._as(kind, self._assign(memory_type(dtype), number))

    def store(self, address: Pointer, dtype: DType, value: str, of: Any = None) -> None:  # noqa: ARG002
        if dtype.is_float and not isinstance(address, UnaddressedElement):
            value = self._as(memory_type(dtype), value)
        self.emit(f"{self._number(address, dtype)} = {value};")

    def local_array(self, dtype: DType, count: int) -> Words:
        words = Words(self.library.fresh("a"), dtype, is_shared=False)
        self._variables.append(f"    {self.library.type(dtype)} {words.text}[{count}];\n")
        return words

    def shared_array(self, key: Any, dtype: DType, count: int) -> Words:
        offset = shared_offset(self._entry, key, dtype.size * count)
        start = f"{self._of_thread('shared')} + {offset}"
        return Words(f"((threadgroup {memory_type(dtype)}*)({start}))", dtype, is_shared=True)

    # -- atomic updates -------------------------------------------------------------------------

    def has_atomic(self, fn: str, dtype: DType) -> bool:
        if dtype.is_float:
            return fn == "add" and dtype is f32 and self.library.features.has("add32")
        return dtype.bits == 32

    def _atomic(self, fn: str, dtype: DType, address: Pointer, *operands: str) -> str:
        if dtype.bits == 64:
            is_shared = isinstance(address, UnaddressedElement)
            self.library.features.require("shared64" if is_shared else "atomic64")
        is_signed = dtype.is_signed and not dtype.is_float and fn in ("fetch_min", "fetch_max")
        kind = "float" if dtype.is_float else "int" if is_signed else "uint"
        given = [f"int({each})" if is_signed else each for each in operands]
        arguments = ", ".join([self._pointer(address, f"atomic_{kind}"), *given])
        text = f"atomic_{fn}_explicit({arguments}, memory_order_relaxed)"
        return f"uint({text})" if is_signed else text

    def atomic_load(self, address: Pointer, dtype: DType) -> str:
        return self._assign("uint", self._atomic("load", dtype, address))

    def atomic_store(self, address: Pointer, dtype: DType, value: str) -> None:
        self.emit(self._atomic("store", dtype, address, value) + ";")

    def atomic(self, fn: str, dtype: DType, address: Pointer, value: str) -> str:
        name = fn if fn == "exchange" else f"fetch_{fn}"
        return self._assign(self.library.type(dtype), self._atomic(name, dtype, address, value))

    def exchange_if(self, dtype: DType, address: Pointer, expected: str, value: str) -> str:
        if dtype.bits == 64:
            is_shared = isinstance(address, UnaddressedElement)
            self.library.features.require("shared64" if is_shared else "atomic64")
        pointer = self._pointer(address, "atomic_uint")
        return self._assign("uint", f"exchange_if({pointer}, {expected}, {value})")

    def fence(self, scope: str = "device") -> None:
        self._is_coherent |= scope == "device"
        where = f"thread_scope_{_SCOPES[scope]}"
        self.emit(f"atomic_thread_fence({_ALL_MEMORY}, memory_order_seq_cst, {where});")

    # -- other threads --------------------------------------------------------------------------

    def barrier(self, scope: str) -> None:
        self.emit(f"{_SCOPES[scope]}_barrier({_ALL_MEMORY});")

    def _need_lanes(self) -> None:
        self.library.features.require("lanes")
        self._entry.has_lanes = True

    def read_lane(self, x: str, dtype: DType, lane: str) -> str:
        self._need_lanes()
        return self._assign(self.library.type(dtype), f"simd_shuffle({x}, ushort({lane}))")

    def ballot(self, condition: str) -> str:
        self._need_lanes()
        return self._assign("ulong", f"ulong((simd_vote::vote_t)simd_ballot({condition}))")

    def all_at(self, address: Pointer) -> str:
        everybody = self.constant((1 << self.subgroup) - 1, u64)
        found = self.compare("eq", u64, self.ballot(self.constant(True, u1)), everybody)
        for shift in (0, 32):
            half = self._assign("uint", f"uint({address} >> {shift})")
            first = self._assign("uint", f"simd_broadcast_first({half})")
            is_same = self._assign("bool", f"simd_all({half} == {first})")
            found = self.apply("and", u1, found, is_same)
        return found

    # -- functions ------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
        operands: Sequence[str],
    ) -> str:
        def write(written: str) -> bool:
            code = type(self)(self.library, self._entry)
            return code.write_function(written, parameters, result, make)

        helper = self.library.helper(name, write)
        self.uses_thread |= helper.uses_thread
        given = [*["self"] * helper.uses_thread, *operands]
        text = f"{helper.name}({', '.join(given)})"
        if result is not None:
            return self._assign(self.library.type(result), text)
        self.emit(text + ";")
        return ""

    def write_function(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
    ) -> bool:
        """Write the whole of a function; gives whether it uses the thread."""
        kinds = [self.library.type(dtype or u64) for dtype in parameters]
        given = [self.library.fresh("p") for _ in parameters]
        value = make(self, given)
        if result is not None:
            self.emit(f"return {value};")
        declared = ["thread const Thread& self"] * self.uses_thread
        declared += [f"{kind} {name}" for kind, name in zip(kinds, given, strict=True)]
        returned = "void" if result is None else self.library.type(result)
        head = f"\nstatic {returned} {name}({', '.join(declared)})\n{{\n"
        self.library.functions.append(head + self.body() + "}\n")
        return self.uses_thread

    def body(self) -> str:
        """The lines of the function.

        Memory is coherent within a block unless accesses say that other blocks see them, which
        those say that a fence of the device orders.
        """
        device = "coherent(device) device" if self._is_coherent else "device"
        return "".join([*self._variables, *self._start, *self._lines]).replace(_DEVICE, device)

    # -- a launch -------------------------------------------------------------------------------

    def parameters(self) -> str:
        return self._pushed(0)

    def launch_word(self, offset: int) -> str:
        return self._pushed(1 + offset // 8)

    def launch_address(self, offset: int) -> str:
        return self._pushed(1 + offset // 8)

    def _pushed(self, word: int) -> str:
        text = self._of_thread(f"launch->words[{word}]")
        found: str = self.hoisted(("pushed", word), lambda: self._assign("ulong", text))
        return found

    def _built_in(self, member: str, kind: str = "ulong") -> str:
        text = f"{kind}({self._of_thread(member)})"
        found: str = self.hoisted((member, kind), lambda: self._assign(kind, text))
        return found

    def thread(self) -> str:
        return self._built_in("in_grid")

    def threads(self) -> str:
        return self.apply("mul", i64, self.blocks(), self.constant(self._entry.threads, i64))

    def block(self) -> str:
        return self._built_in("block")

    def blocks(self) -> str:
        return self._built_in("blocks")

    def thread_in_block(self) -> str:
        if not self._entry.numbered:
            return self._built_in("in_block", "uint")

        def make() -> str:
            first = self.apply(
                "mul", u32, self._of_thread("subgroup"), self.constant(self.subgroup, u32)
            )
            return self.apply("add", u32, first, self._of_thread("lane"))

        found: str = self.hoisted("thread in block", make)
        return found

    def threads_in_block(self) -> str:
        return self.constant(self._entry.threads, u32)

    def lane(self) -> str:
        self._need_lanes()
        return self._built_in("lane", "uint")


def _float_text(fn: str, operands: Sequence[str]) -> str:
    if fn == "neg":
        return f"-{operands[0]}"
    if fn in _FUNCTIONS:
        return f"{_FUNCTIONS[fn]}({', '.join(operands)})"
    a, b = operands
    return f"{a} {_OPERATORS[fn]} {b}"


def _integer_text(fn: str, dtype: DType, kind: str, operands: Sequence[str]) -> str:
    """An instruction of integers; those of less than 32 bits are computed with as many."""
    by_sign = dtype.is_signed and fn in _DEPEND_ON_SIGN
    given = [f"{signed_type(dtype)}({each})" for each in operands] if by_sign else list(operands)
    if dtype.bits < 32:
        given = [f"{'int' if by_sign else 'uint'}({each})" for each in given]
    if fn == "popcount":
        text = f"popcount({given[0]})"
    elif len(given) == 1:
        text = f"{'0u -' if fn == 'neg' else '~'} {given[0]}"
    else:
        text = f"{given[0]} {_OPERATORS[fn]} {given[1]}"
    return f"{kind}({text})" if by_sign or dtype.bits < 32 or fn == "neg" else text
