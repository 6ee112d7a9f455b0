"""A step of Conway's game of life."""
# mypy: ignore-errors

from __future__ import annotations

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    n = 128
    alive = qd.field(qd.i32, shape=(n, n))
    count = qd.field(qd.i32, shape=(n, n))

    @qd.kernel
    def init():
        for i, j in alive:
            alive[i, j] = (i * 7 + j * 13) % 5 == 0

    @qd.kernel
    def step():
        for i, j in alive:
            c = 0
            for k in qd.static(range(-1, 2)):
                for m in qd.static(range(-1, 2)):
                    if k != 0 or m != 0:
                        c += alive[(i + k + n) % n, (j + m + n) % n]
            count[i, j] = c
        for i, j in alive:
            if alive[i, j] == 1:
                if count[i, j] < 2 or count[i, j] > 3:
                    alive[i, j] = 0
            elif count[i, j] == 3:
                alive[i, j] = 1

    def forward():
        init()
        step()
        return alive[3, 3]

    return forward, None
