"""Stepwell: a durable engine for AI workflows."""
