"""How large a definition may be."""

from __future__ import annotations

LARGEST_FILE = 2_000_000
"""Bytes of UTF-8."""
MOST_NODES = 100_000
"""Values of a file, each alias counted as what it stands for."""
DEEPEST = 200
"""Nested lists and mappings of a file."""
DEEPEST_STEPS = 32
"""Nested blocks of steps."""
LONGEST_NUMBER = 1000
"""Characters of a number."""
