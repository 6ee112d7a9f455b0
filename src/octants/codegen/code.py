"""What a target implements: one function of machine code, instruction by instruction.

`Code` is all that the meaning of operations is written in where they are more than an instruction.
An operand stands for a value in a register, whatever the target makes of it. Its type is passed
with each instruction, as a scalar type of the language: u1 is a truth value, f16 never is in a
register. Instructions do what machines do: the caller sees to it that nothing undefined is asked
for. `codegen.spirv.code` implements all of it, `codegen.llvm.code` what several targets share.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from octants.diagnostics.span import Span
from octants.ir.core import ArrayRef
from octants.lazy_dataclass import dataclass
from octants.lowering.legal import Legal
from octants.types.scalars import DType, f16, f32, i64, u32, u64

Operand: TypeAlias = Any
MutableSlot: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Element:
    """A place in an array of the code, which has no address; `index` is a u32."""

    array: Any
    index: Operand


Pointer: TypeAlias = Any
"""An address, or an `Element`. What several targets share moves addresses by `Code` alone."""


def register(dtype: DType) -> DType:
    """The type of what stands for a value of a type: f16 is an f32 that holds one of its values."""
    return f32 if dtype is f16 else dtype


Kind: TypeAlias = DType | None
"""The type of a function's parameter; None is that of an address."""

ARITHMETIC = frozenset(("add", "sub", "mul", "neg"))  # integers wrap, floats round
INTEGER = frozenset(("quotient", "remainder", "and", "or", "xor", "not", "shl", "shr", "ushr"))
FLOAT = frozenset(("div", "abs", "floor", "ceil", "round", "trunc", "sqrt", "fma"))
SOMEWHERE = frozenset(("min", "max", "abs", "popcount", "clz", "rsqrt"))  # where they are legal
ATOMIC = frozenset(("add", "sub", "min", "max", "and", "or", "xor", "exchange"))


