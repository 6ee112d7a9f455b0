"""What holds for all tests: every pass is verified, and random tests are the same in each run."""

from __future__ import annotations

import os

import hypothesis

os.environ.setdefault("OCTANTS_VERIFY", "1")

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
