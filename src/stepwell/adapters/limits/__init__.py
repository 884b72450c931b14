"""Limits on how many calls are in flight at once: of this process alone, or of all processes through Redis."""

from stepwell.adapters.limits.local import LocalLimiter, NoLimiter

__all__ = ["LocalLimiter", "NoLimiter"]
