"""A kernel that sets several small ranges of memory to zero, a block for each.

The driver takes 1.3 us of the host for each fill node of a graph, and the GPU about as long; a
kernel node takes 2.9 us with any number of ranges.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_void_p

from octants.runtime.cuda.graphs.builder import DriverGraphBuilder, kernel_node
from octants.runtime.cuda.modules import DeviceFunction, table_kernel

MOST_RANGES = 64
MOST_BYTES = 1 << 16
"""Of a range: a block sets it in some microseconds."""
_THREADS = 512
_WORD = 4

NAME = "octants_clear"
_BODY = f"""\
  .reg .pred %q;
  .reg .b32 %r<3>;
  .reg .b64 %d<7>;
  mov.u32 %r0, %ctaid.x;
  mul.wide.u32 %d0, %r0, 16;
  mov.u64 %d1, p;
  add.u64 %d1, %d1, %d0;
  ld.param.u64 %d2, [%d1];
  ld.param.u64 %d3, [%d1+8];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d4, %r1, {_WORD};
  mov.u32 %r2, 0;
next:
  setp.ge.u64 %q, %d4, %d3;
  @%q ret;
  add.u64 %d5, %d2, %d4;
  st.global.u32 [%d5], %r2;
  add.u64 %d4, %d4, {_WORD * _THREADS};
  bra next;
"""
CODE = table_kernel(NAME, 16 * MOST_RANGES, _BODY)
"""Its parameter is a list of addresses and bytes."""

Ranges = Sequence[tuple[int, int]]


def is_small(address: int, nbytes: int) -> bool:
    """Whether the kernel can clear a range: few whole words."""
    return nbytes <= MOST_BYTES and not (address | nbytes) % _WORD


def add_clears(nodes: DriverGraphBuilder, function: DeviceFunction, ranges: Ranges) -> None:
    """Add the launches that clear small ranges."""
    for start in range(0, len(ranges), MOST_RANGES):
        some = ranges[start : start + MOST_RANGES]
        numbers = [number for each in some for number in each]
        table = (ctypes.c_int64 * (2 * MOST_RANGES))(*numbers)
        arguments = (c_void_p * 1)(addressof(table))
        nodes.launch(kernel_node(nodes.library, function.handle, len(some), _THREADS, arguments))
