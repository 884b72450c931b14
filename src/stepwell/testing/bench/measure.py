"""Measuring: processor time, latencies and memory of a workload, and the one object that is printed of it.

The law of the file: nothing is left out of a figure; what was not measured is null, never 0.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any


@dataclass(slots=True)
class Meter:
    """Adds up wall-clock and processor seconds over the spans that it is told of.

    `cpu` is that of all threads of this process, `own` that of the thread which measures: the event loop's.
    """

    wall: float = 0.0
    cpu: float = 0.0
    own: float = 0.0
    _began: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def start(self) -> None:
        self._began = time.perf_counter(), time.process_time(), time.thread_time()

    def stop(self) -> float:
        """End the span; returns its wall-clock seconds."""
        wall = time.perf_counter() - self._began[0]
        self.wall += wall
        self.cpu += time.process_time() - self._began[1]
        self.own += time.thread_time() - self._began[2]
        return wall


@dataclass(slots=True)
class Measured:
    """What a workload did. `samples` are seconds, `rates` steps per second of each round."""

    steps: int
    wall: float
    cpu: float
    samples: Sequence[float]
    sample: str
    """What one sample is."""
    rates: Sequence[float] = ()
    facts: dict[str, Json] = field(default_factory=dict)

    def as_json(self, **about: Json) -> dict[str, Json]:
        """The object that is printed; `about` says how it was run."""
        rate = middle(self.rates) if self.rates else self.steps / self.wall if self.wall else None
        p50, p99 = share(self.samples, 0.5), share(self.samples, 0.99)
        return {
            **about,
            "steps": self.steps,
            "steps_per_s": None if rate is None else round(rate, 1),
            "cpu_s_per_1000_steps": round(1000 * self.cpu / self.steps, 4) if self.steps else None,
            "p50_ms": None if p50 is None else round(1000 * p50, 3),
            "p99_ms": None if p99 is None else round(1000 * p99, 3),
            "sample": self.sample,
            "peak_rss_mb": peak_mb(),
            "wall_s": round(self.wall, 3),
            "cpu_s": round(self.cpu, 3),
            "load": load(),
            **self.facts,
        }


def share(samples: Sequence[float], part: float) -> float | None:
    """The sample below or at which this part of all samples lies (nearest rank); None if there are none."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def middle(samples: Sequence[float]) -> float:
    """The median (the upper one of two)."""
    return sorted(samples)[len(samples) // 2]


def load() -> list[float] | None:
    """The load averages of 1, 5 and 15 minutes; None where the system keeps none."""
    return [round(one, 2) for one in os.getloadavg()] if hasattr(os, "getloadavg") else None


def peak_mb() -> float | None:
    """The most memory that this process ever held, in MB of 10^6 bytes; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def resident() -> int | None:
    """The bytes of memory that this process holds now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
