"""What holds for all tests: every pass is verified, and random tests are the same in each run.

Nothing is taken from the user's cache of kernels, nor put there: tests of the cache use their own.
"""

from __future__ import annotations

import os

import hypothesis

os.environ.setdefault("OCTANTS_VERIFY", "1")
os.environ.setdefault("OCTANTS_OFFLINE_CACHE", "0")

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
