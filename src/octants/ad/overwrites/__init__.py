"""Contents of arrays that reverse kernels need and that are overwritten before.

* `overwrite_ledger` saves and restores them; `needed_contents` describes them, `packed_copies` are
  where they are saved, `snapshot_report` says what was copied, and why.
* Tapes that record the same launches again: `repeated_tapes` remembers what the first one copied,
  `repeated_reversals` replays how it was reversed.
"""
