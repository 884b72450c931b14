"""The engine: makes workflows real."""

from stepwell.engine.engine import ACCOUNT, OPERATOR, Engine, RunHandle, open_engine

__all__ = ["ACCOUNT", "OPERATOR", "Engine", "RunHandle", "open_engine"]
