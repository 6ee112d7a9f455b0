"""Tables of what a run of the fuzzer found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from octants.fuzz.compare import (
    BLUNT,
    FLOOR,
    HARMLESS,
    ORACLE_ERROR,
    ROUNDOFF,
    SAFETY,
    Status,
)
from octants.fuzz.oracle.functions import ULPS


@dataclass
class Report:
    """The counts of a run. A program here is a source in one precision."""

    backend: str
    wanted: int = 0  # programs that the whole run would have
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    nonzero: int = 0
    blunt: int = 0
    seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.statuses.values())

    @property
    def compared(self) -> int:
        aside = (Status.SET_ASIDE.value, Status.REFUSED.value)
        return self.count - sum(self.statuses[status] for status in aside)

    @property
    def wrong(self) -> int:
        return self.statuses[Status.DISAGREES.value] + self.statuses[Status.FAILS.value]

    def add(self, entry: dict[str, Any]) -> None:
        """Count one verdict, as `runner` writes it."""
        self.statuses[entry["status"]] += 1
        if entry["status"] == Status.SET_ASIDE.value:
            self.reasons[entry["problems"][0].split(":")[0]] += 1
            return
        self.modes.update(entry["modes"])
        self.refusals.update(f"{mode} {code}" for mode, code in entry["refusals"].items())
        self.features.update(entry["features"])
        self.nonzero += entry["nonzero"]
        self.blunt += entry["blunt"]
        if entry["problems"]:
            self.findings.append(entry)

    def shortcomings(self) -> list[str]:
        """In what the run is not good enough, if it was long enough to tell."""
        found = []
        if self.wrong:
            found.append(f"{self.wrong} programs disagree or fail")
        if self.reasons[ORACLE_ERROR]:
            found.append(f"{self.reasons[ORACLE_ERROR]} programs are not valid")
        if self.count >= 100:
            aside = self.statuses[Status.SET_ASIDE.value] - self.reasons[HARMLESS]
            if aside > 0.1 * self.count:
                found.append("more than 10 % of the programs were set aside")
            if self.nonzero < 0.9 * self.compared:
                found.append("less than 90 % of the programs have a gradient that is not zero")
        return found

    def text(self) -> str:
        """The tables."""
        return "\n".join([*self._head(), "", *self._constructs(), "", *self._verdict()])

    def summary(self) -> str:
        """One line: how many programs were compared, refused and set aside, and which disagree."""
        refused = ", ".join(f"{n} {what}" for what, n in sorted(self.refusals.items())) or "none"
        aside = ", ".join(f"{n} {why}" for why, n in sorted(self.reasons.items())) or "none"
        seeds = ", ".join(f"{e['profile']} {e['seed']} {e['precision']}" for e in self.findings)
        left = self.wanted - self.count
        return (
            f"summary: {self.backend}: {self.compared} compared in {self.seconds:.0f} s;"
            f" refused modes: {refused}; set aside: {aside};"
            f" disagreed or failed: {self.wrong}{f' ({seeds})' if seeds else ''}"
            f"{f'; not run: {left} of {self.wanted}' if left > 0 else ''}"
        )

    def _head(self) -> list[str]:
        compared = max(1, self.compared)
        rows = [f"{self.count} programs on {self.backend} in {self.seconds:.0f} s"]
        rows += [f"  {status:<12}{number:>7}" for status, number in self.statuses.most_common()]
        rows += [f"  set aside because {why}: {number}" for why, number in self.reasons.items()]
        rows += [f"  compared in mode {mode}: {number}" for mode, number in self.modes.items()]
        rows += [f"  documented error, {what}: {n}" for what, n in self.refusals.items()]
        rows.append(f"  gradient not zero: {100 * self.nonzero / compared:.1f} % of those compared")
        rows.append(f"  blunt comparison: {100 * self.blunt / compared:.1f} %")
        tolerances = ", ".join(
            f"{name}: roundoff {ROUNDOFF[name]:.1e}, blunt above {BLUNT[name]:.0e}"
            for name in BLUNT
        )
        rows.append(
            f"  tolerance: {SAFETY:g} x running error bound ({ULPS:g} roundoffs a function)"
            f" + {FLOOR:g} roundoffs of the largest element; {tolerances}"
        )
        return rows

    def _constructs(self) -> list[str]:
        names = sorted(self.features)
        cells = [f"{name:<46}{self.features[name]:>6}" for name in names]
        half = (len(cells) + 1) // 2
        left, right = cells[:half], [*cells[half:], ""][:half]
        pairs = zip(left, right, strict=True)
        return ["programs with each construct:", *(f"  {a}   {b}".rstrip() for a, b in pairs)]

    def _verdict(self) -> list[str]:
        return self.shortcomings() or [f"no disagreement in {self.compared} programs compared"]
