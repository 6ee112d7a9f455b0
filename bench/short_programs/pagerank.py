"""Ten steps of PageRank on a random graph."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

import octants as qd


def workload():
    """The call that is timed, and no gradient."""
    n, m = 2000, 20000
    rng = np.random.default_rng(0)
    source = qd.field(qd.i32, shape=m)
    target = qd.field(qd.i32, shape=m)
    degree = qd.field(qd.f32, shape=n)
    rank = qd.field(qd.f32, shape=n)
    following = qd.field(qd.f32, shape=n)
    source.from_numpy(rng.integers(0, n, m).astype(np.int32))
    target.from_numpy(rng.integers(0, n, m).astype(np.int32))

    @qd.kernel
    def start():
        for i in degree:
            degree[i] = 0.0
            rank[i] = 1.0 / n
        for e in source:
            degree[source[e]] += 1.0

    @qd.kernel
    def step():
        for i in following:
            following[i] = 0.15 / n
        for e in source:
            following[target[e]] += 0.85 * rank[source[e]] / qd.max(degree[source[e]], 1.0)
        for i in rank:
            rank[i] = following[i]

    def forward():
        start()
        for _ in range(10):
            step()
        return rank[0]

    return forward, None
