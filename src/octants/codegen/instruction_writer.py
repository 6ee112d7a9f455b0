"""The interface of a target: write one function, instruction by instruction.

`Code` is the only interface that code shared between targets writes instructions through. An
operand stands for a value in a register, in whatever form the target uses. Its type is passed with
each instruction as a scalar type of the language: u1 is a truth value, and no register holds an
f16. Instructions do what machines do: the caller must not ask for anything undefined.
`codegen.spirv.instruction_writer` implements all of it, `codegen.llvm.instruction_writer` what
several targets share.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from octants.diagnostics.span import Span
from octants.ir.core import ArrayRef
from octants.ir.ops.arithmetic import ESTIMATES, QUOTIENTS
from octants.lazy_dataclass import dataclass
from octants.lowering.legal_operations import Legal
from octants.types.scalars import DType, f16, f32, i64, u32, u64

Operand: TypeAlias = Any
MutableSlot: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class UnaddressedElement:
    """An element of an array without an address; `index` is a u32, or an i64 if it `is_wide`."""

    array: Any
    index: Operand
    is_wide: bool = False


Pointer: TypeAlias = Any
"""An address, or an `UnaddressedElement`. Shared code computes addresses through `Code` alone."""


def register(dtype: DType) -> DType:
    """Return the register type of a value: f32 for an f16, else the type itself."""
    return f32 if dtype is f16 else dtype


Kind: TypeAlias = DType | None
"""The type of a function's parameter; None is that of an address."""

ARITHMETIC = frozenset(("add", "sub", "mul", "neg"))  # integers wrap, floats round
INTEGER = frozenset(("quotient", "remainder", "and", "or", "xor", "not", "shl", "shr", "ushr"))
FLOAT = frozenset(("div", "abs", "floor", "ceil", "round", "trunc", "sqrt", "fma"))
SOMEWHERE = frozenset(("min", "max", "abs", "popcount", "clz", "rsqrt")) | ESTIMATES | QUOTIENTS
"""Functions that some targets have."""
ATOMIC = frozenset(("add", "sub", "min", "max", "and", "or", "xor", "exchange"))


