"""The life of an approval: who may decide, when votes settle it, and what happens while nobody does.

The law of the package: it is pure. Times come in as numbers, people as data, and what is to be stored or sent goes out.
"""

from __future__ import annotations
