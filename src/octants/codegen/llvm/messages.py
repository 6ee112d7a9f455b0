"""Prints, failed assertions, overflows: words in the launch's message buffer, laid out by `abi`."""

from __future__ import annotations

from collections.abc import Callable

from octants import abi
from octants.artifact import MessageFormat, overflow_message
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.module import ModuleText
from octants.codegen.message_formats import parts_of, shortened
from octants.ir import ops
from octants.ir.core import Record, Value

HelperMaker = Callable[[ModuleText, str], str]


def print_(f: FunctionText, op: ops.Print) -> None:
    """Hand the values to the host, which formats the line."""
    dtypes = tuple(value.type.name for value in op.values)
    message = f.kernel.add_message(MessageFormat("print", op.parts, dtypes, op.location))
    _call(f, "@octants.print", _print_helper, message, [_word(f, value) for value in op.values])


def assert_(f: FunctionText, op: ops.Assert) -> None:
    """Go on if the condition holds, else fail."""
    holds, fails = f.fresh_label("holds"), f.fresh_label("fails")
    f.branch_if(f.use(op.condition), holds, fails, likely=True)
    f.start(fails)
    fail(
        f,
        MessageFormat(
            op.kind,
            parts_of(op.message),
            tuple(value.type.name for value in op.values),
            op.location,
        ),
        [_word(f, value) for value in op.values],
    )
    f.start(holds)


def fail(f: FunctionText, message: MessageFormat, words: list[str]) -> None:
    """Record a failure and end the work item; the current block ends."""
    message, words = shortened(message), words[: abi.MAXIMUM_FAILURE_VALUES]
    _call(f, "@octants.fail", _fail_helper, f.kernel.add_message(message), words)
    f.branch(f.exit)


def overflow(f: FunctionText, record: Record, need: str) -> None:
    """Say that a record would have to hold ``need`` iterations; the current block goes on."""
    number = f.kernel.add_message(overflow_message(record))
    helper = f.text.helper("@octants.overflow", _overflow_helper)
    buffer = f.system("messages", "ptr")
    f.emit(
        f"call void {helper}(ptr {buffer}, i32 {number}, i32 {f.task}, i64 {_item(f)}, i64 {need})"
    )


def _word(f: FunctionText, value: Value) -> str:
    """A value in 64 bits."""
    operand, dtype = f.use(value), value.type
    register = f.type(dtype)
    if dtype.is_float:
        double = operand if dtype.bits == 64 else f.convert("fpext", register, operand, "double")
        return f.convert("bitcast", "double", double, "i64")
    if dtype.bits == 64:
        return operand
    return f.convert("sext" if dtype.is_signed else "zext", register, operand, "i64")


def _call(f: FunctionText, name: str, make: HelperMaker, message: int, words: list[str]) -> None:
    helper = f.text.helper(name, make)
    count = len(words)
    values = f.once(("words", count), f"alloca [{max(1, count)} x i64], align 8")
    for position, word in enumerate(words):
        place = f.assign(f"getelementptr i64, ptr {values}, i64 {position}")
        f.emit(f"store i64 {word}, ptr {place}, align 8")
    buffer = f.system("messages", "ptr")
    f.emit(
        f"call void {helper}(ptr {buffer}, i32 {message}, i32 {f.task}, i64 {_item(f)},"
        f" ptr {values}, i64 {count})"
    )


def _item(f: FunctionText) -> str:
    """The number of the work item, i64."""
    item, register = f.speaks_of or (f.item, f.item_type)
    return item if register == "i64" else f.convert("sext", register, item, "i64")


def act_as(f: FunctionText, op: ops.ActAs) -> None:
    """Let failures from here on be those of a work item."""
    f.speaks_of = f.use(op.item), f.type(op.item.type)


_ARGUMENTS = (
    "ptr %buffer, i32 %message, i32 %task, i64 %item, ptr nocapture readonly %values, i64 %count"
)

# Who has nothing to say that matters leaves without the lock. Threads of a GPU that run in step
# need that way out: they meet again where all ways meet, and the one that holds the lock would wait
# for the others before it gives it back if that were the end of the loop.
_LOCK = """\
  br i1 %late, label %leave, label %try
try:
  %pair = cmpxchg ptr %lock, i32 0, i32 1 acquire monotonic
  %held = extractvalue { i32, i1 } %pair, 1
  br i1 %held, label %check, label %spin
check:
"""

_UNLOCK = """\
unlock:
  store atomic i32 0, ptr %lock release, align 4
  br label %leave
leave:
  ret void
"""

