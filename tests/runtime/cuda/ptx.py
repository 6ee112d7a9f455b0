"""Kernels in PTX, written by hand, for tests on a real GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octants import abi
from octants.artifact import SYSTEM, Artifact, Dispatch, ParameterLayout, Slot

_HEAD = """\
.version 6.3
.target sm_75
.address_size 64
"""

_START = """\
.visible .entry {name}(.param .align 8 .b8 p[{bytes}], .param .align 8 .b8 l[64])
{{
  .reg .pred %p<8>;
  .reg .b32 %r<16>;
  .reg .b64 %d<32>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.wide.u32 %d0, %r1, %r2, 0;
  cvt.u64.u32 %d1, %r3;
  add.u64 %d0, %d0, %d1;        // the thread
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %d2, %r4, %r2;   // how many there are
  ld.param.u64 %d3, [l];        // lower
  ld.param.u64 %d4, [l+8];      // upper
"""

ADD = """\
  ld.param.u64 %d5, [p+24];
  add.s64 %d6, %d3, %d0;
next:
  setp.ge.s64 %p1, %d6, %d4;
  @%p1 bra end;
  shl.b64 %d7, %d6, 3;
  add.u64 %d8, %d5, %d7;
  ld.global.u64 %d9, [%d8];
  add.u64 %d9, %d9, 1;
  st.global.u64 [%d8], %d9;
  add.s64 %d6, %d6, %d2;
  bra next;
end:
  ret;
}
"""
"""Adds 1 to the items of the array in the first slot."""

TELL = f"""\
  ld.param.u64 %d5, [l+{abi.LAUNCH_BOUNDS}];
  ld.param.u64 %d6, [p+32];
  ld.param.u64 %d7, [p+40];
  st.global.u64 [%d5], %d6;
  st.global.u64 [%d5+8], %d7;
  ret;
}}
"""
"""Computes the bounds of the next dispatch: the second and the third slot."""

USE = f"""\
  ld.param.u64 %d10, [l+{abi.LAUNCH_BOUNDS}];
  ld.global.u64 %d3, [%d10];
  ld.global.u64 %d4, [%d10+8];
{ADD}"""
"""The same as `ADD`, over these bounds."""

TRAP = """\
  mov.u64 %d5, 64;
  st.global.u64 [%d5], %d5;
  ret;
}
"""

SPIN = """\
  ld.param.u64 %d5, [p+24];
  mov.u64 %d6, %globaltimer;
  add.u64 %d6, %d6, %d5;
again:
  mov.u64 %d7, %globaltimer;
  setp.lt.u64 %p1, %d7, %d6;
  @%p1 bra again;
  ret;
}
"""
"""Takes as many nanoseconds as the first slot says."""

SPEAK = f"""\
  ld.param.u64 %d5, [p];
  ld.param.u64 %d6, [p+24];
  ld.param.u64 %d7, [p+32];
  and.b64 %d8, %d6, 1;
  setp.eq.u64 %p1, %d8, 0;
  @%p1 bra fail;
  mov.u64 %d9, 0;
  st.global.u64 [%d5+{abi.MESSAGES_HEADER}], %d9;
  st.global.u64 [%d5+{abi.MESSAGES_HEADER + 8}], %d9;
  st.global.u64 [%d5+{abi.MESSAGES_HEADER + 16}], %d7;
  mov.u64 %d9, 3;
  st.global.u64 [%d5+{abi.MESSAGES_CURSOR}], %d9;
  mov.u64 %d9, 1;
  st.global.u64 [%d5+{abi.MESSAGES_COUNT}], %d9;
fail:
  and.b64 %d8, %d6, 2;
  setp.eq.u64 %p1, %d8, 0;
  @%p1 bra end;
  mov.u32 %r5, 1;
  st.global.u32 [%d5+{abi.MESSAGES_FAILED}], %r5;
  st.global.u32 [%d5+{abi.MESSAGES_FAILURE_ID}], %r5;
  st.global.u64 [%d5+{abi.MESSAGES_FAILURE_VALUES}], %d7;
end:
  ret;
}}
"""
"""Prints if the first slot has bit 0, fails if it has bit 1; the value is the second slot."""

FOLLOW = """\
  ld.param.u64 %d20, [p];
  ld.global.u64 %d5, [%d20+24];
  add.s64 %d6, %d3, %d0;
  ld.global.u64 %d21, [%d20+32];
next:
  setp.ge.s64 %p1, %d6, %d4;
  @%p1 bra end;
  shl.b64 %d7, %d6, 3;
  add.u64 %d8, %d5, %d7;
  st.global.u64 [%d8], %d21;
  add.s64 %d6, %d6, %d2;
  bra next;
