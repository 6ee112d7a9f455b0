"""What kernels print: pieces of lines, and their order across work items and launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import octants as qd


@pytest.fixture(autouse=True, params=["cpu", "python"])
def runtime(request: Any) -> Iterator[None]:
    qd.init(arch=request.param, log_level="error")
    yield
    qd.reset()


@qd.kernel
def table(rows: qd.i32, columns: qd.i32):
    for i in range(rows):
        print("row", i, end=":")
        for j in range(columns):
            print(end=" ")
            print(i * j, i + j, sep="/", end="")
            if j % 2 == 1:
                print(",", end="")
        print()
    print("done", end="")


def test_lines_are_assembled_from_the_prints_of_a_work_item(capsys: Any) -> None:
    table(500, 3)
    lines = [f"row {i}: 0/{i} {i}/{i + 1}, {2 * i}/{i + 2}\n" for i in range(500)]
    assert capsys.readouterr().out == "".join(lines) + "done"


def test_the_next_launch_goes_on_in_the_same_line(capsys: Any) -> None:
    table(0, 0)
    table(1, 1)
    assert capsys.readouterr().out == "donerow 0: 0/0\ndone"


def test_what_a_work_item_does_not_end_the_next_one_goes_on_with(capsys: Any) -> None:
    @qd.kernel
    def digits(n: qd.i32):
        for i in range(n):
            print(i % 10, end="")
        print("", "end", sep="|")

    digits(2000)
    assert capsys.readouterr().out == "0123456789" * 200 + "|end\n"


def test_lost_prints_are_counted_in_a_line_of_their_own(capsys: Any) -> None:
    if qd.cfg.arch != qd.cpu:
        return  # the interpreter loses nothing

    @qd.kernel
    def much():
        for _ in range(400_000):
            print("x", end="")

    much()
    text, count = capsys.readouterr().out.split("\n[")
    assert set(text) == {"x"}
    assert count == f"{400_000 - len(text)} more prints of kernel `much` did not fit its buffer]\n"


SEPARATOR = " -> "


def test_options_may_be_any_text_known_at_compile_time(capsys: Any) -> None:
    @qd.kernel
    def show(end: qd.template()):
        print(1, 2, sep=SEPARATOR, end=end)
        print(3, end=end + "\n", flush=True)

    show(";")
    assert capsys.readouterr().out == "1 -> 2;3;\n"


def test_containers_of_numbers_are_printed_as_python_prints_them(capsys: Any) -> None:
    @qd.kernel
    def containers(a: qd.i32, b: qd.f64):
        print({"a": a, 2: [b, "text"]}, (a,), (a, "it's"), [])
        print(f"{ {'a': a} }", (b, [a]))

    containers(3, 0.5)
    assert capsys.readouterr().out == (
        "{'a': 3, 2: [0.5, 'text']} (3,) (3, \"it's\") []\n{'a': 3} (0.5, [3])\n"
    )


def test_arrays_and_ranges_have_no_text() -> None:
    x = qd.field(qd.f32, shape=3, needs_grad=True)

    @qd.kernel
    def show(thing: qd.template(), n: qd.i32):
        if qd.static(thing == "field"):
            print(x)
        elif qd.static(thing == "gradient"):
            print(f"{x.grad}")
        elif qd.static(thing == "in a list"):
            print([n, x])
        elif qd.static(thing == "in a dict"):
            print("{}".format({"x": x}))
        elif qd.static(thing == "range"):
            print(range(n))
        else:
            print(qd.ndrange(n, 3))

    for thing in ("field", "gradient", "in a list", "in a dict", "range", "ndrange"):
        with pytest.raises(qd.OctantsTypeError, match="OCT132: (the array `x`|a range) is not a"):
            show(thing, 3)


def test_a_program_without_an_output_prints_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdout", None)
    table(1, 1)