class Code(ABC):
    """One function of a target while it is written."""

    has_f64: bool
    """Whether the machine has f64."""

    shares_by_address: bool
    """Whether what the threads of a block share has addresses; else it is an array of words."""
    legal: Legal
    """The operations for which there are instructions, or functions of `mathlib`."""

    @abstractmethod
    def note(self, location: Span | None) -> None:
        """Say what the code is written for that follows."""

    # -- values ---------------------------------------------------------------------------------

    @abstractmethod
    def constant(self, value: Any, dtype: DType) -> Operand:
        """A Python number that ``dtype`` can hold."""

    @abstractmethod
    def known(self, operand: Operand) -> Any:
        """The number that an operand is, None unless it is a constant."""

    @abstractmethod
    def apply(self, fn: str, dtype: DType, *operands: Operand) -> Operand:
        """One of `ARITHMETIC`, of `INTEGER` (on u1: and, or, xor, not), of `FLOAT`, `SOMEWHERE`.

        Of integers, `quotient` and `remainder` go towards zero; the counts of shifts are below the
        width, and `shr` keeps the sign of signed types. Whether `fma` rounds the product is up
        to the machine, but is always the same.
        """

    def index(self, fn: str, a: Operand, b: Operand, *, signed: bool = False) -> Operand:  # noqa: ARG002
        """An `add` or `mul` of i64 that does not wrap; nothing is negative, unless ``signed``."""
        return self.apply(fn, i64, a, b)

    @abstractmethod
    def compare(self, fn: str, dtype: DType, a: Operand, b: Operand) -> Operand:
        """One of `ir.ops.arithmetic.COMPARE`: a NaN is unequal to everything."""

    def instruction(self, fn: str, dtype: DType) -> Callable[..., Operand]:
        """What `apply` does for a function of a type."""
        return functools.partial(self.apply, fn, dtype)

    def comparison(self, fn: str, dtype: DType) -> Callable[..., Operand]:
        """What `compare` does for a comparison of a type."""
        return functools.partial(self.compare, fn, dtype)

    @abstractmethod
    def choose(self, condition: Operand, dtype: DType, on_true: Operand, on_false: Operand) -> Any:
        """The first operand where the condition holds, else the second."""

    @abstractmethod
    def convert(self, x: Operand, source: DType, target: DType) -> Operand:
        """A number as another type that can hold it; integers are cut off, u1 becomes 0 or 1.

        Floats become what they are legally cast to, whatever they are.
        """

    @abstractmethod
    def bitcast(self, x: Operand, source: DType, target: DType) -> Operand:
        """The bits of a number of the same width."""

    @abstractmethod
    def half_bits(self, x: Operand) -> Operand:
        """The 16 bits (u32) of the f16 nearest to an f32, even at a tie."""

    @abstractmethod
    def half_value(self, word: Operand) -> Operand:
        """The f32 that is the f16 of 16 bits (u32, zero above them)."""

    def round_half(self, x: Operand) -> Operand:
        """The value of f16 nearest to an f32, even at a tie."""
        return self.half_value(self.half_bits(x))

    # -- variables, and control flow ------------------------------------------------------------

    @abstractmethod
    def variable(self, dtype: DType) -> MutableSlot:
        """A variable of the function."""

    @abstractmethod
    def read(self, variable: MutableSlot) -> Operand: ...

    @abstractmethod
    def write(self, variable: MutableSlot, operand: Operand) -> None: ...

    @abstractmethod
    def branch(
        self,
        condition: Operand,
        then: Callable[[], object],
        orelse: Callable[[], object] | None = None,
        *,
        rare: bool = False,
    ) -> None:
        """Write both ways; nothing that is defined in them may be used after them.

        ``rare`` says that the condition hardly ever holds.
        """

    @abstractmethod
    def loop(
        self,
        test: Callable[[], Operand],
        body: Callable[[], object],
        is_left: Callable[[], Operand] | None = None,
    ) -> None:
        """Write a loop that goes on while what ``test`` computes in each turn is true.

        ``is_left`` computes the same behind the loop, so that nobody sees that it is the same.
        """

    @abstractmethod
    def stop(self) -> None:
        """Leave the innermost loop; nothing follows on this way."""

    @abstractmethod
    def leave(self) -> None:
        """Return from the function; nothing follows on this way."""

    @abstractmethod
    def hoisted(self, key: Any, make: Callable[[], Operand]) -> Operand:
        """What ``make`` computes at the start of the function, once for each key."""

    # -- memory ---------------------------------------------------------------------------------

    @abstractmethod
    def at(self, address: Pointer, nbytes: int) -> Pointer:
        """The address so many bytes after another one."""

    @abstractmethod
    def moved(self, address: Pointer, nbytes: Operand, *, inside: bool = False) -> Pointer:
        """The address that many bytes, an i64, after another one; ``inside`` one array if so."""

    @abstractmethod
    def load(self, place: Pointer, dtype: DType, of: ArrayRef | None = None) -> Operand:
        """A number of any type but u1 and f16 at a multiple of its size; an element of any type.

        It is in the array ``of`` the kernel, or in memory that no array of the kernel is in.
        """

    @abstractmethod
    def store(
        self,
        place: Pointer,
        dtype: DType,
        value: Operand,
        of: ArrayRef | None = None,
    ) -> None:
        """Have a number stand where `load` finds it."""

    @abstractmethod
    def local_array(self, dtype: DType, count: int) -> Any:
        """An array of the function's own, for `Element`."""

    @abstractmethod
    def atomic_load(self, place: Pointer, dtype: DType) -> Operand:
        """A u32 or u64 that others change meanwhile."""

    @abstractmethod
    def atomic_store(self, place: Pointer, dtype: DType, value: Operand) -> None:
        """Store what others read by `atomic_load`."""

    @abstractmethod
    def has_atomic(self, fn: str, dtype: DType) -> bool:
        """Whether one of `ATOMIC` is an instruction of the machine, at an address."""

    @abstractmethod
    def atomic(self, fn: str, dtype: DType, place: Pointer, value: Operand) -> Operand:
        """Update a place; gives what was there before."""

    @abstractmethod
    def exchange_if(
        self, dtype: DType, place: Pointer, expected: Operand, value: Operand
    ) -> Operand:
        """Store a u32 or u64 where another one is expected; gives what was there before."""

    @abstractmethod
    def fence(self, scope: str = "device") -> None:
        """Let others of a "subgroup", a "block", or all see what is stored before the rest."""

    # -- functions ------------------------------------------------------------------------------

    @abstractmethod
    def call(
        self,
        name: str,
        parameters: Sequence[Kind],
        result: DType | None,
        make: Callable[[Any, list[Operand]], Operand],
        operands: Sequence[Operand],
    ) -> Operand:
        """Call a function that ``make`` writes when it is first called, by its name.

        ``make`` gets the code of the function and its parameters, and gives what it returns.
        A function without a result is called for its effects, and rarely.
        """

    @abstractmethod
    def parameters(self) -> Operand:
        """The address of the parameter block."""