_COPY = """\
  %empty = icmp eq i64 %count, 0
  br i1 %empty, label %copied, label %copy
copy:
  %k = phi i64 [ 0, %{before} ], [ %following, %copy ]
  %from = getelementptr i64, ptr %values, i64 %k
  %word = load i64, ptr %from, align 8
  %to = getelementptr i64, ptr %target, i64 %k
  store i64 %word, ptr %to, align 8
  %following = add nuw i64 %k, 1
  %more = icmp ult i64 %following, %count
  br i1 %more, label %copy, label %copied
copied:
"""


def _print_helper(_: ModuleText, name: str) -> str:
    return f"""\
define internal void {name}({_ARGUMENTS}) cold noinline nounwind {{
entry:
  %total = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_COUNT}
  %ignored = atomicrmw add ptr %total, i64 1 monotonic
  %size = add nuw i64 %count, 2
  %cursor = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_CURSOR}
  %start = atomicrmw add ptr %cursor, i64 %size monotonic
  %stop = add i64 %start, %size
  %capacityplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_CAPACITY}
  %capacity = load i64, ptr %capacityplace, align 8
  %fits = icmp ule i64 %stop, %capacity
  br i1 %fits, label %write, label %full
full:
  %endplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_END}
  %ignoredtoo = atomicrmw umin ptr %endplace, i64 %start monotonic
  ret void
write:
  %words = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_HEADER}
  %head = getelementptr i64, ptr %words, i64 %start
  %low = zext i32 %message to i64
  %wide = zext i32 %task to i64
  %high = shl i64 %wide, 32
  %kind = or i64 %high, %low
  store i64 %kind, ptr %head, align 8
  %second = getelementptr i64, ptr %head, i64 1
  store i64 %item, ptr %second, align 8
  %target = getelementptr i64, ptr %head, i64 2
{_COPY.replace("{before}", "write")}  ret void
}}
"""


def _fail_helper(_: ModuleText, name: str) -> str:
    return f"""\
define internal void {name}({_ARGUMENTS}) cold noinline nounwind {{
entry:
  %lock = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_LOCK}
  %failed = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_FAILED}
  %itemplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_FAILURE_ITEM}
  br label %spin
spin:
  %seen = load atomic i32, ptr %failed acquire, align 4
  %seenitem = load atomic i64, ptr %itemplace monotonic, align 8
  %others = icmp ne i32 %seen, 0
  %notlower = icmp sle i64 %seenitem, %item
  %late = and i1 %others, %notlower
{_LOCK}  %known = load atomic i32, ptr %failed monotonic, align 4
  %other = load i64, ptr %itemplace, align 8
  %isfirst = icmp eq i32 %known, 0
  %islower = icmp slt i64 %item, %other
  %counts = or i1 %isfirst, %islower
  br i1 %counts, label %write, label %unlock
write:
  %messageplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_FAILURE_ID}
  store i32 %message, ptr %messageplace, align 4
  %taskplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_FAILURE_TASK}
  store i32 %task, ptr %taskplace, align 4
  store atomic i64 %item, ptr %itemplace monotonic, align 8
  %target = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_FAILURE_VALUES}
{_COPY.replace("{before}", "write")}  store atomic i32 1, ptr %failed release, align 4
  br label %unlock
{_UNLOCK}}}
"""


def _overflow_helper(_: ModuleText, name: str) -> str:
    """Keeps the largest need; of equal ones that of the first task, and there the lowest item."""
    return f"""\
define internal void {name}(ptr %buffer, i32 %message, i32 %task, i64 %item, i64 %need) \
cold noinline nounwind {{
entry:
  %lock = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_LOCK}
  %needplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_OVERFLOW_NEED}
  %taskplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_OVERFLOW_TASK}
  %itemplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_OVERFLOW_ITEM}
  br label %spin
spin:
  %seen = load atomic i64, ptr %needplace monotonic, align 8
  %late = icmp slt i64 %need, %seen
{_LOCK}  %knownneed = load i64, ptr %needplace, align 8
  %knowntask = load i32, ptr %taskplace, align 4
  %knownitem = load i64, ptr %itemplace, align 8
  %larger = icmp sgt i64 %need, %knownneed
  %equal = icmp eq i64 %need, %knownneed
  %earliertask = icmp slt i32 %task, %knowntask
  %sametask = icmp eq i32 %task, %knowntask
  %loweritem = icmp slt i64 %item, %knownitem
  %earlieritem = and i1 %sametask, %loweritem
  %earlier = or i1 %earliertask, %earlieritem
  %first = and i1 %equal, %earlier
  %counts = or i1 %larger, %first
  br i1 %counts, label %write, label %unlock
write:
  %messageplace = getelementptr i8, ptr %buffer, i64 {abi.MESSAGES_OVERFLOW_ID}
  store i32 %message, ptr %messageplace, align 4
  store i32 %task, ptr %taskplace, align 4
  store i64 %item, ptr %itemplace, align 8
  store atomic i64 %need, ptr %needplace monotonic, align 8
  br label %unlock
{_UNLOCK}}}
"""
