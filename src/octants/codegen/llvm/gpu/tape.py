"""The tape of a thread of a GPU: words that are interleaved with those of 31 other threads."""

from __future__ import annotations

from collections.abc import Callable

from octants import abi
from octants.codegen.llvm.function import Tape
from octants.codegen.llvm.gpu.text import ThreadText
from octants.ir.core import Record

_WORDS_APART = abi.TAPE_LANES * abi.TAPE_WORD


class ThreadTape(Tape):
    """As `abi` describes it. The stride of a record is a multiple of a word."""

    def __init__(self, f: ThreadText) -> None:
        self._f = f

    def stride(self, record: Record) -> int:
        return -(-record.stride // abi.TAPE_WORD) * abi.TAPE_WORD

    def _start(self) -> str:
        """The address of the thread's first word, computed once."""
        f = self._f
        tape, capacity = f.told(abi.LAUNCH_TAPE, "ptr"), self._capacity()
        group = f.once("tape group", f"lshr i64 {f.thread()}, 5")
        skipped = f.once("tape skipped", f"mul i64 {capacity}, {abi.TAPE_LANES}")
        before = f.once("tape before", f"mul i64 {group}, {skipped}")
        lane = f.once("tape lane", f"and i64 {f.thread()}, {abi.TAPE_LANES - 1}")
        column = f.once("tape column", f"shl i64 {lane}, 2")
        offset = f.once("tape offset", f"add i64 {before}, {column}")
        return f.once("tape start", f"getelementptr i8, ptr {f.in_global(tape)}, i64 {offset}")

    def _capacity(self) -> str:
        return self._f.told(abi.LAUNCH_CAPACITY, "i64")

    def address(self, position: str) -> str:
        f = self._f
        scaled = f.apply("mul", "i64", position, abi.TAPE_LANES)
        return f.assign(f"getelementptr i8, ptr {self._start()}, i64 {scaled}")

    def write(self, start: str, offset: int, type: str, stored: str) -> None:
        f = self._f
        suffix = f.kernel.scopes.suffix(None)
        if type not in ("i64", "double"):
            place = self._member(start, offset)
            f.emit(f"store {type} {stored}, ptr {place}{suffix}")
            return
        bits = stored if type == "i64" else f.convert("bitcast", type, stored, "i64")
        high = f.apply("lshr", "i64", bits, 32)
        for number, half in enumerate((bits, high)):
            word = f.convert("trunc", "i64", half, "i32")
            place = self._member(start, offset + number * abi.TAPE_WORD)
            f.emit(f"store i32 {word}, ptr {place}{suffix}")

    def read(self, start: str, offset: int, type: str) -> str:
        f = self._f
        suffix = f.kernel.scopes.suffix(None)
        if type not in ("i64", "double"):
            return f.assign(f"load {type}, ptr {self._member(start, offset)}{suffix}")
        words = []
        for number in range(2):
            place = self._member(start, offset + number * abi.TAPE_WORD)
            word = f.assign(f"load i32, ptr {place}{suffix}")
            words.append(f.convert("zext", "i32", word, "i64"))
        bits = f.apply("or", "i64", words[0], f.apply("shl", "i64", words[1], 32))
        return bits if type == "i64" else f.convert("bitcast", "i64", bits, type)

    def _member(self, start: str, offset: int) -> str:
        """The place of a byte of an iteration that begins with a word."""
        word, byte = divmod(offset, abi.TAPE_WORD)
        return self._f.assign(f"getelementptr i8, ptr {start}, i64 {word * _WORDS_APART + byte}")

    def share(self) -> str:
        return self._f.told(abi.LAUNCH_SHARE, "i64")

    def require(self, nbytes: str, refused: Callable[[], None]) -> None:
        f = self._f
        room, none = f.fresh_label("room"), f.fresh_label("refused")
        enough = f.apply("icmp ule", "i64", nbytes, self._capacity())
        f.branch_if(enough, room, none, likely=True)
        f.start(none)
        refused()
        f.start(room)

    def give_up(self, item: str, nbytes: str) -> bool:
        """Note the work item and its need; the host runs it again. A graph is stopped."""
        f = self._f
        number = item if f.item_type == "i64" else f.convert("sext", f.item_type, item, "i64")
        place = f.told(abi.LAUNCH_REFUSED, "ptr")
        lower = f.lower()
        index = f.apply("sub", "i64", number, lower)
        need = f.assign(f"getelementptr i8, ptr {place}, i64 {abi.REFUSED_NEED}")
        count = f.assign(f"getelementptr i8, ptr {place}, i64 {abi.REFUSED_COUNT}")
        f.emit(f"atomicrmw umax ptr {need}, i64 {nbytes} {f.order}, align 8")
        f.emit(f"atomicrmw add ptr {count}, i64 1 {f.order}, align 8")
        word, bit = f.item_bit(index)
        f.emit(f"atomicrmw or ptr {word}, i32 {bit} {f.order}, align 4")
        self._stop()
        f.branch(f.exit)
        return True

    def _stop(self) -> None:
        """Stop the nodes behind this one, if it is one of a graph."""
        f = self._f
        tell, told = f.fresh_label("tell"), f.fresh_label("told")
        place = f.told(abi.LAUNCH_STOP, "ptr")
        f.branch_if(f.apply("icmp ne", "ptr", place, "null"), tell, told)
        f.start(tell)
        number, place = f.told(abi.LAUNCH_NODE, "i64"), f.in_global(place)
        f.emit(f"store atomic i64 {number}, ptr {place} {f.order}, align 8")
        f.branch(told)
        f.start(told)
