"""The interpreter, checked byte by byte: a record that another one overwrites is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from octants import interpreter
from octants.interpreter import Interpreter
from octants.ir import ops
from octants.ir.core import Record, Value


class StrictRecords:
    """Who wrote each byte last; `pushes` counts what was pushed, by the name of the record."""

    def __init__(self) -> None:
        self.owners: dict[int, int] = {}
        self.serials: dict[tuple[int, Record, int], int] = {}
        self.pushes: dict[str, int] = {}

    def push(self, launch: Interpreter, op: ops.RecordPush, env: dict[Value, Any]) -> None:
        if not launch.record_buffer:  # a new work item
            self.owners, self.serials = {}, {}
        interpreter._record_push(launch, op, env)
        self.pushes[op.record.name] = self.pushes.get(op.record.name, 0) + 1
        serial = self.serials[self._key(op, env)] = sum(self.pushes.values())
        self.owners.update(dict.fromkeys(self._bytes(op, env), serial))

    def pop(self, launch: Interpreter, op: ops.RecordPop, env: dict[Value, Any]) -> None:
        serial = self.serials[self._key(op, env)]
        assert {self.owners[byte] for byte in self._bytes(op, env)} <= {serial}, "overwritten"
        interpreter._record_pop(launch, op, env)

    def _key(self, op: Any, env: dict[Value, Any]) -> tuple[int, Record, int]:
        return env[op.base], op.record, env[op.index]

    def _bytes(self, op: Any, env: dict[Value, Any]) -> range:
        stride = op.record.stride
        start = env[op.base] + env[op.index] * stride
        assert start >= 0
        return range(start, start + stride)


@contextmanager
def strict_records() -> Iterator[StrictRecords]:
    """Run the interpreter with such a record buffer."""
    records, handlers = StrictRecords(), interpreter.HANDLERS
    before = {kind: handlers[kind] for kind in (ops.RecordPush, ops.RecordPop)}
    handlers[ops.RecordPush] = records.push
    handlers[ops.RecordPop] = records.pop
    try:
        yield records
    finally:
        handlers.update(before)
