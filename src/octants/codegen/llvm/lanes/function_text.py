"""The text of a function that runs several work items in step, one in each lane of its vectors.

An operand is one number for all lanes, or a vector. The operands of an instruction determine which
its result is, so that code written for one work item serves here as well. Where control flow
diverges, a mask has the active lanes; code is skipped where no lane is active. Results in inactive
lanes are never used, and never trap.

A `LinearVector` is known to increase by a constant from lane to lane, modulo the power of two of
its type. The index of an active lane is within the bounds of its array, between 0 and 2^31. So no
index between two active lanes wraps, and their addresses are as far apart as their indices. For
other numbers that is known only where nothing wraps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from octants.analysis.control_flow.uniformity import Uniformity
from octants.analysis.indices.affine_analysis import AffineExpressions
from octants.analysis.indices.affine_arithmetic import wrapped
from octants.analysis.lanes.row_major_loops import ContiguousRows
from octants.analysis.sums.sum_groups import SumGroup
from octants.codegen.llvm import types_and_literals as names
from octants.codegen.llvm.function_text import FunctionText, HandlerTable, Machine, Phi
from octants.codegen.llvm.module_text import KernelText
from octants.diagnostics.exceptions import InternalError
from octants.ir.core import Block, Operation, Value
from octants.ir.ops import Atomic
from octants.lazy_dataclass import dataclass

_ADDITIVE = ("add", "sub")
_VARIABLES = 64  # bytes: the alignment of variables for vectors
_BOUNDING = ("smin", "smax", "umin", "umax", "and", "urem", "srem")
"""They change a few lanes of an index only, where it reaches a boundary."""
_FLAGS = re.compile(r" n[us]w\b")


@dataclass(frozen=True, slots=True)
class LinearVector:
    """A vector with a constant step: the first lane's number, as an operand, and the ``step``.

    Numbers in between may wrap, unless it is `exact`.
    """

    start: str
    step: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class ProbableLine:
    """The form of a vector where no lane is at a boundary: see `LinearVector`.

    `start` writes the first lane's number, and returns its operand.
    """

    start: Callable[[], str]
    step: int


class SegmentWriter(Protocol):
    """The writer of loops over tiles of a segment; see `segments`."""

    def begin(self, f: LaneText, index: Value, end: str) -> None:
        """Write the beginning of a segment, and of its loop over tiles."""

    def next(self, f: LaneText, end: str) -> tuple[str, str]:
        """Write the end of the loop over tiles; return the next segment, and if there is one."""

    def first_lane(self, f: LaneText) -> str:
        """Return the number of the first lane with a work item."""


class TileWriter(Protocol):
    """The writer of the code of tiles; see `interior_tiles`."""

    def write(self, f: LaneText, body: Block) -> None:
        """Write the body for a tile."""

    def finish(self, f: LaneText) -> None:
        """Write what follows the last tile."""

    def slides(self, op: Operation) -> bool:
        """Whether it writes an update of the tile being written, by `add`."""

    def add(self, f: LaneText, op: Atomic) -> None:
        """Write such an update."""


class LaneText(FunctionText):
    """A `FunctionText` whose operands may be vectors; ``mask`` is None where all lanes are active.

    `lanes` is their number; `uniformity` has the facts about the code being written.
    """

    def __init__(
        self,
        kernel: KernelText,
        machine: Machine,
        table: HandlerTable,
        task: int,
        lanes: int,
        uniformity: Uniformity,
        scalar_table: HandlerTable,
    ) -> None:
        super().__init__(kernel, machine, table, task)
        self.scalar_table = scalar_table
        self.iterations: dict[Value, str] = {}  # and bounded indices; see `control_flow.binary`
        self.used: set[Value] = set()  # operands of any operation; see `atomics.atomic`
        self.lanes = lanes
        self.update_groups: dict[Operation, SumGroup | None] = {}  # see `grouped_additions`
        self.interior: TileWriter | None = None  # if some tiles have code of their own
        self.segments: SegmentWriter | None = None  # where tiles end
        self.makers: dict[Value, Operation] = {}  # in a function: which operation makes a value
        self.overhangs = False  # whether the last tile may be partial
        self.rows: ContiguousRows | None = None  # in which work items are contiguous
        self._row, self.position_in_row = "", ""
        self.is_whole = ""  # in a segment: whether all lanes of the tile have a work item
        self.uniformity = uniformity
        self.mask: str | None = None
        self.tile_mask: str | None = None  # the lanes with a work item
        self._is_inlining = False  # whether `uniformity` does not cover the values being written
        self.vectors: set[str] = set()
        self.linear: dict[str, LinearVector] = {}
        self.probable: dict[str, ProbableLine] = {}
        self._corrections: set[str] = set()  # vectors that are zero where no lane is at a boundary
        self._affine: AffineExpressions | None = None

    def fresh(self) -> LaneText:
        """Return an empty function of the same kind, for a helper."""
        return LaneText(
            self.kernel,
            self.machine,
            self.table,
            self.task,
            self.lanes,
            self.uniformity,
            self.scalar_table,
        )

    # -- operands -------------------------------------------------------------------------------

    def vector(self, type: str) -> str:
        """Return the vector type for an element type."""
        return f"<{self.lanes} x {type}>"

    @contextmanager
    def of_lanes(self, lanes: int) -> Iterator[None]:
        """Write instructions of vectors of another length for a while."""
        whole, self.lanes = self.lanes, lanes
        yield
        self.lanes = whole

    def is_vector(self, *operands: str | int) -> bool:
        """Return whether any of some operands is a vector."""
        return any(operand in self.vectors for operand in operands)

    def assign_vector(self, instruction: str) -> str:
        """Append an instruction whose result is a vector."""
        name = self.assign(instruction)
        self.vectors.add(name)
        return name

    def open_phi(self, type: str, *incoming: tuple[str, str]) -> Phi:
        opened = super().open_phi(type, *incoming)
        if type[0] == "<":
            self.vectors.add(opened.name)
        return opened

    def spread(self, type: str, operand: str | int) -> str:
        """Return an operand as a vector that can stand in an instruction: splat a number."""
        operand = str(operand)
        if operand in self.vectors or operand.startswith("splat"):
            return operand
        if operand[0] != "%":
            return f"splat ({type} {operand})"
        vector = self.vector(type)
        first = self.assign(f"insertelement {vector} poison, {type} {operand}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.assign_vector(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    def held(self, type: str, operand: str) -> str:
        """Return an operand as a vector in a register."""
        if operand in self.vectors:
            return operand
        return self.assign_vector(f"freeze {self.vector(type)} {self.spread(type, operand)}")

    def fit(self, value: Value, operand: str) -> str:
        """Return an operand as a vector if the value varies."""
        return self.spread(self.type(value.type), operand) if self.varies(value) else operand

    def bind(self, value: Value, operand: str) -> None:
        is_known = not self._is_inlining
        if is_known and operand in self.vectors and not self.varies(value):
            raise InternalError(f"{value} is taken for uniform, but is a vector")
        super().bind(value, operand)

    def inlined(self, block: Block, operands: Sequence[str]) -> list[str]:
        outer, self._is_inlining = self._is_inlining, True
        found = super().inlined(block, operands)
        self._is_inlining = outer
        return found

    def varies(self, value: Value) -> bool:
        return self.uniformity.varies(value)

    def shape(self, value: Value) -> str:
        """Return the LLVM type of a value: a vector type if it varies."""
        register = self.type(value.type)
        return self.vector(register) if self.varies(value) else register

    def line(self, operand: str) -> LinearVector | None:
        """Return an operand as a linear vector, if it is known to be one."""
        if operand in self.vectors:
            return self.linear.get(operand)
        return LinearVector(operand, 0)

    def note_exact(self, value: Value) -> None:
        """Mark a linear vector as exact if its value's range proves that it does not wrap."""
        operand = self.use(value)
        line = self.linear.get(operand)
        if line is None or line.exact:
            return
        if self._affine is None:
            self._affine = AffineExpressions(self.kernel.module.tasks[self.task])
        if value not in self._affine.integer(value).terms:
            self.linear[operand] = LinearVector(line.start, line.step, exact=True)

    # -- work items -----------------------------------------------------------------------------

    def begin_item(self, index: Value, end: str) -> None:
        """Bind the index of a tile of work items, and mask those beyond the end.

        Args:
            index: The task's argument.
            end: The upper bound of the work items.
        """
        if self.segments is not None:
            self.segments.begin(self, index, end)
            return
        register = self.item_type
        if self.rows is not None:
            self.begin_row()
        if self.overhangs:
            left = super().apply("sub", register, end, self.item)
            self.mask = self.tile_mask = self.numbers_below(register, left)
        self.bind(index, self._neighbours(register, self.item))

    def begin_row(self) -> str:
        """Compute the row of a work item, and its position there; return the row's length."""
        length, register = self._row_length(), self.item_type
        self._row = super().apply("udiv", register, self.item, length)
        self.position_in_row = super().apply("urem", register, self.item, length)
        return length

    def item_body(self, body: Block) -> None:
        if self.interior is None:
            self.block(body)
        else:
            self.interior.write(self, body)

    def end_items(self) -> None:
        if self.interior is not None:
            self.interior.finish(self)

    def _row_length(self) -> str:
        """Return the length of a row; where that is zero, all work items are in one."""
        assert self.rows is not None
        length, register = self.use(self.rows.rematerialised[-1].results[0]), self.item_type
        if length[0] != "%":
            return length
        most = (1 << (int(register[1:]) - 1)) - 1
        is_none = super().apply("icmp eq", register, length, 0)
        return super().choose(is_none, register, most, length)

    def next_item(self, end: str, flags: str) -> tuple[str, str]:  # noqa: ARG002
        register = self.item_type
        self.mask = None
        if self.segments is not None:
            return self.segments.next(self, end)
        following = super().apply("add", register, self.item, self.lanes)
        left = super().apply("sub", register, end, self.item)  # a step may lead past all numbers
        return following, super().apply("icmp sgt", register, left, self.lanes)

    def wide_item(self, item: str) -> str:
        """Extend the number of a work item to i64."""
        return item if self.item_type == "i64" else super().convert("sext", "i32", item, "i64")

    def in_row(self, value: Value) -> str | None:
        """Return the operand of a row's number, or of a position in it."""
        if self.rows is None:
            return None
        if value in self.rows.numbers:
            return self._row
        if value in self.rows.columns:
            return self._neighbours(self.item_type, self.position_in_row)
        return None

    def numbers_below(self, register: str, bound: str) -> str:
        """Return a mask of the lanes whose number is less than a bound."""
        wide, numbers = self.spread(register, bound), self._numbers(register)
        return self.assign_vector(f"icmp sgt {self.vector(register)} {wide}, {numbers}")

    def _numbers(self, register: str) -> str:
        return "<" + ", ".join(f"{register} {lane}" for lane in range(self.lanes)) + ">"

    def _neighbours(self, register: str, first: str) -> str:
        """Return a vector of a number and its successors."""
        return self.progression(register, first)

    def progression(self, register: str, first: str) -> str:
        """Return successive numbers, which do not wrap, as a linear vector."""
        wide = self.spread(register, first)
        numbers = ", ".join(f"{register} {lane}" for lane in range(self.lanes))
        lanes = self.assign_vector(f"add {self.vector(register)} {wide}, <{numbers}>")
        self.linear[lanes] = LinearVector(first, 1, exact=True)
        return lanes

    # -- pure instructions ----------------------------------------------------------------------

    def apply(self, instruction: str, type: str, *operands: str | int) -> str:
        instruction = _FLAGS.sub("", instruction)
        if not self.is_vector(*operands):
            return super().apply(instruction, type, *operands)
        line = self._combine(instruction, type, [str(operand) for operand in operands])
        wide = ", ".join([self.spread(type, operand) for operand in operands])
        name = self.assign_vector(f"{instruction} {self.vector(type)} {wide}")
        if line is not None:
            self.linear[name] = line
        elif instruction in (*_ADDITIVE, *_BOUNDING):
            scalar = partial(super().apply, instruction, type)
            self._expect_line(name, instruction, scalar, operands)
        return name

    def _expect_line(
        self,
        name: str,
        instruction: str,
        scalar: Callable[..., str],
        operands: Sequence[str | int],
    ) -> None:
        """Note that a vector is linear but for boundaries: of such a one, and a uniform operand."""
        varying, uniform = operands
        if not self.is_vector(varying) and instruction not in ("sub", "urem", "srem"):
            varying, uniform = uniform, varying
        line = self.probable_line(varying)
        if line is None or not line.step:
            return
        if instruction == "add" and uniform in self._corrections:  # of the sign of a remainder
            self.probable[name] = line
        if self.is_vector(uniform):
            return

        def start() -> str:
            return scalar(line.start(), uniform)

        self.probable[name] = ProbableLine(start, line.step)

    def probable_line(self, operand: str | int) -> ProbableLine | None:
        """Return what an operand probably is where no lane is at a boundary, or surely."""
        line = self.linear.get(str(operand))
        if line is not None:
            return ProbableLine(lambda: line.start, line.step)
        return self.probable.get(str(operand))

    def _combine(self, instruction: str, type: str, operands: list[str]) -> LinearVector | None:
        """Return the linear vector of a sum, a difference, or a product with a number."""
        if type not in ("i32", "i64") or instruction not in ("add", "sub", "mul"):
            return None
        first, second = (self.line(operand) for operand in operands)
        if first is None or second is None:
            return None
        if instruction in _ADDITIVE:
            step = first.step + (second.step if instruction == "add" else -second.step)
        else:
            factor = [x for x in (first.start, second.start) if x[0] != "%"]
            if not factor:
                return None
            step = int(factor[0]) * (first.step or second.step)
        start = super().apply(instruction, type, first.start, second.start)
        return LinearVector(start, wrapped(step, int(type[1:])))

    def choose(self, condition: str, type: str, on_true: str | int, on_false: str | int) -> str:
        if not self.is_vector(condition, on_true, on_false):
            return super().choose(condition, type, on_true, on_false)
        choices = [self.spread(type, each) for each in (on_true, on_false)]
        test, vector = "i1", self.vector(type)
        if self.is_vector(condition):
            test = self.vector("i1")
        name = self.assign_vector(
            f"select {test} {condition}, {vector} {choices[0]}, {vector} {choices[1]}"
        )
        if str(on_false) == "0":
            self._corrections.add(name)
        return name

    def convert(self, instruction: str, source: str, operand: str, target: str) -> str:
        if not self.is_vector(operand):
            return super().convert(instruction, source, operand, target)
        line = self._converted(instruction, source, operand, target)
        name = self.assign_vector(
            f"{instruction} {self.vector(source)} {operand} to {self.vector(target)}"
        )
        if line is not None:
            self.linear[name] = line
        elif instruction in ("sext", "zext") and operand in self.probable:
            probable, scalar = self.probable[operand], partial(super().convert, instruction, source)
            self.probable[name] = ProbableLine(
                lambda: scalar(probable.start(), target), probable.step
            )
        return name

    def _converted(
        self, instruction: str, source: str, operand: str, target: str
    ) -> LinearVector | None:
        """Return the linear vector of an i32 as i64, if it does not wrap, or of an i64 as i32."""
        line = self.linear.get(operand)
        if line is None:
            return None
        if (instruction, source, target) == ("sext", "i32", "i64") and line.exact:
            return LinearVector(
                super().convert(instruction, source, line.start, target), line.step, True
            )
        if (source, target) == ("i64", "i32"):
            start = super().convert(instruction, source, line.start, target)
            return LinearVector(start, wrapped(line.step, 32))
        return None

    def widen(self, index: str) -> str:
        """Extend an index to i64; a linear vector starts at the lane with the least number.

        It may wrap in inactive lanes, but not between there and an active one.
        """
        line = self.linear.get(index)
        wide = self.convert("sext", "i32", index, "i64")
        if line is None or wide in self.linear:
            return wide
        reach = line.step * (self.lanes - 1)
        if abs(reach) >= 1 << 31:
            return wide
        if reach >= 0:
            start = super().convert("sext", "i32", line.start, "i64")
        else:
            last = super().apply("add", "i32", line.start, reach)
            start = super().convert("sext", "i32", last, "i64")
            start = super().apply("sub", "i64", start, reach)
        self.linear[wide] = LinearVector(start, line.step)
        return wide

    def call_vector(
        self, name: str, result: str, operands: Sequence[tuple[str, str]], attribute: str = ""
    ) -> str:
        """Call a function of vectors, whose result is a vector."""
        wide = [f"{self.vector(kind)} {self.spread(kind, x)}" for kind, x in operands]
        return self.assign_vector(
            f"call {self.vector(result)} {name}({', '.join(wide)}){attribute}"
        )

    def intrinsic(
        self,
        name: str,
        result: str,
        operands: Sequence[tuple[str, str]],
        *,
        flag: bool = False,
        overloads: Sequence[str] = (),
    ) -> str:
        if not self.is_vector(*(operand for _, operand in operands)):
            return super().intrinsic(name, result, operands, flag=flag, overloads=overloads)
        suffixes = [f"v{self.lanes}{names.suffix(kind)}" for kind in overloads or [result]]
        function = name
        name = "@llvm." + ".".join([name, *suffixes])
        types = [self.vector(kind) for kind, _ in operands] + ["i1"] * flag
        self.text.declare(name, self.vector(result), ", ".join(types))
        wide = [f"{self.vector(kind)} {self.spread(kind, x)}" for kind, x in operands]
        arguments = ", ".join([*wide, *["i1 false"] * flag])
        found = self.assign_vector(f"call {self.vector(result)} {name}({arguments})")
        if function in _BOUNDING:
            scalar = partial(_intrinsic_of_one, super().intrinsic, function, result)
            self._expect_line(found, function, scalar, [operand for _, operand in operands])
        return found

    # -- masks ----------------------------------------------------------------------------------

    def both(self, one: str | None, other: str | None) -> str | None:
        """Return the intersection of two masks."""
        if one is None or other is None:
            return other if one is None else one
        return self.apply("and", "i1", one, other)

    def lanes_of(self, mask: str | None) -> str:
        """Return a mask as an operand that can stand in an instruction."""
        return "splat (i1 true)" if mask is None else self.spread("i1", mask)

    def bits(self, mask: str) -> str:
        """Return a mask as an integer with a bit for each lane."""
        return self.assign(f"bitcast {self.vector('i1')} {mask} to i{self.lanes}")

    def any(self, mask: str) -> str:
        """Return whether a mask has any lane."""
        return self.assign(f"icmp ne i{self.lanes} {self.bits(mask)}, 0")

    def all(self, mask: str) -> str:
        """Return whether a mask has all lanes."""
        return self.assign(f"icmp eq i{self.lanes} {self.bits(mask)}, -1")

    def vector_variable(self, key: object, register: str) -> str:
        """Return the address of a variable for a vector, one for each key."""
        return self.once(key, f"alloca {self.vector(register)}, align {_VARIABLES}")

    def initialise(self, variable: str, register: str, operand: str) -> None:
        """Store a vector in a variable at the entry of the function."""
        vector = self.vector(register)
        self.entry.append(f"  store {vector} {operand}, ptr {variable}, align {_VARIABLES}")

    def read_variable(self, variable: str, register: str) -> str:
        """Load the vector in a variable."""
        return self.assign_vector(
            f"load {self.vector(register)}, ptr {variable}, align {_VARIABLES}"
        )

    def write_variable(self, variable: str, register: str, operand: str) -> None:
        """Store a vector in a variable."""
        vector = self.vector(register)
        self.emit(f"store {vector} {operand}, ptr {variable}, align {_VARIABLES}")

    def active(self, type: str, operand: str, otherwise: str | int) -> str:
        """Replace the numbers of inactive lanes."""
        vector = self.spread(type, operand)
        return vector if self.mask is None else self.choose(self.mask, type, vector, otherwise)

    def largest(self, operand: str) -> str:
        """Return the maximum of the active lanes' i64, none of which is negative, as one number."""
        if not self.is_vector(operand):
            return operand
        vector = self.active("i64", operand, 0)
        name = f"@llvm.vector.reduce.smax.v{self.lanes}i64"
        self.text.declare(name, "i64", self.vector("i64"))
        return self.assign(f"call i64 {name}({self.vector('i64')} {vector})")

    def item_of(self, mask: str | None) -> str:
        """Return the work item of the first lane of a mask."""
        if mask is None:
            return self.item
        integer = f"i{self.lanes}"
        lane = super().intrinsic("cttz", integer, [(integer, self.bits(mask))], flag=True)
        wide = lane if self.lanes == 64 else super().convert("zext", integer, lane, "i64")
        if self.item_type != "i64":
            wide = super().convert("trunc", "i64", wide, self.item_type)
        return super().apply("add", self.item_type, self.item, wide)

    def item_quota(self, nbytes: str) -> str:
        return super().apply("udiv", "i64", nbytes, self.lanes)

    # -- lane by lane ---------------------------------------------------------------------------

    def element(self, type: str, operand: str, lane: str) -> str:
        """Return the operand of one lane; ``lane`` has the type of `bits`."""
        if not self.is_vector(operand):
            return operand
        vector = self.vector(type)
        return self.assign(f"extractelement {vector} {operand}, i{self.lanes} {lane}")

    def first_of_tile(self) -> str:
        """Return the number of the first lane with a work item, in the type of `bits`."""
        register, bits = self.item_type, f"i{self.lanes}"
        lane = "0" if self.segments is None else self.segments.first_lane(self)
        if lane == "0" or register == bits:
            return lane
        narrows = self.lanes < int(register[1:])
        return super().convert("trunc" if narrows else "zext", register, lane, bits)

    def last_active(self) -> str:
        """Return the number of the last active lane, in the type of `bits`."""
        if self.mask is None:
            return str(self.lanes - 1)
        zeros = super().intrinsic(
            "ctlz", f"i{self.lanes}", [(f"i{self.lanes}", self.bits(self.mask))], flag=True
        )
        return super().apply("sub", f"i{self.lanes}", self.lanes - 1, zeros)

    def each_active(self, body: Callable[[str], str | None], result: str = "") -> str:
        """Run code for each active lane, in order.

        Args:
            body: Writes the code of a lane, given its number.
            result: The type of what ``body`` returns, if anything.

        Returns:
            The vector of the results; "" without ``result``.
        """
        integer = f"i{self.lanes}"
        start = "-1" if self.mask is None else self.bits(self.mask)
        inside, done = self.fresh_label("lane"), self.fresh_label("lanes")
        before = self.label
        self.enter(inside)
        rest, found = self.open_phi(integer, (start, before)), None
        if result:
            found = self.open_phi(self.vector(result), ("zeroinitializer", before))
        number = super().intrinsic("cttz", integer, [(integer, rest.name)], flag=True)
        value = body(number)
        collected = ""
        if found is not None:
            collected = self.assign_vector(
                f"insertelement {self.vector(result)} {found.name},"
                f" {result} {value}, {integer} {number}"
            )
            self.close_phi(found, (collected, self.label))
        less = super().apply("sub", integer, rest.name, 1)
        following = super().apply("and", integer, rest.name, less)
        self.close_phi(rest, (following, self.label))
        self.branch_if(super().apply("icmp ne", integer, following, 0), inside, done)
        self.start(done)
        return collected


def _intrinsic_of_one(
    write: Callable[..., str], function: str, kind: str, one: str, other: str
) -> str:
    """Write an intrinsic of two numbers of one type."""
    return write(function, kind, [(kind, one), (kind, other)])
