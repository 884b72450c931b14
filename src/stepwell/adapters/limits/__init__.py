"""Limits on how many calls are in flight at once: of this process alone, or of all processes through Redis."""

from stepwell.adapters.limits.local import LocalLimiter, NoLimiter
from stepwell.adapters.limits.shared import RedisLimiter, Terms

__all__ = ["LocalLimiter", "NoLimiter", "RedisLimiter", "Terms"]