class ThreadCode(Code):
    """One function of a GPU: what a thread of a dispatch does."""

    subgroup: int
    """How many threads run in step, as far as they can exchange values; else 1."""

    gathers: bool
    """Whether it pays to put together what threads that run in step do to one place."""

    has_graphs: bool
    """Whether a launch may be the node of a graph, with the words that it has then."""

    masks: bool
    """Whether the machine runs both sides of branches, and each loop at least once."""

    # -- other threads --------------------------------------------------------------------------

    @abstractmethod
    def shared_array(self, key: Any, dtype: DType, count: int) -> Any:
        """An array of u32 or u64 that the threads of a block share, there once for each key."""

    @abstractmethod
    def barrier(self, scope: str) -> None:
        """Wait for all threads of the "block", or those of the "subgroup" that come here.

        They see what the others have stored before.
        """

    @abstractmethod
    def read_lane(self, x: Operand, dtype: DType, lane: Operand) -> Operand:
        """A u32 or f32 of a thread of the subgroup (u32) that comes here, too."""

    def read_across(self, x: Operand, dtype: DType, distance: int) -> Operand:
        """A u32 or f32 of the lane whose number differs by a bit; the whole subgroup comes here."""
        lane = self.apply("xor", u32, self.lane(), self.constant(distance, u32))
        return self.read_lane(x, dtype, lane)

    @abstractmethod
    def ballot(self, condition: Operand) -> Operand:
        """The bits, u64, of the threads of the subgroup that come here and where it holds."""

    def any_lane(self, condition: Operand) -> Operand:
        """Whether it holds for any thread of the subgroup; all of them come here."""
        return self.compare("ne", u64, self.ballot(condition), self.constant(0, u64))

    @abstractmethod
    def all_at(self, address: Pointer) -> Operand:
        """Whether all threads of the subgroup are here now, with one and the same address."""

    # -- a launch -------------------------------------------------------------------------------

    @abstractmethod
    def launch_word(self, offset: int) -> Operand:
        """One of the words of a launch (see `abi`), i64."""

    @abstractmethod
    def launch_address(self, offset: int) -> Pointer:
        """The address that one of them is."""

    @abstractmethod
    def thread(self) -> Operand:
        """The number of this thread, i64."""

    @abstractmethod
    def threads(self) -> Operand:
        """How many threads there are, i64."""

    @abstractmethod
    def block(self) -> Operand:
        """The number of the block, i64."""

    @abstractmethod
    def blocks(self) -> Operand:
        """How many blocks there are, i64."""

    @abstractmethod
    def thread_in_block(self) -> Operand:
        """The number of this thread in its block, u32."""

    @abstractmethod
    def threads_in_block(self) -> Operand:
        """How many threads a block has, u32."""

    @abstractmethod
    def lane(self) -> Operand:
        """The number of this thread in its subgroup, u32, where that has several."""

    def is_first_lane(self) -> Operand:
        """Whether this is the first thread of its subgroup."""
        return self.compare("eq", u32, self.lane(), self.constant(0, u32))
