"""Aim a billiard ball through collisions that are found event by event.

Balls roll without friction and hit each other and the cushions elastically. A work item plays one
shot: a `while` loop finds the next collision, moves all balls up to it, and exchanges momentum. The
gradient goes through the times of the events, so that a descent learns where to aim. Run it:
``python examples/billiard.py``.
"""

from __future__ import annotations

import argparse

import numpy as np

import octants as qd

BALLS = 4
RADIUS = 0.05
WIDTH, HEIGHT = 2.0, 1.0  # of the table, in metres
SPEED = 1.5  # of the cue ball, in metres per second
SECONDS = 1.6  # of a shot
NEVER = 1e9
START = np.array([[0.3, 0.5], [1.0, 0.52], [1.3, 0.35], [1.35, 0.7]])
TARGET = np.array([1.6, 0.8])  # where the last ball should come to lie when time is up


@qd.data_oriented
class Billiard:
    """Many shots at once, each with an angle of its own.

    Args:
        shots: The number of shots.
    """

    def __init__(self, shots: int) -> None:
        self.angle = qd.field(float, shape=shots, needs_grad=True)
        self.loss = qd.field(float, shape=(), needs_grad=True)
        self.start = qd.Vector.field(2, float, shape=BALLS)
        self.last = qd.Vector.field(2, float, shape=(shots, BALLS))
        self.velocity = qd.Vector.field(2, float, shape=(shots, BALLS))
        self.distance = qd.field(float, shape=shots)
        self.events = qd.field(int, shape=shots)
        self.start.from_numpy(START)

    @qd.func
    def until_meeting(self, offset, velocity):
        """How long until two balls touch that are `offset` apart and approach with `velocity`."""
        time = NEVER
        approach = offset.dot(velocity)
        if approach < 0.0:
            a = velocity.dot(velocity)
            c = offset.dot(offset) - 4.0 * RADIUS * RADIUS
            discriminant = approach * approach - a * c
            if discriminant > 0.0:
                time = qd.max(0.0, (-approach - qd.sqrt(discriminant)) / a)
        return time

    @qd.func
    def until_cushion(self, place, velocity, length):
        """How long until a ball touches one of two cushions that are `length` apart."""
        time = NEVER
        if velocity > 0.0:
            time = (length - RADIUS - place) / velocity
        elif velocity < 0.0:
            time = (RADIUS - place) / velocity
        return qd.max(0.0, time)

    @qd.kernel
    def play(self, seconds: float):
        for shot in self.angle:
            x = qd.Matrix.zero(float, BALLS, 2)
            v = qd.Matrix.zero(float, BALLS, 2)
            for i in qd.static(range(BALLS)):
                x[i, 0], x[i, 1] = self.start[i][0], self.start[i][1]
            v[0, 0] = SPEED * qd.cos(self.angle[shot])
            v[0, 1] = SPEED * qd.sin(self.angle[shot])
            left = seconds
            events = 0
            while left > 0.0:
                # The first event: of balls i and j, or of ball i and a cushion (axis 0 or 1).
                step, first, second, axis = left, -1, -1, -1
                for i in qd.static(range(BALLS)):
                    xi, vi = qd.Vector([x[i, 0], x[i, 1]]), qd.Vector([v[i, 0], v[i, 1]])
                    for k in qd.static(range(2)):
                        t = self.until_cushion(xi[k], vi[k], qd.static((WIDTH, HEIGHT)[k]))
                        if t < step:
                            step, first, second, axis = t, i, -1, k
                    for j in qd.static(range(i)):
                        offset = qd.Vector([x[j, 0], x[j, 1]]) - xi
                        t = self.until_meeting(offset, qd.Vector([v[j, 0], v[j, 1]]) - vi)
                        if t < step:
                            step, first, second, axis = t, i, j, -1
                x += step * v
                left -= step
                for i in qd.static(range(BALLS)):
                    for k in qd.static(range(2)):
                        if first == i and axis == k:
                            v[i, k] = -v[i, k]
                    for j in qd.static(range(i)):
                        if first == i and second == j:
                            normal = qd.Vector([x[j, 0] - x[i, 0], x[j, 1] - x[i, 1]]).normalized()
                            along = (
                                qd.Vector([v[i, 0] - v[j, 0], v[i, 1] - v[j, 1]]).dot(normal)
                            ) * normal
                            for k in qd.static(range(2)):
                                v[i, k] -= along[k]
                                v[j, k] += along[k]
                events += 1
                if first < 0:
                    left = 0.0
            for i in qd.static(range(BALLS)):
                self.last[shot, i] = qd.Vector([x[i, 0], x[i, 1]])
                self.velocity[shot, i] = qd.Vector([v[i, 0], v[i, 1]])
            miss = qd.Vector([x[BALLS - 1, 0] - TARGET[0], x[BALLS - 1, 1] - TARGET[1]])
            self.distance[shot] = miss.norm()
            self.events[shot] = events
            self.loss[None] += miss.norm_sqr()

    def simulate(self, angle: np.ndarray, seconds: float = SECONDS) -> np.ndarray:
        """How far the last ball ends from its target, of shape (shots,), in metres."""
        self.angle.from_numpy(np.asarray(angle))
        self.loss[None] = 0.0
        self.play(seconds)
        return self.distance.to_numpy()

    def gradient(self, angle: np.ndarray, seconds: float = SECONDS) -> np.ndarray:
        """The derivatives of the squared distances by the angles, of shape (shots,)."""
        self.angle.from_numpy(np.asarray(angle))
        with qd.ad.Tape(loss=self.loss):
            self.play(seconds)
        return self.angle.grad.to_numpy()


