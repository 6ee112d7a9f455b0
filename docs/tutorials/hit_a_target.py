# %% [markdown]
# # Hit a target
#
# A ball is thrown, slowed by the air, and bounces once on the ground. How must it be thrown to
# land in a hole? You write the throw as a kernel with a `while` loop, and let Octants compute how
# the place of the landing depends on the throw.

# %%
import matplotlib.pyplot as plt
import numpy as np

import octants as qd

qd.init(arch=qd.cpu, default_fp=qd.f64)

# %% [markdown]
# ## The throw as a kernel
#
# A field holds what the gradient is taken by: the velocities of many throws, which the outermost
# loop runs in parallel. The number of steps of a throw is not known beforehand: the loop ends when
# the ball has come down twice. `path` records one of the throws, for the picture.

# %%
THROWS, STEP, DRAG, GRAVITY, HOLE = 64, 0.005, 0.15, 9.81, 6.0
velocity = qd.Vector.field(2, qd.f64, shape=THROWS, needs_grad=True)
landing = qd.field(qd.f64, shape=THROWS)
loss = qd.field(qd.f64, shape=(), needs_grad=True)
path = qd.Vector.field(2, qd.f64, shape=4096)
steps = qd.field(qd.i32, shape=())


@qd.kernel
def throw(shown: int):
    for k in velocity:
        x, v = qd.Vector([0.0, 1.5]), velocity[k]
        bounces, count = 0, 0
        while bounces < 2:
            v -= STEP * (DRAG * v.norm() * v + qd.Vector([0.0, GRAVITY]))
            if x.y + STEP * v.y < 0:
                x += -x.y / v.y * v  # to the ground, not below it
                v = qd.Vector([v.x, -0.6 * v.y])
                bounces += 1
            else:
                x += STEP * v
            if k == shown:
                path[count] = x
                steps[None] = count + 1
            count += 1
        landing[k] = x.x
        loss[None] += (x.x - HOLE) ** 2


# %% [markdown]
# ## The gradient
#
# Launches inside of `qd.ad.Tape` are recorded. At its end, `velocity.grad` is the derivative of
# the loss, for all throws: each depends on its own velocity only.

# %%
start = np.stack([np.linspace(1.0, 9.0, THROWS), np.linspace(7.0, 2.0, THROWS)], -1)
velocity.from_numpy(start)
with qd.ad.Tape(loss=loss):
    throw(0)
print("the first throw lands at", round(landing[0], 3), "m, gradient", velocity.grad[0])

# %% [markdown]
# Is it right? Change a velocity a little, and see how the loss changes.

# %%
velocity[0] += [1e-6, 0.0]
before, loss[None] = loss[None], 0.0
throw(0)
print("by differences:", round((loss[None] - before) / 1e-6, 4))

# %% [markdown]
# ## Descend
#
# Newton's method in one direction: divide what is missing by the derivative of the landing.

# %%
velocity.from_numpy(start)
for _ in range(30):
    with qd.ad.Tape(loss=loss):
        throw(0)
    v, slope = velocity.to_numpy(), velocity.grad.to_numpy()
    miss = landing.to_numpy()[:, None] - HOLE
    derivative = slope / (2 * miss + 1e-12)  # of the landing, by the chain rule
    velocity.from_numpy(v - 0.5 * miss * derivative / ((derivative**2).sum(1)[:, None] + 1e-3))
miss = np.abs(landing.to_numpy() - HOLE)
print((miss < 0.01).sum(), "of", THROWS, "throws land within a centimetre of the hole")

# %%
figure, axes = plt.subplots(figsize=(7, 2.6))
for shown in (0, 20, 40, 63):
    throw(shown)
    line = path.to_numpy()[: steps[None]]
    axes.plot(line[:, 0], line[:, 1])
axes.plot(HOLE, 0, "v", color="black", markersize=10)
axes.set(xlabel="metres", ylabel="metres", ylim=(-0.2, None))
figure.tight_layout()
plt.show()

# %% [markdown]
# Go on: [gradients](../autodiff.md) of loops, of `while`, of arrays that are overwritten; the
# example [billiard](../examples.md) aims through collisions of four balls.
