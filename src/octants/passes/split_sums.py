"""Has lanes of a subgroup share the serial sums of a work item, where work items are few.

Before::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    parallel @k_0 {
      %0: i32 = constant<0>()
      %1: i32 = shape<@y, 0>()
      yield(%0, %1)
    } { (%2: i32):
      %3: i32 = constant<0>()
      %4: i32 = shape<@x, 0>()
      %5: f32 = constant<0.0>()
      %6: f32 = for(%3, %4, %5) { (%7: i32, %8: f32):
        %9: f32 = load<@x, primal>(%7)
        %10: f32 = binary<add>(%8, %9)
        yield(%10)
      }
      store<@y, primal>(%6, %2)
      yield()
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @y: f32, 1, ndarray, () [primal]
    parallel @k_0 {'block_dim': 128, 'subgroup_size': 32} {
      %0: i32 = constant<0>()
      %1: i32 = shape<@y, 0>()
      %2: i64 = constant<0>()
      %3: i64 = cast(%1)
      %4: i64 = constant<0>()
      %5: i64 = binary<max>(%3, %4)
      %6: i64 = constant<131072>()
      %7: i64 = constant<65536>()
      %8: i64 = constant<32768>()
      %9: i64 = constant<16384>()
      %10: i64 = constant<8192>()
      %11: u1 = compare<le>(%5, %6)
      %12: u1 = compare<le>(%5, %7)
      %13: u1 = compare<le>(%5, %8)
      %14: u1 = compare<le>(%5, %9)
      %15: u1 = compare<le>(%5, %10)
      %16: i64 = constant<0>()
      %17: i64 = cast(%11)
      %18: i64 = constant<1>()
      %19: i64 = cast(%12)
      %20: i64 = constant<2>()
      %21: i64 = binary<mul>(%19, %20)
      %22: i64 = binary<add>(%17, %21)
      %23: i64 = cast(%13)
      %24: i64 = constant<4>()
      %25: i64 = binary<mul>(%23, %24)
      %26: i64 = binary<add>(%22, %25)
      %27: i64 = cast(%14)
      %28: i64 = constant<8>()
      %29: i64 = binary<mul>(%27, %28)
      %30: i64 = binary<add>(%26, %29)
      %31: i64 = cast(%15)
      %32: i64 = constant<16>()
      %33: i64 = binary<mul>(%31, %32)
      %34: i64 = binary<add>(%30, %33)
      %35: i64 = constant<1>()
      %36: i64 = binary<add>(%34, %35)
      %37: i64 = constant<0>()
      %38: i64 = binary<mul>(%5, %36)
      yield(%37, %38)
    } { (%39: i64):
      %40: i32 = constant<0>()
      %41: i32 = shape<@y, 0>()
      %42: i64 = constant<0>()
      %43: i64 = cast(%41)
      %44: i64 = constant<0>()
      %45: i64 = binary<max>(%43, %44)
      %46: i64 = constant<131072>()
      %47: i64 = constant<65536>()
      %48: i64 = constant<32768>()
      %49: i64 = constant<16384>()
      %50: i64 = constant<8192>()
      %51: u1 = compare<le>(%45, %46)
      %52: u1 = compare<le>(%45, %47)
      %53: u1 = compare<le>(%45, %48)
      %54: u1 = compare<le>(%45, %49)
      %55: u1 = compare<le>(%45, %50)
      %56: i64 = constant<1>()
      %57: i64 = constant<0>()
      %58: i64 = cast(%51)
      %59: i64 = constant<1>()
      %60: i64 = cast(%52)
      %61: i64 = constant<1>()
      %62: i64 = binary<add>(%58, %60)
      %63: i64 = cast(%53)
      %64: i64 = constant<1>()
      %65: i64 = binary<add>(%62, %63)
      %66: i64 = cast(%54)
      %67: i64 = constant<1>()
      %68: i64 = binary<add>(%65, %66)
      %69: i64 = cast(%55)
      %70: i64 = constant<1>()
      %71: i64 = binary<add>(%68, %69)
      %72: i64 = binary<shl>(%56, %71)
      %73: i64 = binary<shr>(%39, %71)
      %74: i32 = cast(%73)
      %75: i64 = binary<sub>(%72, %56)
      %76: i64 = binary<and>(%39, %75)
      %77: i64 = constant<0>()
      %78: u1 = compare<eq>(%76, %77)
      %79: i32 = constant<0>()
      %80: i32 = shape<@x, 0>()
      %81: f32 = constant<0.0>()
      %82: i64 = constant<0>()
      %83: i64 = cast(%80)
      %84: i64 = binary<sub>(%83, %76)
      %85: i64 = constant<1>()
      %86: i64 = binary<sub>(%72, %85)
      %87: i64 = binary<add>(%84, %86)
      %88: i64 = binary<shr>(%87, %71)
      %89: f32 = constant<-0.0>()
      %90: f32 = select(%78, %81, %89)
      %91: i32 = constant<0>()
      %92: i32 = cast(%88)
      %93: f32 = for(%91, %92, %90) { (%94: i32, %95: f32):
        %96: i32 = cast(%71)
        %97: i32 = binary<shl>(%94, %96)
        %98: i32 = cast(%76)
        %99: i32 = binary<add>(%98, %97)
        %100: f32 = load<@x, primal>(%99)
        %101: f32 = binary<add>(%95, %100)
        yield(%101)
      }
      %102: i32 = constant<1>()
      %103: f32 = subgroup<shuffle_xor, 32>(%93, %102)
      %104: f32 = binary<add>(%93, %103)
      %105: i64 = constant<1>()
      %106: u1 = compare<gt>(%72, %105)
      %107: f32 = select(%106, %104, %93)
      %108: i32 = constant<2>()
      %109: f32 = subgroup<shuffle_xor, 32>(%107, %108)
      %110: f32 = binary<add>(%107, %109)
      %111: i64 = constant<2>()
      %112: u1 = compare<gt>(%72, %111)
      %113: f32 = select(%112, %110, %107)
      %114: i32 = constant<4>()
      %115: f32 = subgroup<shuffle_xor, 32>(%113, %114)
      %116: f32 = binary<add>(%113, %115)
      %117: i64 = constant<4>()
      %118: u1 = compare<gt>(%72, %117)
      %119: f32 = select(%118, %116, %113)
      %120: i32 = constant<8>()
      %121: f32 = subgroup<shuffle_xor, 32>(%119, %120)
      %122: f32 = binary<add>(%119, %121)
      %123: i64 = constant<8>()
      %124: u1 = compare<gt>(%72, %123)
      %125: f32 = select(%124, %122, %119)
      %126: i32 = constant<16>()
      %127: f32 = subgroup<shuffle_xor, 32>(%125, %126)
      %128: f32 = binary<add>(%125, %127)
      %129: i64 = constant<16>()
      %130: u1 = compare<gt>(%72, %129)
      %131: f32 = select(%130, %128, %125)
      barrier<subgroup>()
      if(%78) {
        store<@y, primal>(%131, %74)
        yield()
      } {
        yield()
      }
      yield()
    }

How many lanes a work item has, a power of two, is decided by each launch: so many that the device
has enough to do. They do all of it together; but each has its own iterations of the loops that sum
up, and the first one alone has effects, before which all others have read what they need. Sums are
added in another order then. So this is for who may round differently, and for loops of which only
numbers hang: no branch, no trip count and no place, which a replay must find again.
"""