def aim(shots: int, iterations: int) -> tuple[Billiard, np.ndarray]:
    """A descent from many angles at once; the table, and the angles that were found."""
    table = Billiard(shots)
    angle = np.linspace(-0.25, 0.25, shots)
    best, least = angle.copy(), table.simulate(angle)
    rate = np.full(shots, 2e-3)
    for _ in range(iterations):
        change = -rate * np.clip(table.gradient(best), -1.0, 1.0)
        distance = table.simulate(best + change)
        better = distance < least
        best[better] += change[better]
        least[better] = distance[better]
        rate *= np.where(better, 1.5, 0.4)
    return table, best


def workload():
    """The forward run and the gradient that ``bench/examples.py`` times."""
    table = Billiard(4096)
    angle = np.linspace(-0.25, 0.25, 4096)
    return lambda: table.simulate(angle), lambda: table.gradient(angle)


def draw(table: Billiard, angles: np.ndarray, best: int, path: str) -> None:
    """The paths of the balls in one of the shots."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    axes = (figure := Figure(figsize=(6, 3.2), layout="constrained")).subplots()
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT), aspect="equal", xticks=[], yticks=[])
    axes.set_facecolor("#2d6a4f")
    paths = []
    for seconds in np.linspace(0.0, SECONDS, 160):
        table.simulate(angles, float(seconds))
        paths.append(table.last.to_numpy()[best])
    colours = ("white", "#f4a261", "#8ecae6", "#e63946")
    for ball, colour in enumerate(colours):
        line = np.array(paths)[:, ball]
        axes.plot(line[:, 0], line[:, 1], color=colour, linewidth=1)
        axes.add_patch(Circle((line[-1, 0], line[-1, 1]), RADIUS, color=colour))
    axes.add_patch(
        Circle((TARGET[0], TARGET[1]), 1.4 * RADIUS, fill=False, color="black", linewidth=2)
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    """Find the angle, print how close the ball comes, draw the shot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=int, default=256, help="angles to begin with")
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--output", default="billiard.png", help="the picture")
    options = parser.parse_args()
    qd.init(arch=qd.cpu, default_fp=qd.f64)
    table, angles = aim(options.shots, options.iterations)
    distance = table.simulate(angles)
    best = int(distance.argmin())
    print(f"aim at {np.degrees(angles[best]):.4f} degrees: {distance[best] * 1000:.3f} mm off")
    print(f"after {table.events.to_numpy()[best]} events")
    draw(table, angles, best, options.output)


if __name__ == "__main__":
    main()
