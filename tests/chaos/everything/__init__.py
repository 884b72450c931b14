"""Runs of a workflow with everything in it: see `storm.py` here, and docs/explanation/promises.md."""