end:
  ret;
}
"""
"""Stores the second slot in the items of the array; the parameters are given by their address."""

RECORDS = f"""\
  ld.param.u64 %d5, [p+24];                      // out
  ld.param.u64 %d10, [l+{abi.LAUNCH_RECORD_BUFFERS}];
  ld.param.u64 %d11, [l+{abi.LAUNCH_CAPACITY}];
  ld.param.u64 %d12, [l+{abi.LAUNCH_FAILURES}];
  ld.param.u64 %d13, [l+{abi.LAUNCH_RETRY}];
  shr.u64 %d14, %d0, 5;
  shl.b64 %d15, %d11, 5;
  mul.lo.u64 %d14, %d14, %d15;
  add.u64 %d10, %d10, %d14;
  and.b64 %d14, %d0, 31;
  shl.b64 %d14, %d14, 2;
  add.u64 %d10, %d10, %d14;                      // the thread's first word
  add.s64 %d6, %d3, %d0;
next:
  setp.ge.s64 %p1, %d6, %d4;
  @%p1 bra end;
  sub.u64 %d16, %d6, %d3;
  shr.u64 %d17, %d16, 5;
  shl.b64 %d17, %d17, 2;
  add.u64 %d17, %d17, %d12;                      // the word of its bit, less 16
  cvt.u32.u64 %r5, %d16;
  and.b32 %r5, %r5, 31;
  mov.u32 %r6, 1;
  shl.b32 %r6, %r6, %r5;
  setp.eq.u64 %p2, %d13, 0;
  @%p2 bra run;
  ld.volatile.global.u32 %r7, [%d17+{abi.REFUSED_ITEMS}];
  and.b32 %r8, %r7, %r6;
  setp.eq.u32 %p3, %r8, 0;
  @%p3 bra done;
  not.b32 %r9, %r6;
  atom.global.and.b32 %r7, [%d17+{abi.REFUSED_ITEMS}], %r9;
run:
  rem.u64 %d18, %d6, 1000;                       // words that it needs
  shl.b64 %d19, %d18, 2;
  setp.le.u64 %p4, %d19, %d11;
  @%p4 bra fits;
  atom.global.max.u64 %d20, [%d12+{abi.REFUSED_NEED}], %d19;
  atom.global.add.u64 %d20, [%d12+{abi.REFUSED_COUNT}], 1;
  atom.global.or.b32 %r7, [%d17+{abi.REFUSED_ITEMS}], %r6;
  bra done;
fits:
  mov.u64 %d20, 0;
push:
  setp.ge.u64 %p5, %d20, %d18;
  @%p5 bra pop;
  shl.b64 %d21, %d20, 7;
  add.u64 %d21, %d21, %d10;
  cvt.u32.u64 %r10, %d20;
  st.global.u32 [%d21], %r10;
  add.u64 %d20, %d20, 1;
  bra push;
pop:
  mov.u64 %d22, 0;
more:
  setp.eq.u64 %p6, %d20, 0;
  @%p6 bra store;
  sub.u64 %d20, %d20, 1;
  shl.b64 %d21, %d20, 7;
  add.u64 %d21, %d21, %d10;
  ld.global.u32 %r10, [%d21];
  cvt.u64.u32 %d23, %r10;
  add.u64 %d22, %d22, %d23;
  bra more;
store:
  shl.b64 %d24, %d6, 3;
  add.u64 %d24, %d24, %d5;
  atom.global.add.u64 %d25, [%d24], %d22;
done:
  add.s64 %d6, %d6, %d2;
  bra next;
end:
  ret;
}}
"""
"""Item i pushes 0, 1, ..., i % 1000 words to its records, and adds the sum of all to `out[i]`."""


def kernel(
    dispatches: Sequence[tuple[Dispatch, str]], slots: int, messages: Any = (), **more: Any
) -> Artifact:
    """A kernel of bodies, for ``slots`` slots besides those of the system."""
    layout = [Slot("system", name) for name in SYSTEM]
    layout += [Slot("pointer", array=k) for k in range(slots)]
    by_pointer = dict(more.get("metadata", ())).get("parameters") == "pointer"
    size = 8 if by_pointer else 8 * len(layout)
    text = _HEAD + "".join(
        _START.format(name=dispatch.entry, bytes=size) + body for dispatch, body in dispatches
    )
    return Artifact(
        dispatches[0][0].entry,
        "sm_75",
        text.encode(),
        "",
        ParameterLayout(tuple(layout)),
        tuple(messages),
        kernel=dispatches[0][0].entry,
        dispatches=tuple(dispatch for dispatch, _ in dispatches),
        **more,
    )
