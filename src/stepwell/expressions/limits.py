"""The bounds that keep any expression over any data within a fixed time and memory."""

from __future__ import annotations

from typing import Final

SOURCE_CHARS: Final = 8_192
NODES: Final = 1_000
BRACKET_DEPTH: Final = 32
TREE_DEPTH: Final = 120
CHAIN: Final = 100
PATH_SEGMENTS: Final = 64
NUMBER_CHARS: Final = 100
PATTERN_CHARS: Final = 1_000
PATTERN_MEMORY: Final = 1 << 20
PATTERN_INSTRUCTIONS: Final = 30_000
KEY_CHARS: Final = 1 << 16

TEMPLATE_CHARS: Final = 4 << 20
REFERENCES: Final = 1_000
TREE_NESTING: Final = 32
NOTES: Final = 100

FUEL: Final = 200_000
STRING_CHARS: Final = 1 << 20
RESULT_VALUES: Final = 200_000
RESULT_DEPTH: Final = 200
INTEGER_BITS: Final = 1_024
JSON_CHARS: Final = 4 << 20
CHARS_PER_UNIT: Final = 32
"""How many characters of text work one unit of fuel pays for."""