from __future__ import annotations

from octants.analysis.pair_loops import Access, PairLoops
from octants.analysis.serial_sums import FREE_SUMS, only_sums
from octants.analysis.strictness import decides
from octants.compile_profile import staged
from octants.ir import ops
from octants.ir.builder import Builder
from octants.ir.cooperation import local_arrays
from octants.ir.core import Block, Module, Operation, Task, Value
from octants.ir.rewriter import emit
from octants.lazy_dataclass import dataclass
from octants.simplify.prune import EFFECTS
from octants.types.scalars import i32, i64, u1

LANES = 32
"""Those of a subgroup."""

_POWERS = 5  # 2 ** 5 lanes at most
_BLOCK, _MOST = 128, 1024  # threads
_FEW = 16  # iterations
Loop = ops.For | ops.While


@staged("split_sums")
def split_sums(module: Module, apart: bool = True, fills: int = 1 << 18) -> None:
    """Split where there are less than ``fills`` work items, in place.

    ``apart`` says that no two arrays share memory.
    """
    for task in module.tasks:
        facts = PairLoops(task, apart)
        if task.options.get("in_parts") or not facts.is_free() or facts.fills(fills // 2 + 1):
            continue
        if loops := _loops_to_split(task, facts):
            _Splitter(task, facts, loops, fills).run()


# -- which -----------------------------------------------------------------------------------------


def _loops_to_split(task: Task, facts: PairLoops) -> set[Operation]:
    """The loops of a task that sum up; none if it has others, or what lanes cannot do together."""
    used = {value for op in task.body.walk() for value in op.operands}
    if local_arrays(task) or any(
        isinstance(op, EFFECTS) and not used.isdisjoint(op.results) for op in task.body.walk()
    ):
        return set()
    found: set[Operation] = set()
    true = {op.result for op in task.body.ops if isinstance(op, ops.Constant) and op.value is True}
    for op in task.body.ops:
        inner = _with_inner(op)[1:]
        has_effects = any(isinstance(each, EFFECTS) for each in inner)
        if isinstance(op, ops.For) and not facts.is_short(op, _FEW):
            if has_effects or not only_sums(op, true):
                return set()
            found.add(op)
            continue
        loops = [each for each in (op, *inner) if isinstance(each, Loop)]
        if not all(facts.is_short(loop, _FEW) for loop in loops) or (op.results and has_effects):
            return set()
    sums = {value for op in found for value in op.results}
    floats = {value for value in sums if value.type.is_float}
    may = task.options.get(FREE_SUMS) or not decides(task.body, floats)
    return found if sums and may else set()


# -- how -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lanes:
    """How many lanes a work item has (i64), the logarithm of that, and which one this is."""

    count: Value
    shift: Value
    own: Value
    is_first: Value


class _Splitter:
    """Has the lanes of a work item do it together."""

    def __init__(self, task: Task, facts: PairLoops, loops: set[Operation], fills: int) -> None:
        self.task, self.facts, self.loops, self.fills = task, facts, loops, fills
        self.values: dict[Value, Value] = {}
        self.builder = Builder()
        self.late: list[Operation] = []  # effects that the first lane has yet to make

    def run(self) -> None:
        """Replace the domain and the body of the task."""
        task, asked = self.task, int(self.task.options.get("block_dim") or _BLOCK)
        domain = Builder()
        _, items, rooms = self._sizes(domain)
        lanes = _weighted(domain, rooms, [1 << power for power in range(_POWERS)])
        lanes = domain.binary("add", lanes, domain.offset(1))
        domain.yield_([domain.offset(0), domain.binary("mul", items, lanes)])
        body = Block([Value(i64)])
        with self.builder.into(body):
            self.builder.location = task.location
            self._body(body.args[0])
        task.domain, task.body = domain.block, body
        block_dim = min(-(-asked // LANES) * LANES, _MOST)
        task.options = {**task.options, "block_dim": block_dim, "subgroup_size": LANES}

    def _sizes(self, builder: Builder) -> tuple[Value, Value, list[Value]]:
        """The first work item, how many there are, and if there is room for 2, 4, ... lanes."""
        domain, values = self.task.domain, dict[Value, Value]()
        assert domain is not None
        for op in domain.ops[:-1]:
            emit(builder, op, values)
        lower, upper = (builder.cast(values[value], i64) for value in domain.yielded[:2])
        difference = builder.binary("sub", upper, lower)
        items = builder.binary("max", difference, builder.offset(0))
        most = [builder.offset(self.fills >> power) for power in range(1, _POWERS + 1)]
        return lower, items, [builder.compare("le", items, each) for each in most]

    def _body(self, thread: Value) -> None:
        builder, (item,) = self.builder, self.task.body.args
        lower, _, rooms = self._sizes(builder)
        one = builder.offset(1)
        shift = _weighted(builder, rooms, [1] * _POWERS)
        count = builder.binary("shl", one, shift)
        number = builder.binary("shr", thread, shift)
        self.values[item] = builder.cast(builder.binary("add", lower, number), item.type)
        own = builder.binary("and", thread, builder.binary("sub", count, one))
        is_first = builder.compare("eq", own, builder.offset(0))
        self.lanes = _Lanes(count, shift, own, is_first)
        for op in self.task.body.ops[:-1]:
            builder.location = op.location
            inside = _with_inner(op)
            is_late = op not in self.loops and any(isinstance(each, EFFECTS) for each in inside)
            if is_late:
                self.late.append(op)
                continue
            if self._minds(inside):
                self._do_late()
            if op in self.loops:
                self._split(op)
            else:
                emit(builder, op, self.values)
        self._do_late(is_last=True)
        builder.yield_()

    def _minds(self, inside: list[Operation]) -> bool:
        """Whether operations must not come before the effects that stand in front of them."""
        accesses = [op for op in inside if isinstance(op, Access)]
        late = [each for op in self.late for each in _with_inner(op) if isinstance(each, Access)]
        return any(
            isinstance(other, EFFECTS) and self.facts.meet(op, other)
            for op in accesses
            for other in late
        )

    def _split(self, op: Operation) -> None:
        """Give each lane its own iterations of a loop: every so many, from its number on."""
        assert isinstance(op, ops.For)
        builder, lanes = self.builder, self.lanes
        kind = op.lower.type
        lower, upper = (self.values[value] for value in (op.lower, op.upper))
        first = builder.binary("add", builder.cast(lower, i64), lanes.own)
        rest = builder.binary("sub", builder.cast(upper, i64), first)
        last = builder.binary("sub", lanes.count, builder.offset(1))
        turns = builder.binary("shr", builder.binary("add", rest, last), lanes.shift)
        body = Block([Value(arg.type) for arg in op.body.args])
        with builder.into(body):
            steps = builder.binary("shl", body.args[0], builder.cast(lanes.shift, kind))
            counter = builder.binary("add", builder.cast(first, kind), steps)
            self.values.update(zip(op.body.args, [counter, *body.args[1:]], strict=True))
            for each in op.body.ops[:-1]:
                emit(builder, each, self.values)
            builder.yield_([self.values.get(value, value) for value in op.body.yielded])
        inits = [self._start(self.values[value]) for value in op.inits]
        new = builder.for_(builder.constant(0, kind), builder.cast(turns, kind), inits, body)
        for result, share in zip(op.results, new.results, strict=True):
            self.values[result] = self._combined(share)

    def _start(self, init: Value) -> Value:
        """What a lane begins with; flags are or-ed."""
        if init.type is u1:
            return init
        nothing = self.builder.constant(-0.0 if init.type.is_float else 0, init.type)
        return self.builder.select(self.lanes.is_first, init, nothing)

    def _combined(self, share: Value) -> Value:
        """The sum of what the lanes of the work item have."""
        builder = self.builder
        kind, fn = (i32, "or") if share.type is u1 else (share.type, "add")
        total = builder.cast(share, kind)
        for power in range(_POWERS):
            distance = builder.constant(1 << power, i32)
            other = builder.subgroup("shuffle_xor", LANES, total, distance)
            both = builder.binary(fn, total, other)
            is_own = builder.compare("gt", self.lanes.count, builder.offset(1 << power))
            total = builder.select(is_own, both, total)
        return builder.cast(total, share.type)

    # -- effects -----------------------------------------------------------------------------------

    def _do_late(self, *, is_last: bool = False) -> None:
        """Have the first lane make the effects, when all lanes have read what they change."""
        builder, late = self.builder, self.late
        if not late:
            return
        builder.barrier("subgroup")
        then, orelse = Block(), Block()
        with builder.into(then):
            for op in late:
                emit(builder, op, self.values)
            builder.yield_()
        with builder.into(orelse):
            builder.yield_()
        builder.if_(self.lanes.is_first, then, orelse)
        if not is_last:
            builder.barrier("subgroup")
        self.late = []


def _with_inner(op: Operation) -> list[Operation]:
    """An operation, and those of its regions."""
    return [op, *(inner for region in op.regions for inner in region.walk())]


def _weighted(builder: Builder, truths: list[Value], weights: list[int]) -> Value:
    """The sum of the weights of what is true, i64."""
    total = builder.offset(0)
    for truth, weight in zip(truths, weights, strict=True):
        share = builder.binary("mul", builder.cast(truth, i64), builder.offset(weight))
        total = builder.binary("add", total, share)
    return total
