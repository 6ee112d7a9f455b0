"""The interpreter, checked byte by byte: a record that another one overwrites is an error.

So is one behind what the first sweep has reserved, which code generation relies on
(`codegen.recording_facts.pushes_in_reserve`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from octants import interpreter
from octants.codegen.recording_facts import pushes_in_reserve
from octants.interpreter import Interpreter
from octants.ir import ops
from octants.ir.core import Block, Module, Operation, Record, Value
from tests.autodiff.random_ir import gradient, inputs


class StrictRecords:
    """Who wrote each byte last; `pushes` counts what was pushed, by the name of the record.

    `held` is how many bytes the record buffer surely has, `reserved` are the pushes that need no
    more.
    """

    def __init__(self) -> None:
        self.owners: dict[int, int] = {}
        self.serials: dict[tuple[int, Record, int], int] = {}
        self.pushes: dict[str, int] = {}
        self.held = 0
        self.reserved: set[Operation] = set()

    def push(self, launch: Interpreter, op: ops.RecordPush, env: dict[Value, Any]) -> None:
        if not launch.record_buffer:  # a new work item
            self.owners, self.serials = {}, {}
        place = self._bytes(op, env)
        assert op not in self.reserved or place.stop <= self.held, "not reserved"
        self.held = max(self.held, place.stop)
        interpreter._record_push(launch, op, env)
        self.pushes[op.record.name] = self.pushes.get(op.record.name, 0) + 1
        serial = self.serials[self._key(op, env)] = sum(self.pushes.values())
        self.owners.update(dict.fromkeys(self._bytes(op, env), serial))

    def reserve(self, launch: Interpreter, op: ops.RecordReserve, env: dict[Value, Any]) -> None:
        self.held = max(self.held, env[op.end])
        interpreter._record_reserve(launch, op, env)

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
    kinds = (ops.RecordPush, ops.RecordPop, ops.RecordReserve)
    before, item = {kind: handlers[kind] for kind in kinds}, Interpreter.item

    def strict_item(launch: Interpreter, body: Block, environment: dict[Value, Any]) -> None:
        records.held, records.reserved = 0, pushes_in_reserve(body)
        item(launch, body, environment)

    handlers.update(zip(kinds, (records.push, records.pop, records.reserve), strict=True))
    Interpreter.item = strict_item  # type: ignore[method-assign]
    try:
        yield records
    finally:
        handlers.update(before)
        Interpreter.item = item  # type: ignore[method-assign]


def check_records(seed: int, budget: int, module: Module, nests: str) -> str:
    """Compare a gradient with that of replayed nests; no record may overwrite another one.

    Returns:
        How the gradient was computed.
    """
    data, weights = inputs(seed), inputs(seed + 1)
    replayed, how = gradient(module, data, weights, 0, "replay")
    with strict_records():
        found, how_found = gradient(module, data, weights, budget, nests)
    assert how == how_found
    for name, expected in replayed.items():
        assert np.array_equal(expected, found[name], equal_nan=True), (seed, budget, nests, name)
    return how
