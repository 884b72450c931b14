"""Processes that are killed while they work: see `storm.py`, and docs/explanation/promises.md."""