class Code(ABC):
    """One function of a target under construction."""

    has_f64: bool
    """Whether the machine has f64."""

    shares_by_address: bool
    """Whether memory that a block's threads share has addresses; else it is an array of words."""
    legal: Legal
    """The operations that have instructions, or are functions of `mathlib`."""
    has_narrow_offsets = False
    """Whether offsets in arrays of less than 2**30 bytes are better computed in i32."""
    has_wide_elements = False
    """Whether the index of an `UnaddressedElement` may be an i64."""

    @abstractmethod
    def note(self, location: Span | None) -> None:
        """Record the source location of the code that follows."""

    # -- values ---------------------------------------------------------------------------------

    @abstractmethod
    def constant(self, value: Any, dtype: DType) -> Operand:
        """Return a Python number that ``dtype`` can hold."""

    @abstractmethod
    def known(self, operand: Operand) -> Any:
        """Return the number of a constant operand, else None."""

    @abstractmethod
    def apply(self, fn: str, dtype: DType, *operands: Operand) -> Operand:
        """Apply one of `ARITHMETIC`, `INTEGER` (on u1: and, or, xor, not), `FLOAT` or `SOMEWHERE`.

        Integer `quotient` and `remainder` round towards zero. Shift counts are below the width, and
        `shr` keeps the sign of signed types. The machine chooses whether `fma` rounds the product,
        but always in the same way.
        """

    def index(self, fn: str, a: Operand, b: Operand, *, signed: bool = False) -> Operand:  # noqa: ARG002
        """An `add` or `mul` of i64 that does not wrap; nothing is negative, unless ``signed``."""
        return self.apply(fn, i64, a, b)

    def opaque(self, x: Operand, dtype: DType) -> Operand:  # noqa: ARG002
        """Return an integer of at most 32 bits of which a driver's compiler may know nothing."""
        return x

    def split_sum(self, x: Operand) -> tuple[Operand, int]:
        """Return an i32 as the sum of another one, or itself, and a constant; it may wrap."""
        return x, 0

    @abstractmethod
    def compare(self, fn: str, dtype: DType, a: Operand, b: Operand) -> Operand:
        """Apply one of `ir.ops.arithmetic.COMPARE`. A NaN is unequal to everything."""

    def instruction(self, fn: str, dtype: DType) -> Callable[..., Operand]:
        """Return a function that does what `apply` does for a function and a type."""
        return functools.partial(self.apply, fn, dtype)

    def comparison(self, fn: str, dtype: DType) -> Callable[..., Operand]:
        """Return a function that does what `compare` does for a comparison and a type."""
        return functools.partial(self.compare, fn, dtype)

    @abstractmethod
    def choose(self, condition: Operand, dtype: DType, on_true: Operand, on_false: Operand) -> Any:
        """Return the first operand where the condition holds, else the second."""

    @abstractmethod
    def convert(self, x: Operand, source: DType, target: DType) -> Operand:
        """Convert a number to a type that can hold it. Integers are truncated, u1 becomes 0 or 1.

        A float may have any value if the cast is `legal`.
        """

    @abstractmethod
    def bitcast(self, x: Operand, source: DType, target: DType) -> Operand:
        """Reinterpret a number's bits as a type of the same width."""

    @abstractmethod
    def half_bits(self, x: Operand) -> Operand:
        """Return the 16 bits (u32) of the f16 nearest to an f32; ties go to even."""

    @abstractmethod
    def half_value(self, word: Operand) -> Operand:
        """Return the f32 with the value of an f16, from its 16 bits (u32, zero above them)."""

    def round_half(self, x: Operand) -> Operand:
        """Round an f32 to the nearest f16 value; ties go to even."""
        return self.half_value(self.half_bits(x))

    # -- variables and control flow -------------------------------------------------------------

    @abstractmethod
    def variable(self, dtype: DType) -> MutableSlot:
        """Declare a variable of the function."""

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
        """Write both branches. No operand that one of them defines may be used after them.

        ``rare`` is a hint: the condition hardly ever holds.
        """

    @abstractmethod
    def loop(
        self,
        test: Callable[[], Operand],
        body: Callable[[], object],
        is_left: Callable[[], Operand] | None = None,
    ) -> None:
        """Write a loop that runs while ``test``, computed before each iteration, is true.

        ``is_left`` computes the exit test again behind the loop, in a form that the driver cannot
        merge with ``test``.
        """

    @abstractmethod
    def stop(self) -> None:
        """Leave the innermost loop. No code follows in the current block."""

    @abstractmethod
    def leave(self) -> None:
        """Return from the function. No code follows in the current block."""

    @abstractmethod
    def hoisted(self, key: Any, make: Callable[[], Operand]) -> Operand:
        """Compute ``make`` at the start of the function, once for each key."""

    # -- memory ---------------------------------------------------------------------------------

    @abstractmethod
    def at(self, address: Pointer, nbytes: int) -> Pointer:
        """Return the address ``nbytes`` after another one."""

    @abstractmethod
    def moved(self, address: Pointer, nbytes: Operand, *, inside: bool = False) -> Pointer:
        """Return the address ``nbytes`` (i64) later; ``inside`` if in the same array."""

    @abstractmethod
    def load(self, address: Pointer, dtype: DType, of: ArrayRef | None = None) -> Operand:
        """Load a number from an aligned address, or from an element.

        At an address it is of any type but u1 and f16; an element may be of any type.
        ``of`` is the kernel's array that holds it; None for memory outside all arrays.
        """

    @abstractmethod
    def store(
        self,
        address: Pointer,
        dtype: DType,
        value: Operand,
        of: ArrayRef | None = None,
    ) -> None:
        """Store a number where `load` finds it."""

    @abstractmethod
    def local_array(self, dtype: DType, count: int) -> Any:
        """Declare an array in memory of the work item, for `UnaddressedElement`."""

    @abstractmethod
    def atomic_load(self, address: Pointer, dtype: DType) -> Operand:
        """Load a u32 or u64 that other threads may be changing."""

    @abstractmethod
    def atomic_store(self, address: Pointer, dtype: DType, value: Operand) -> None:
        """Store a number that others read with `atomic_load`."""

    @abstractmethod
    def has_atomic(self, fn: str, dtype: DType) -> bool:
        """Return whether one of `ATOMIC` is an instruction of the machine, at an address."""

    @abstractmethod
    def atomic(self, fn: str, dtype: DType, address: Pointer, value: Operand) -> Operand:
        """Update a number atomically, and return the value before."""

    @abstractmethod
    def exchange_if(
        self, dtype: DType, address: Pointer, expected: Operand, value: Operand
    ) -> Operand:
        """Store a u32 or u64 where another one is expected, and return the value before."""

    @abstractmethod
    def fence(self, scope: str = "device") -> None:
        """Order earlier stores before later ones for a "subgroup", "block" or "device"."""

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
        """Call a function by its name; ``make`` writes it at the first call.

        A function without a result is called for its effects, on a slow path.

        Args:
            name: The function's name, which identifies it.
            parameters: The type of each parameter; None for an address.
            result: The type of the result; None if there is none.
            make: Gets the function's code and its parameters, and returns the result.
            operands: The arguments of this call.

        Returns:
            The operand of the result.
        """

    def pushed_parameter(self, offset: int) -> Operand | None:  # noqa: ARG002
        """Return a word of the parameter block, u64, if the launch has pushed it."""
        return None

    @abstractmethod
    def parameters(self) -> Operand:
        """Return the address of the parameter block."""


