"""SPIR-V as text: an instruction on each line, its result first, and results by their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octants.codegen.spirv.opcodes import (
    MAGIC,
    BuiltIn,
    Capability,
    Decoration,
    Mode,
    Op,
    StorageClass,
)

_NAMES = {
    Op.CAPABILITY: (Capability,),
    Op.DECORATE: (None, Decoration, BuiltIn),
    Op.EXECUTION_MODE: (None, Mode),
    Op.TYPE_POINTER: (None, StorageClass),
}
_STRINGS = {Op.EXTENSION: 0, Op.EXT_INST_IMPORT: 1, Op.ENTRY_POINT: 2}
_TYPES = {op for op in Op if op.name.startswith("TYPE_")} | {Op.LABEL, Op.EXT_INST_IMPORT}
_EFFECTS = {
    *(Op.EXTENSION, Op.MEMORY_MODEL, Op.ENTRY_POINT, Op.EXECUTION_MODE, Op.CAPABILITY),
    *(Op.DECORATE, Op.MEMBER_DECORATE, Op.FUNCTION_END, Op.STORE, Op.MEMORY_BARRIER),
    *(Op.CONTROL_BARRIER, Op.LOOP_MERGE, Op.SELECTION_MERGE, Op.BRANCH, Op.BRANCH_CONDITIONAL),
    *(Op.RETURN, Op.RETURN_VALUE, Op.UNREACHABLE),
}


def to_text(code: bytes) -> str:
    """The instructions of a module."""
    words = [int(word) for word in np.frombuffer(code, "<u4")]
    assert words[0] == MAGIC
    return "\n".join(_lines(words[5:]))


def _lines(words: list[int]) -> Iterator[str]:
    while words:
        count, op = words[0] >> 16, Op(words[0] & 0xFFFF)
        operands, words = words[1:count], words[count:]
        yield _line(op, operands)


def _line(op: Op, operands: list[int]) -> str:
    head = op.name.lower()
    if op in _TYPES:
        head, operands = f"{operands[0]} = {head}", operands[1:]
    elif op not in _EFFECTS:
        head, operands = f"{operands[1]} = {head}", [operands[0], *operands[2:]]
    if op in _STRINGS:
        start = _STRINGS[op] - (op in _TYPES)
        return " ".join([head, *map(str, operands[:start]), *_string(operands[start:])])
    kinds = _NAMES.get(op, ())
    shown = [str(word) for word in operands]
    for place, kind in enumerate(kinds[: len(operands)]):
        if op in _TYPES:  # whose result has been taken away
            place -= 1
        if kind is not None and (kind is not BuiltIn or "built_in" in shown):
            shown[place] = kind(operands[place]).name.lower()
    return " ".join([head, *shown])


def _string(words: list[int]) -> list[str]:
    """A string, and what stands behind it."""
    data = b"".join(word.to_bytes(4, "little") for word in words)
    text = data.split(b"\0")[0]
    return [repr(text.decode()), *map(str, words[len(text) // 4 + 1 :])]
