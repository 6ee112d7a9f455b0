"""Which functions a kernel must not call while it is compiled."""

from __future__ import annotations

import datetime as dt
import random
import time
from typing import Any

import numpy as np
import pytest

import octants as qd
from octants.frontend.compile_time.host_functions import way_out

REFUSED = [
    time.time,
    time.time_ns,
    time.monotonic,
    time.perf_counter_ns,
    time.process_time,
    time.thread_time,
    dt.datetime.now,
    dt.datetime.utcnow,
    dt.date.today,
    random.random,
    random.Random(1).gauss,
    np.random.rand,
    np.random.default_rng(0).normal,
    qd.field,
    qd.Vector.field,
    qd.init,
]
ALLOWED = [
    np.sin,
    max,
    time.strftime,
    dt.timedelta,
    dt.datetime,
    dt.datetime.fromtimestamp,
    qd.Vector,
    (3).bit_length,
    [].append,
    dict.fromkeys,
    np.float64,
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda each: each.__qualname__)
def test_what_gives_something_else_at_each_call_is_refused(function: Any) -> None:
    assert way_out(function)


@pytest.mark.parametrize("function", ALLOWED, ids=lambda each: each.__name__)
def test_all_else_is_not(function: Any) -> None:
    assert not way_out(function)
