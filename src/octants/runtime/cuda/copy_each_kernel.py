"""A kernel that copies several pieces of memory, with a row of blocks for each."""

from __future__ import annotations

MOST_PIECES = 8
UNIT, WORD = 16, 4
"""Bytes that a thread moves at once: the first if all numbers are multiples of it."""

CODE = f"""\
.version 6.4
.target sm_75
.address_size 64
.visible .entry octants_copy_each(.param .align 8 .b8 p[{24 * MOST_PIECES}])
{{
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
  mul.wide.u32 %d6, %r0, {UNIT};
  mul.wide.u32 %d7, %r3, {UNIT};
units:
  setp.ge.u64 %q1, %d6, %d4;
  @%q1 ret;
  add.u64 %d8, %d3, %d6;
  ld.global.v4.u32 {{%w0, %w1, %w2, %w3}}, [%d8];
  add.u64 %d9, %d2, %d6;
  st.global.v4.u32 [%d9], {{%w0, %w1, %w2, %w3}};
  add.u64 %d6, %d6, %d7;
  bra units;
words:
  mul.wide.u32 %d6, %r0, {WORD};
  mul.wide.u32 %d7, %r3, {WORD};
next:
  setp.ge.u64 %q2, %d6, %d4;
  @%q2 ret;
  add.u64 %d8, %d3, %d6;
  ld.global.u32 %w0, [%d8];
  add.u64 %d9, %d2, %d6;
  st.global.u32 [%d9], %w0;
  add.u64 %d6, %d6, %d7;
  bra next;
}}
"""
"""Its parameter is a list of targets, sources and bytes; each row of blocks copies one piece."""
