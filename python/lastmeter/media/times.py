"""Times of modules and paths: noted while a graph runs, added up later.

Between two modules that work on pictures, the processor's caches hold pictures. Each line of Python that runs there
costs several times what it costs in a loop, so a time is only noted when it passes, and many are added up together.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Times kept for quantiles; beyond this number every second one is left out.
SAMPLES = 4_000
#: What is noted until it is added up.
NOTED = 256


class Times:
    """Sum, number and sample of times in seconds.

    >>> times = Times()
    >>> times.add([0.1, 0.2, 0.3])
    >>> times.count, times.worst, times.quantile(0.5), round(times.mean, 3)
    (3, 0.3, 0.2, 0.2)
    """

    __slots__ = ("_sample", "_step", "count", "total", "worst")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.worst = 0.0
        self._sample = array("d")
        self._step = 1

    def add(self, seconds: Iterable[float]) -> None:
        """Adds some, in the order in which they came."""
        times = array("d", seconds)
        if not times:
            return
        self.total += sum(times)
        self.worst = max(self.worst, max(times))
        self._sample.extend(times[-self.count % self._step :: self._step])
        self.count += len(times)
        while len(self._sample) > SAMPLES:
            del self._sample[1::2]
            self._step *= 2

    @property
    def mean(self) -> float:
        """The mean."""
        return self.total / max(1, self.count)

    def quantile(self, share: float) -> float:
        """The time that this share does not exceed."""
        if not self._sample:
            return 0.0
        ranked = sorted(self._sample)
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)]

    def to_dict(self) -> dict[str, float]:
        """As ledgers have it."""
        return {"mean": self.mean, "p50": self.quantile(0.5), "p99": self.quantile(0.99)}


def waited_for_cpu() -> float:
    """Seconds for which this thread has waited for a CPU since it began; 0 where Linux does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
