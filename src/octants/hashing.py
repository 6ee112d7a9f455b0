"""The hash of keys, without `hashlib`, which loads OpenSSL, and that takes long."""

from __future__ import annotations

try:
    from _blake2 import blake2b as blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b as blake2b
