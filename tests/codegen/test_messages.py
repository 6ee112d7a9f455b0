"""Printed lines and failed assertions: their order, their text, what stops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from octants.diagnostics.exceptions import OctantsAssertionError
from octants.diagnostics.span import Span
from octants.ir.core import Module
from octants.runtime.cpu import CpuDevice
from octants.runtime.reports.messages import CAPACITY
from octants.types import scalars
from octants.types.scalars import f16, f32, f64, i32, u1
from tests.codegen.compiled import Compiled, for_, if_, ndarray, parallel, run, serial, temporary


def of(count: int) -> Any:
    return lambda build: (build.index(0), build.index(count))


def test_lines_come_in_the_order_of_tasks_and_items(capsys: Any) -> None:
    def body(build: Any, i: Any) -> None:
        build.print_(("first ", ("",), "\n"), [i])
        build.print_(("second ", ("04d",), "!\n"), [i])

    tasks = [
        parallel("t", of(3000), body),
        serial("u", lambda build: build.print_(("then\n",), [])),
        parallel("v", lambda build: (build.index(-2), build.index(1)), body),
    ]
    run(Module("lines", [], tasks=tasks), {})
    wanted = [f"{word}" for i in range(3000) for word in (f"first {i}", f"second {i:04d}!")]
    wanted.append("then")
    wanted += [word for i in (-2, -1, 0) for word in (f"first {i}", f"second {i:04d}!")]
    assert capsys.readouterr().out.splitlines() == wanted


def test_values_of_every_type(capsys: Any) -> None:
    def body(build: Any) -> None:
        parts = tuple(part for _ in range(9) for part in ((("",), " ")))
        low = [build.constant(scalars.integer_range(t)[0], t) for t in scalars.ALL if t.is_integer]
        build.print_((*parts[:15], "|\n"), low)
        high = [build.constant(scalars.integer_range(t)[1], t) for t in scalars.ALL if t.is_integer]
        build.print_((*parts[:15], "|\n"), high)
        floats = [build.constant(0.1, f16), build.constant(0.1, f32), build.constant(0.1, f64)]
        extra = [
            build.constant(math.nan, f32),
            build.constant(-math.inf, f64),
            build.constant(True, u1),
        ]
        build.print_((*parts[:11], (" >8.3f",), "\n"), [*floats, *extra, floats[1]])

    run(Module("values", [], tasks=[serial("t", body)]), {})
    assert capsys.readouterr().out.splitlines() == [
        "-128 -32768 -2147483648 -9223372036854775808 0 0 0 0|",
        "127 32767 2147483647 9223372036854775807 255 65535 4294967295 18446744073709551615|",
        "0.1 0.1 0.1 nan -inf True   0.100",
    ]


def test_what_does_not_fit_is_counted(capsys: Any) -> None:
    count = CAPACITY // 3 + 1000

    def body(build: Any, i: Any) -> None:
        build.print_((("",), "\n"), [i])

    kernel = Compiled(Module("much", [], tasks=[parallel("t", of(count), body)]))
    kernel.run({})
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == CAPACITY // 3
    assert len(set(lines)) == len(lines)
    assert last == f"[{count - len(lines)} more prints of kernel `much` did not fit its buffer]"


@pytest.mark.parametrize("first", [0, 1, 4321, 99_999])
def test_the_lowest_failing_item_is_reported(first: int) -> None:
    x, done, later = ndarray("x", f32), ndarray("done", i32), ndarray("later", i32)

    def body(build: Any, i: Any) -> None:
        value = build.load(x, [i])
        ok = build.compare("ge", value, build.constant(0.0, f32))
        build.assert_("assertion", "x[{}] is {:.2f}, {{}}", ok, [i, value])
        build.store(done, [i], build.index(1))

    def after(build: Any) -> None:
        build.store(later, [build.index(0)], build.index(1))

    task = parallel("t", lambda build: (build.index(0), build.shape(x, 0)), body)
    module = Module("check", [x, done, later], tasks=[task, serial("u", after)])
    kernel = Compiled(module)
    n = 100_000
    for _ in range(5):
        data = {
            "x": np.where(np.arange(n) < first, 1.0, -0.125).astype(np.float32),
            "done": np.zeros(n, np.int32),
            "later": np.zeros(1, np.int32),
        }
        with pytest.raises(OctantsAssertionError) as caught:
            kernel.run(data)
        assert f"assertion failed: x[{first}] is -0.12, {{}}" in str(caught.value)
        assert f"work item {first}," in str(caught.value)
        assert data["done"][:first].all()
        assert not data["done"][first:].any()
        assert data["later"][0] == 0
    data["x"][:] = 1
    kernel.run(data)  # the next launch knows nothing of the failure
    assert data["done"].all()
    assert data["later"][0] == 1


def test_a_failure_inside_loops_ends_the_work_item_and_shows_its_line(tmp_path: Any) -> None:
    source = tmp_path / "program.py"
    source.write_text("def k():\n    assert n < 3\n")
    out = ndarray("out", i32)

    def body(build: Any, i: Any) -> None:
        def loop(build: Any, k: Any, carried: Any) -> Any:
            def inner(build: Any) -> Any:
                build.location = Span(str(source), 2, 4, 2, 16, "k")
                build.assert_("bounds", "index {}", build.compare("lt", k, build.index(3)), [k])
                return []

            if_(build, build.compare("gt", k, build.index(1)), inner, lambda _: [])
            build.store(out, [i], k)
            return []

        for_(build, build.index(0), build.index(10), [], loop)
        build.store(out, [i], build.index(99))

    task = parallel("t", lambda build: (build.index(0), build.shape(out, 0)), body)
    data = {"out": np.zeros(2, np.int32)}
    with pytest.raises(OctantsAssertionError) as caught:
        run(Module("loops", [out], tasks=[task]), data)
    assert data["out"][0] == 2
    text = str(caught.value)
    assert "kernel `loops`: index 3" in text
    assert f"{source}:2 in `k`" in text
    assert "    assert n < 3" in text


def test_what_was_printed_before_a_failure_is_there(capsys: Any) -> None:
    flag = temporary("flag", u1)

    def body(build: Any) -> None:
        build.print_(("before\n",), [])
        build.assert_("assertion", "never", build.load(flag, []), [])
        build.print_(("after\n",), [])

    with pytest.raises(OctantsAssertionError, match="never"):
        run(Module("early", [flag], tasks=[serial("t", body)]), {})
    assert capsys.readouterr().out == "before\n"


def test_a_failure_with_very_many_values() -> None:
    flag = temporary("flag", u1)

    def body(build: Any) -> None:
        values = [build.index(k) for k in range(100)]
        build.assert_("assertion", "{} " * 100, build.load(flag, []), values)

    with pytest.raises(OctantsAssertionError) as caught:
        run(Module("many", [flag], tasks=[serial("t", body)]), {})
    assert "0 1 2 " in str(caught.value)
    assert "71 ... ... " in str(caught.value)


def late(build: Any, i: Any, x: Any) -> Any:
    """A zero that takes item 0 some 100 ms and all others no time."""
    is_first = build.compare("eq", i, build.index(0))
    turns = build.select(is_first, build.index(100_000_000), build.index(0))
    start = build.load(x, [i])
    (total,) = for_(
        build,
        build.index(0),
        turns,
        [start],
        lambda b, _, c: [b.binary("mul", c[0], b.constant(0.5, f64))],
    )
    return total


def test_the_lowest_item_and_the_order_of_lines_do_not_depend_on_who_is_first(capsys: Any) -> None:
    x = ndarray("x", f64)

    def fails(build: Any, i: Any) -> None:
        ok = build.compare("gt", late(build, i, x), build.constant(0.0, f64))
        build.assert_("assertion", "item {}", ok, [i])

    def prints(build: Any, i: Any) -> None:
        build.print_((("",), " ", ("",), "\n"), [i, late(build, i, x)])

    domain: Any = lambda build: (build.index(0), build.shape(x, 0))  # noqa: E731
    device = CpuDevice(2)
    failing = Compiled(Module("fails", [x], tasks=[parallel("t", domain, fails)]), device)
    printing = Compiled(Module("prints", [x], tasks=[parallel("t", domain, prints)]), device)
    for _ in range(3):
        printing.run({"x": np.zeros(4)})
        assert capsys.readouterr().out == "0 0.0\n1 0.0\n2 0.0\n3 0.0\n"
        with pytest.raises(OctantsAssertionError, match="item 0\n"):
            failing.run({"x": np.zeros(4)})
    device.close()