class ThreadCode(Code):
    """One function of a GPU: the work of one thread of a dispatch."""

    subgroup: int
    """The threads of a subgroup, if they can exchange values; else 1."""

    gathers: bool
    """Whether it pays to combine the updates that a subgroup makes to one address."""

    exchange_subgroups = 0
    """The subgroups of a block that have shared memory to exchange factors of products; 0 if that
    does not pay."""

    adds_by_address = False
    """Whether threads that do not all arrive had better add up their sums of products by
    `lanes_by_address`, instead of one by one."""

    masks: bool
    """Whether the machine predicates: it runs both branches of ifs, and each loop at least once.
    """

    loads_four_words = False
    """Whether `load_four_words` is there, and pays."""

    def load_four_words(
        self, address: Pointer, dtype: DType, of: ArrayRef | None = None
    ) -> list[Operand]:
        """Load four numbers of 32 bits from an address that is a multiple of 16; see `load`.

        The address may be the first element of a four of `local_array_of_fours`.
        """
        raise NotImplementedError

    def hold_loads(self) -> None:
        """Let what follows not run before earlier loads have begun, if a driver would do so."""

    def local_array_of_fours(self, dtype: DType, count: int) -> Any:
        """Declare a `local_array` of words, of which `load_four_words` loads four at once."""
        raise NotImplementedError

    def is_aligned(self, address: Pointer, nbytes: int) -> Operand:
        """Return whether an address is a multiple of a power of two."""
        low = self.convert(address, u64, u32)
        low = self.apply("and", u32, low, self.constant(nbytes - 1, u32))
        return self.compare("eq", u32, low, self.constant(0, u32))

    def elements_in_memory(self, count: int) -> int:
        """Return how many elements an array of a work item should have to be in memory."""
        return count

    # -- other threads --------------------------------------------------------------------------

    @abstractmethod
    def shared_array(self, key: Any, dtype: DType, count: int) -> Any:
        """Declare an array of u32 or u64 that a block's threads share, once for each key."""

    @abstractmethod
    def barrier(self, scope: str) -> None:
        """Wait for all threads of the "block", or for those of the "subgroup" that arrive here.

        Their earlier stores are visible afterwards.
        """

    @abstractmethod
    def read_lane(self, x: Operand, dtype: DType, lane: Operand) -> Operand:
        """Return the u32 or f32 of another thread of the subgroup, by its lane (u32).

        That thread must arrive here, too.
        """

    def read_across(self, x: Operand, dtype: DType, distance: int) -> Operand:
        """Return the u32 or f32 of lane ``lane ^ distance``; the whole subgroup arrives here."""
        lane = self.apply("xor", u32, self.lane(), self.constant(distance, u32))
        return self.read_lane(x, dtype, lane)

    @abstractmethod
    def ballot(self, condition: Operand) -> Operand:
        """Return as u64 the bits of the subgroup's arriving threads whose condition holds."""

    def any_lane(self, condition: Operand) -> Operand:
        """Return whether the condition holds in any thread of the subgroup; all arrive here."""
        return self.compare("ne", u64, self.ballot(condition), self.constant(0, u64))

    @abstractmethod
    def all_at(self, address: Pointer) -> Operand:
        """Return whether the whole subgroup is here now, with one and the same address."""

    def lanes_by_address(self, address: Pointer) -> tuple[Operand, Operand]:
        """Return the bits (u32) of the arriving threads, and of some of these with this address.

        All threads of the second group have the same one; the thread itself is one of them.
        """
        raise NotImplementedError

    def barrier_among(self, lanes: Operand) -> None:
        """Wait for the arriving threads of the subgroup; see `barrier` and `lanes_by_address`."""
        raise NotImplementedError

    # -- a launch -------------------------------------------------------------------------------

    @abstractmethod
    def launch_word(self, offset: int) -> Operand:
        """Return a launch word (see `abi`), i64."""

    @abstractmethod
    def launch_address(self, offset: int) -> Pointer:
        """Return the address that a launch word holds."""

    @abstractmethod
    def thread(self) -> Operand:
        """Return the number of this thread, i64."""

    @abstractmethod
    def threads(self) -> Operand:
        """Return the number of threads, i64."""

    @abstractmethod
    def block(self) -> Operand:
        """Return the number of this block, i64."""

    @abstractmethod
    def blocks(self) -> Operand:
        """Return the number of blocks, i64."""

    @abstractmethod
    def thread_in_block(self) -> Operand:
        """Return the number of this thread in its block, u32."""

    @abstractmethod
    def threads_in_block(self) -> Operand:
        """Return the number of threads of a block, u32."""

    @abstractmethod
    def lane(self) -> Operand:
        """Return the lane of this thread, u32, where subgroups have several."""

    def subgroup_in_block(self) -> Operand:
        """Return the number of this thread's subgroup in its block, u32."""
        digits = self.constant(self.subgroup.bit_length() - 1, u32)
        return self.apply("ushr", u32, self.thread_in_block(), digits)

    def is_first_lane(self) -> Operand:
        """Return whether this thread is the first of its subgroup."""
        return self.compare("eq", u32, self.lane(), self.constant(0, u32))
