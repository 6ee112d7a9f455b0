"""Random kernels whose work items work together, as source text.

Statements stand in a place that all work items of a block reach together ("block"), that all lanes
of a subgroup do ("subgroup"), or that each reaches as it likes ("item"), and use what fits there.
"""

from __future__ import annotations

import random

COLUMNS = 3
HEAD = """\
def kernel(x: object, y: object, z: object, total: object, n: object):
    loop_config(block_dim={size})
    for i in x:
        pad = block.SharedArray({size}, f64)
        marks = block.SharedArray((2, {size}), i32)
        thread, lane, count = block.thread_idx(), subgroup.invocation_id(), block.size()
        number, group = block.global_thread_idx() // {size}, thread // subgroup.group_size()
        pad[thread], marks[0, thread], marks[1, thread] = x[i], thread, 1
        a, b, m = x[i], 0.5, thread
        block.sync()
"""
TAIL = """\
        y[i, 0], y[i, 1], y[i, 2] = a, b, m
"""
REDUCTIONS = ("add", "min", "max")
INTEGERS = ("add", "min", "max", "and", "or", "xor")


class Program:
    """The text of the program of a seed, for subgroups of so many lanes, and its blocks' size."""

    def __init__(self, seed: int, lanes: int = 32) -> None:
        self._largest = min(4, lanes.bit_length() - 1)  # part of a subgroup, as a logarithm
        self.chance = random.Random(seed)
        self.size = self.chance.choice([4, 16, 32, 48, 64, 72])
        self._lines: list[str] = []
        self._depth = 2
        self._loops = 0
        self._statements("block", self.chance.randint(3, 7))
        self.text = HEAD.format(size=self.size) + "\n".join(self._lines) + "\n" + TAIL

    def _add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _statements(self, place: str, count: int) -> None:
        for _ in range(count):
            self._statement(place)

    def _statement(self, place: str) -> None:
        kinds = [self._assign, self._assign, self._branch, self._loop]
        if place != "item":
            kinds += [self._lanes, self._lanes, self._lanes]
        if place == "block":
            kinds += [self._shared, self._shared, self._memory, self._count]
        if self._depth > 5:
            kinds = kinds[:2] + kinds[4:]
        if self.chance.random() < 0.1:
            kinds = [self._report]
        self.chance.choice(kinds)(place)

    # -- values ------------------------------------------------------------------------------------

    def _float(self) -> str:
        return self.chance.choice(["a", "b", "x[i]", "sin(a)", "a * b", "m * 0.125", "n * 0.5"])

    def _integer(self) -> str:
        return self.chance.choice(["m", "lane", "thread", "group", "m % 5", "number + 1", "i"])

    def _assign(self, place: str) -> None:
        if self.chance.random() < 0.6:
            target = self.chance.choice("ab")
            self._add(f"{target} = {self._float()} * 0.5 + {self._float()} * 0.25")
        else:
            self._add(f"m = ({self._integer()} + {self._integer()} * 3) % 1000")

    def _report(self, place: str) -> None:
        """Something that names the work item: a line of output, or a check that holds."""
        self._add(self.chance.choice([f'print("{place}", i, m)', "assert m > -100000, m"]))

    # -- control -----------------------------------------------------------------------------------

    def _condition(self, place: str) -> tuple[str, str]:
        """A condition, and where what depends on it stands."""
        same = ["number % 2 == 0", "n > 2", "count > 3", "number == 1"]
        conditions = {
            "block": [(text, "block") for text in same],
            "subgroup": [("group % 2 == 0", "subgroup"), ("group == n", "subgroup")],
            "item": [("thread % 3 == 1", "item"), ("a < 0.5", "item"), ("m > 7", "item")],
        }
        fitting = list(conditions["item"])
        if place != "item":
            fitting += 2 * conditions["subgroup"]
        if place == "block":
            fitting += 3 * conditions["block"]
        if place == "subgroup":
            fitting += [(text, "subgroup") for text in same]
        return self.chance.choice(fitting)

    def _branch(self, place: str) -> None:
        condition, inside = self._condition(place)
        self._add(f"if {condition}:")
        self._inside(inside)
        if self.chance.random() < 0.5:
            self._add("else:")
            self._inside(inside)

    def _inside(self, place: str) -> None:
        self._depth += 1
        self._statements(place, self.chance.randint(1, 3))
        self._depth -= 1

    def _loop(self, place: str) -> None:
        self._loops += 1
        counter = f"k{self._loops}"
        bounds = {"block": ["3", "n", "number % 3"], "subgroup": ["group + 1", "2"]}
        bound = self.chance.choice(bounds.get(place, ["m % 4", "3"]))
        if self.chance.random() < 0.5:
            self._add(f"for {counter} in range({bound}):")
            self._inside(place)
            return
        self._add(f"{counter} = 0")
        if place == "item":
            self._add(f"while {counter} < {bound} and a < 2.0:")
        else:
            self._add(f"while {counter} < {bound} and {self._agreed(place)}:")
        self._inside(place)
        self._depth += 1
        self._add(f"{counter} += 1")
        self._depth -= 1

    def _agreed(self, place: str) -> str:
        """A condition of a loop on which all agree who come there."""
        return "subgroup.any_true(m % 2 == 0) == 1" if place == "subgroup" else "n < 9"

    # -- what work items do together ---------------------------------------------------------------

    def _lanes(self, place: str) -> None:
        chance = self.chance
        kind = chance.choice(["shuffle", "reduce", "scan", "vote", "integer", "sync"])
        tiled = chance.random() < 0.4
        suffix, size = ("_tiled", f", {chance.randint(0, self._largest)}") if tiled else ("", "")
        if kind == "shuffle":
            way = chance.choice(["shuffle_up", "shuffle_down", "shuffle_xor", "shuffle"])
            lane = chance.choice(["1", "3", "n", "lane % 3", "m % 8"])
            self._add(f"a = b * 0.5 + subgroup.{way}({self._float()}, {lane}) * 0.25")
        elif kind == "reduce":
            fn = chance.choice(REDUCTIONS)
            self._add(f"b = a * 0.5 + subgroup.reduce_{fn}{suffix}({self._float()}{size}) * 0.01")
        elif kind == "scan":
            fn, way = chance.choice(REDUCTIONS[:1]), chance.choice(["inclusive", "exclusive"])
            self._add(f"a = b * 0.5 + subgroup.{way}_{fn}{suffix}({self._float()}{size}) * 0.01")
        elif kind == "vote":
            self._add("m = (m + i32(subgroup.ballot(m % 3 == 1) % 97)) % 1000")
        elif kind == "integer":
            fn = chance.choice(INTEGERS)
            self._add(f"m = subgroup.reduce_{fn}{suffix}({self._integer()}{size}) % 1000")
        else:
            self._add("subgroup.sync()")

    def _shared(self, place: str) -> None:
        step = self.chance.choice(["1", "n + 1", "number + 2", "thread"])
        which = self.chance.randint(0, 2)
        self._add("block.sync()")
        if which == 0:
            self._add(f"pad[thread] = {self._float()}")
            self._add("block.sync()")
            self._add(f"b = a * 0.25 + pad[(thread + {step}) % count] * 0.5")
        elif which == 1:
            self._add(f"marks[0, thread] = {self._integer()}")
            self._add("marks[1, thread] = 0")
            self._add("block.sync()")
            self._add(f"marks[1, (thread * 3 + {step}) % count] += marks[0, thread]")
            self._add("block.sync()")
            self._add("m = marks[1, thread] % 1000")
        else:
            self._add(f"a = block.reduce_add({self._float()}, {self.size}, f64) * 0.01")

    def _memory(self, place: str) -> None:
        """Through an array of the kernel."""
        self._add(f"z[i] = {self._float()}")
        self._add("block.sync()")
        self._add("a = z[i - thread + (thread + 1) % count] * 0.5 + b * 0.25")
        self._add("block.sync()")

    def _count(self, place: str) -> None:
        self._add(f"total[m % 4] += block.sync_count_nonzero({self._integer()} % 3 == 0)")
