"""`Code` over the text of an LLVM function.

Addresses are pointers, and so is an array of the function. Variables are stack slots, which LLVM
turns into registers. Loads and stores without an array are of memory outside all arrays: messages,
record buffers, launch words, and memory of a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from octants.codegen.instruction_writer import Code, Kind, Pointer, UnaddressedElement
from octants.codegen.llvm import emulated_f16
from octants.codegen.llvm import types_and_literals as names
from octants.codegen.llvm.control_flow import no_unrolling
from octants.codegen.llvm.function_text import FunctionText
from octants.codegen.llvm.math_functions import finished
from octants.codegen.llvm.rsqrt_estimates import ReciprocalRoot
from octants.diagnostics.span import Span
from octants.ir.core import ArrayRef, Companion, Space
from octants.ir.ops.arithmetic import BITWISE, COMPARE, QUOTIENTS
from octants.lazy_dataclass import dataclass
from octants.lowering.legal_operations import (
    EXACT,
    FLOATS,
    INTEGERS,
    SIGNED_INTEGERS,
    Legal,
    casts,
    table,
)
from octants.mathlib.function_registry import ALL
from octants.types import scalars
from octants.types.scalars import DType, f16, f32, f64, u1

_INTEGER = {
    **{fn: fn for fn in ("add", "sub", "mul", "and", "or", "xor", "shl")},
    "ushr": "lshr",
}
_BY_SIGN = {"quotient": ("sdiv", "udiv"), "remainder": ("srem", "urem"), "shr": ("ashr", "lshr")}
_INTEGER_INTRINSIC = {"min": ("smin", "umin"), "max": ("smax", "umax"), "popcount": ("ctpop",) * 2}
_FLAGGED = {"clz": "ctlz", "abs": "abs"}
"""Intrinsics with an i1 flag for a special operand whose result is undefined; we pass false."""

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "neg": "fneg"}
_INTRINSIC = {"abs": "fabs", "round": "rint"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_BASIC = ("add", "sub", "mul", "neg")
_ON_INTEGERS = (*_BASIC, *BITWISE, "not", "quotient", "remainder", "lsl", "lsr", "popcount", "clz")
_ATOMIC = {fn: fn for fn in ("add", "sub", "and", "or", "xor")} | {"exchange": "xchg"}
_FLOAT_ATOMIC = {"add": "fadd", "sub": "fsub", "exchange": "xchg"}


@dataclass(frozen=True, slots=True)
class Variable:
    """A stack slot."""

    address: str
    dtype: DType


class LlvmCode(Code):
    """A function of the CPU, or of a GPU thread."""

    has_f64 = True
    has_wide_elements = True
    shares_by_address = True

    def __init__(self, f: FunctionText) -> None:
        self._f = f
        has_root = f.text.fast_math and f.machine.reciprocal_root is not None
        has_quotient, estimates = f.machine.quotient is not None, tuple(f.machine.estimates)
        self.legal = _legal(f.machine.has_fused, has_root, has_quotient, estimates)
        self._hoisted: dict[Any, str] = {}
        self._variables = 0
        self._exits: list[str] = []  # exits of the loops around the code being written

    def note(self, location: Span | None) -> None:
        pass

    # -- values ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> str:
        return names.literal(value, dtype)

    def known(self, operand: str) -> Any:
        if operand in ("true", "false"):
            return operand == "true"
        return int(operand) if operand.lstrip("-").isdigit() else None

    def apply(self, fn: str, dtype: DType, *operands: str) -> str:
        return self.instruction(fn, dtype)(*operands)

    def instruction(self, fn: str, dtype: DType) -> Callable[..., str]:
        """Write without fast-math flags: a replay must give the bits of the original computation.

        LLVM may compile two copies of an operation that carries such flags differently.
        """
        kind, unsigned = names.REGISTER[dtype], not dtype.is_signed
        if dtype.is_float:
            return self._float_instruction(fn, kind)
        if fn in ("not", "neg"):
            return functools.partial(self._of_one, fn, kind)
        if fn in _FLAGGED:
            return lambda x: self._f.intrinsic(_FLAGGED[fn], kind, [(kind, x)], flag=True)
        if fn in _INTEGER_INTRINSIC:
            return functools.partial(self._intrinsic, _INTEGER_INTRINSIC[fn][unsigned], kind)
        name = _INTEGER.get(fn) or _BY_SIGN[fn][unsigned]
        return functools.partial(self._f.apply, name, kind)

    def _float_instruction(self, fn: str, kind: str) -> Callable[..., str]:
        if fn in _FLOAT:
            return functools.partial(self._f.apply, _FLOAT[fn], kind)
        if fn == "rsqrt":
            return self._estimated_root
        if fn in self._f.machine.estimates:
            return functools.partial(self._f.machine.estimates[fn], self._f)
        if fn == "approximate_div":
            assert self._f.machine.quotient is not None
            return functools.partial(self._f.machine.quotient, self._f)
        return functools.partial(self._intrinsic, _INTRINSIC.get(fn, fn), kind)

    def _of_one(self, fn: str, kind: str, x: str) -> str:
        if fn == "neg":
            return self._f.apply("sub", kind, "0", x)
        return self._f.apply("xor", kind, x, "true" if kind == "i1" else "-1")

    def _estimated_root(self, x: str) -> str:
        estimate = self._f.machine.reciprocal_root
        assert estimate is not None
        return str(self._f.table[ReciprocalRoot](self._f, ReciprocalRoot(x, estimate)))

    def _intrinsic(self, name: str, kind: str, *operands: str) -> str:
        return self._f.intrinsic(name, kind, [(kind, x) for x in operands])

    def index(self, fn: str, a: str, b: str, *, signed: bool = False) -> str:
        return self._f.apply(f"{fn} {'nsw' if signed else 'nuw nsw'}", "i64", a, b)

    def compare(self, fn: str, dtype: DType, a: str, b: str) -> str:
        return self.comparison(fn, dtype)(a, b)

    def comparison(self, fn: str, dtype: DType) -> Callable[..., str]:
        kind = names.REGISTER[dtype]
        if dtype.is_float:
            return functools.partial(self._f.apply, f"fcmp {_FLOAT_COMPARE[fn]}", kind)
        sign = "" if fn in ("eq", "ne") else "s" if dtype.is_signed else "u"
        return functools.partial(self._f.apply, f"icmp {sign}{fn}", kind)

    def choose(self, condition: str, dtype: DType, on_true: str, on_false: str) -> str:
        return self._f.choose(condition, names.REGISTER[dtype], on_true, on_false)

    def convert(self, x: str, source: DType, target: DType) -> str:
        if not (source.is_float or target.is_float):
            known = self.known(x)
            if known is not None:
                number = int(known) if source.is_signed else known % (1 << source.bits)
                return names.literal(number, target)
            return self._resized(x, source, target)
        if source is target:
            return x
        elif source.is_float and target.is_float:
            instruction = "fpext" if source.bits < target.bits else "fptrunc"
        elif source.is_float:
            name, kind = f"fpto{'s' if target.is_signed else 'u'}i.sat", names.REGISTER[source]
            result = names.REGISTER[target]
            return self._f.intrinsic(name, result, [(kind, x)], overloads=(result, kind))
        else:
            instruction = "sitofp" if source.is_signed else "uitofp"
        return self._f.convert(instruction, names.REGISTER[source], x, names.REGISTER[target])

    def _resized(self, x: str, source: DType, target: DType) -> str:
        """Resize an integer or u1: truncate it, or extend it by its own sign."""
        if source.bits == target.bits:
            return x
        extension = "sext" if source.is_signed else "zext"
        instruction = "trunc" if source.bits > target.bits else extension
        return self._f.convert(instruction, names.REGISTER[source], x, names.REGISTER[target])

    def bitcast(self, x: str, source: DType, target: DType) -> str:
        if source.is_float == target.is_float:
            return x
        return self._f.convert("bitcast", names.REGISTER[source], x, names.REGISTER[target])

    def half_bits(self, x: str) -> str:
        return self._f.convert("zext", "i16", emulated_f16.to_integer(self._f, x), "i32")

    def half_value(self, word: str) -> str:
        return emulated_f16.from_integer(self._f, self._f.convert("trunc", "i32", word, "i16"))

    def round_half(self, x: str) -> str:
        return emulated_f16.from_bits(self._f, emulated_f16.to_bits(self._f, x))

    # -- variables, and control flow ------------------------------------------------------------

    def variable(self, dtype: DType) -> Variable:
        self._variables += 1
        key, kind = ("variable", self._variables), names.REGISTER[dtype]
        return Variable(self._f.on_stack(key, kind, dtype.size), dtype)

    def read(self, variable: Variable) -> str:
        dtype = variable.dtype
        kind = names.REGISTER[dtype]
        return self._f.assign(f"load {kind}, ptr {variable.address}, align {dtype.size}")

    def write(self, variable: Variable, operand: str) -> None:
        dtype = variable.dtype
        kind = names.REGISTER[dtype]
        self._f.emit(f"store {kind} {operand}, ptr {variable.address}, align {dtype.size}")

    def branch(
        self,
        condition: str,
        then: Callable[[], object],
        orelse: Callable[[], object] | None = None,
        *,
        rare: bool = False,
    ) -> None:
        f = self._f
        first, merge = f.fresh_label("then"), f.fresh_label("further")
        second = merge if orelse is None else f.fresh_label("else")
        f.branch_if(condition, first, second, unlikely=rare)
        for label, write in ((first, then), (second, orelse)):
            if write is not None:
                f.start(label)
                write()
                if f.is_open:
                    f.branch(merge)
        f.start(merge)

    def loop(
        self,
        test: Callable[[], str],
        body: Callable[[], object],
        is_left: Callable[[], str] | None = None,  # noqa: ARG002
    ) -> None:
        f = self._f
        head, inside, leave = (f.fresh_label(hint) for hint in ("test", "body", "leave"))
        self._exits.append(leave)
        f.enter(head)
        f.branch_if(test(), inside, leave)
        f.start(inside)
        body()
        if f.is_open:
            f.branch(head, hint=no_unrolling(f))
        f.start(leave)
        self._exits.pop()

    def stop(self) -> None:
        self._f.branch(self._exits[-1])

    def leave(self) -> None:
        self._f.leave()

    def hoisted(self, key: Any, make: Callable[[], str]) -> str:
        if key not in self._hoisted:
            f = self._f
            lines, f.lines = f.lines, f.entry
            self._hoisted[key] = make()
            f.lines = lines
        return self._hoisted[key]

    # -- memory ---------------------------------------------------------------------------------

    def at(self, address: str, nbytes: int) -> str:
        return self.moved(address, str(nbytes)) if nbytes else address

    def moved(self, address: str, nbytes: str, *, inside: bool = False) -> str:
        how = "inbounds " if inside else ""
        return self._f.assign(f"getelementptr {how}i8, ptr {address}, i64 {nbytes}")

    def _pointer(self, address: Pointer, dtype: DType) -> str:
        if not isinstance(address, UnaddressedElement):
            return str(address)
        kind = names.MEMORY[dtype]
        index = f"i64 {address.index}" if address.is_wide else f"i32 {address.index}"
        return self._f.assign(f"getelementptr {kind}, ptr {address.array}, {index}")

    def _metadata(self, of: ArrayRef | None) -> str:
        """Return an access's metadata. Arguments are invariant, so that their loads may move."""
        if of is not None and of[0].space is Space.ARGUMENT and of[1] is Companion.PRIMAL:
            return f", !invariant.load {self._f.text.empty}"
        return self._f.kernel.scopes.suffix(of)

    def load(self, address: Pointer, dtype: DType, of: ArrayRef | None = None) -> str:
        pointer, kind = self._pointer(address, dtype), names.MEMORY[dtype]
        loaded = f"load {kind}, ptr {pointer}, align {dtype.size}{self._metadata(of)}"
        found = self._f.assign(loaded)
        return self._f.apply("icmp ne", "i8", found, 0) if dtype is u1 else found

    def store(self, address: Pointer, dtype: DType, value: str, of: ArrayRef | None = None) -> None:
        pointer, kind = self._pointer(address, dtype), names.MEMORY[dtype]
        if dtype is u1:
            value = self._f.convert("zext", "i1", value, "i8")
        stored = f"store {kind} {value}, ptr {pointer}, align {dtype.size}{self._metadata(of)}"
        self._f.emit(stored)

    def local_array(self, dtype: DType, count: int) -> str:
        self._variables += 1
        kind = f"[{count} x {names.MEMORY[dtype]}]"
        return self._f.on_stack(("variable", self._variables), kind, 8)

    def has_atomic(self, fn: str, dtype: DType) -> bool:
        return fn in ("min", "max") or fn in _ATOMIC if not dtype.is_float else fn in _FLOAT_ATOMIC

    def _ordered(self, dtype: DType) -> str:
        return f"{self._f.order}, align {dtype.size}"

    def atomic_load(self, address: Pointer, dtype: DType) -> str:
        pointer, kind = self._pointer(address, dtype), names.REGISTER[dtype]
        return self._f.assign(f"load atomic {kind}, ptr {pointer} {self._ordered(dtype)}")

    def atomic_store(self, address: Pointer, dtype: DType, value: str) -> None:
        pointer, kind = self._pointer(address, dtype), names.REGISTER[dtype]
        self._f.emit(f"store atomic {kind} {value}, ptr {pointer} {self._ordered(dtype)}")

    def atomic(self, fn: str, dtype: DType, address: Pointer, value: str) -> str:
        facts = self._f.machine.atomic_facts if dtype.is_float else ""
        if dtype.is_float:
            fn = _FLOAT_ATOMIC[fn]
        elif fn in ("min", "max"):
            fn = fn if dtype.is_signed else f"u{fn}"
        else:
            fn = _ATOMIC[fn]
        pointer, kind = self._pointer(address, dtype), names.REGISTER[dtype]
        update = f"atomicrmw {fn} ptr {pointer}, {kind} {value} {self._ordered(dtype)}"
        return self._f.assign(update + facts)

    def exchange_if(self, dtype: DType, address: Pointer, expected: str, value: str) -> str:
        pointer, kind = self._pointer(address, dtype), names.REGISTER[dtype]
        pair = self._f.assign(
            f"cmpxchg ptr {pointer}, {kind} {expected}, {kind} {value} {self._f.order} monotonic,"
            f" align {dtype.size}"
        )
        return self._f.assign(f"extractvalue {{ {kind}, i1 }} {pair}, 0")

    def fence(self, scope: str = "device") -> None:  # noqa: ARG002
        self._f.emit(f"fence {self._f.order.replace('monotonic', 'acq_rel')}")

    # -- functions ------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Any]], Any],
        operands: Sequence[str],
    ) -> str:
        f = self._f
        kinds = ["ptr" if kind is None else names.REGISTER[kind] for kind in parameters]
        returned = "void" if result is None else names.REGISTER[result]
        given = [f"%x{number}" for number in range(len(kinds))]

        def written(_: Any, name: str) -> str:
            inner = FunctionText(f.kernel, f.machine, f.scalar_table, f.task)
            inner.order = f.order
            inner.start("start")
            value = make(f.machine.code(inner), given)
            listed = ", ".join(f"{kind} {x}" for kind, x in zip(kinds, given, strict=True))
            head = f"define internal {returned} {name}({listed})"
            if result is None:
                return finished(inner, f"{head} cold noinline nounwind", "ret void")
            return finished(inner, f"{head} nounwind", f"ret {returned} {value}")

        name = f.text.helper(f"@octants.{name}", written)
        listed = ", ".join(f"{kind} {x}" for kind, x in zip(kinds, operands, strict=True))
        if result is not None:
            return f.assign(f"call {returned} {name}({listed})")
        f.emit(f"call void {name}({listed})")
        return ""

    def parameters(self) -> str:
        return "%parameters"


@functools.cache
def _legal(
    has_fused: bool, has_root: bool, has_quotient: bool = False, estimates: tuple[str, ...] = ()
) -> Legal:
    """Return LLVM's instructions and intrinsics; rsqrt of f32 only if the machine estimates it."""
    functions = table(
        (INTEGERS, (*_ON_INTEGERS, "min", "max")),
        (SIGNED_INTEGERS, ("abs", "asr")),
        (FLOATS, (*_BASIC, "div", "sqrt", *EXACT, *ALL)),
        ((f16,), EXACT),
        ((u1,), (*BITWISE, "not")),
        (scalars.ALL, COMPARE),
        ((f32,) * has_root, ("rsqrt",)),
        ((f32,) * has_quotient, QUOTIENTS),
        ((f32,), estimates),
    )
    kinds = (*INTEGERS, *FLOATS)
    fused = frozenset((f32, f64) if has_fused else (f64,))
    return Legal(functions, casts((*kinds, u1), kinds), frozenset(FLOATS), fused)
