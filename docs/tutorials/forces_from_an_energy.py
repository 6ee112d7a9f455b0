# %% [markdown]
# # Forces from an energy
#
# In molecular dynamics the force is minus the gradient of the energy. Write the energy; the force
# is one call of `kernel.grad`. You simulate a ring of beads on springs that push each other away,
# and check that the energy stays.

# %%
import matplotlib.pyplot as plt
import numpy as np

import octants as qd

qd.init(arch=qd.cpu, default_fp=qd.f64)

# %% [markdown]
# ## The energy
#
# The kernel sums over all pairs. It takes arrays as arguments; those with `needs_grad=True` have a
# gradient.

# %%
N = 60
x = qd.Vector.ndarray(2, qd.f64, N, needs_grad=True)
energy = qd.ndarray(qd.f64, 1, needs_grad=True)


@qd.kernel
def potential(x: qd.types.ndarray(), energy: qd.types.ndarray()):
    for i in range(N):
        along = x[(i + 1) % N] - x[i]
        energy[0] += 200.0 * (along.norm() - 0.1) ** 2  # a spring to the next bead
        for j in range(i):
            energy[0] += 2e-3 / (x[i] - x[j]).norm()  # all beads have the same charge


def forces():
    energy.fill(0.0)
    potential(x, energy)
    x.grad.fill(0.0)
    energy.grad.fill(1.0)  # the derivative of the energy by itself
    potential.grad(x, energy)
    return -x.grad.to_numpy()


# %% [markdown]
# ## Motion
#
# Velocity Verlet, with numpy: kernels and numpy see the same memory on a CPU.

# %%
generator = np.random.default_rng(3)
angle = 2 * np.pi * np.arange(N) / N
place = 0.6 * np.stack([np.cos(angle), 0.4 * np.sin(3 * angle) + 0.6 * np.sin(angle)], -1)
speed, dt = 0.1 * generator.standard_normal((N, 2)), 1e-3
frames, totals = [], []
x.from_numpy(place)
force = forces()
for step in range(2000):
    speed += 0.5 * dt * force
    place += dt * speed
    x.from_numpy(place)
    force = forces()
    speed += 0.5 * dt * force
    totals.append(energy[0] + 0.5 * (speed**2).sum())
    if step % 500 == 499:
        frames.append(place.copy())
drift = (max(totals) - min(totals)) / totals[0]
print(f"energy {totals[0]:.4f}, it changes by {drift:.1e} of that")
assert drift < 1e-2

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
for number, frame in enumerate(frames):
    closed = np.append(frame, frame[:1], 0)
    axes[0].plot(closed[:, 0], closed[:, 1], ".-", alpha=0.25 + 0.25 * number)
axes[0].set(aspect="equal", xticks=[], yticks=[])
axes[1].plot((np.array(totals) - totals[0]) / totals[0])
axes[1].set(xlabel="step", title="relative change of the energy")
figure.tight_layout()
plt.show()

# %% [markdown]
# Go on: [Jacobians and Hessians](../derivatives.md), such as the vibrations around a minimum of
# the energy; the example [hash_grid](../examples.md) has a list of neighbours instead of all
# pairs.
