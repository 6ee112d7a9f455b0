"""A kernel that copies several pieces of memory, with a row of blocks for each."""

from __future__ import annotations

from octants.runtime.cuda.modules import table_kernel

MOST_PIECES = 8
UNIT, WORD = 16, 4
"""Bytes that a thread moves at once: the first if all numbers are multiples of it."""


def _loop(label: str, predicate: str, nbytes: int, kind: str, registers: str) -> str:
    """The loop of a thread that moves so many bytes in each iteration."""
    return f"""\
  mul.wide.u32 %d6, %r0, {nbytes};
  mul.wide.u32 %d7, %r3, {nbytes};
{label}:
  setp.ge.u64 {predicate}, %d6, %d4;
  @{predicate} ret;
  add.u64 %d8, %d3, %d6;
  ld.global.{kind} {registers}, [%d8];
  add.u64 %d9, %d2, %d6;
  st.global.{kind} [%d9], {registers};
  add.u64 %d6, %d6, %d7;
  bra {label};
"""


NAME = "octants_copy_each"
_BODY = f"""\
  .reg .pred %q<3>;
  .reg .b32 %r<4>, %w<4>;
  .reg .b64 %d<12>;
  mov.u32 %r0, %ctaid.y;
  mul.wide.u32 %d0, %r0, 24;
  mov.u64 %d1, p;
  add.u64 %d1, %d1, %d0;
  ld.param.u64 %d2, [%d1];
  ld.param.u64 %d3, [%d1+8];
  ld.param.u64 %d4, [%d1+16];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mul.lo.u32 %r3, %r3, %r1;
  or.b64 %d5, %d2, %d3;
  or.b64 %d5, %d5, %d4;
  and.b64 %d5, %d5, {UNIT - 1};
  setp.ne.u64 %q0, %d5, 0;
  @%q0 bra words;
{_loop("units", "%q1", UNIT, "v4.u32", "{%w0, %w1, %w2, %w3}")}\
words:
{_loop("next", "%q2", WORD, "u32", "%w0")}"""
CODE = table_kernel(NAME, 24 * MOST_PIECES, _BODY)
"""Its parameter is a list of targets, sources and bytes; each row of blocks copies one piece."""
