"""Keys: texts that prove to be a person, for programs that act for one.

The law of the file: a key is shown once and kept as a digest (SHA-256: it is 192 random bits, so guessing it is
hopeless and no slow digest is needed); its id, the part that may be shown, tells nothing of the rest.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

PREFIX = "swk"
"""What every key begins with, so that one is known when it turns up where it should not."""


def new_key() -> tuple[str, str]:
    """A new key and its id."""
    identity = secrets.token_hex(4)
    return f"{PREFIX}_{identity}_{secrets.token_urlsafe(24)}", identity


def digest_of(key: str) -> str:
    """What is kept of a key, in hexadecimal."""
    return sha256(key.strip().encode("utf-8", "surrogatepass")).hexdigest()
