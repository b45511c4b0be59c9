"""One thread that calls modules back: when an instant has come, a file can be read, or there is work.

    timeouts (by instant) ---+
    files to read -----------+--> one callback at a time, never interrupted
    results of the pool -----+
    what is ready -----------+

A callback runs to its end; while it runs nothing else does, so a module needs no locks, and a long callback makes
the next timeout late. How late is recorded for each timeout: :class:`Lateness`. Work that would block goes to
:meth:`Dispatcher.pool`, and its result comes back as a callback.

Source: the VuSystem's module dispatcher (report of the Aurora testbed at MIT, section 4.4).

Rows: A-74.
"""

from __future__ import annotations

import heapq
import math
import selectors
import socket
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Threads for work that blocks.
POOL_THREADS = 4
#: Rounds of work between two looks at files, so that work without end cannot keep input waiting.
ROUNDS = 64


class Clock(Protocol):
    """Tells the time in seconds, and waits."""

    def now(self) -> float:
        """Seconds since some instant."""
        ...

    def wait(self, until: float | None, poll: Callable[[float | None], None]) -> None:
        """Waits until an instant, or until ``poll``, which is given the seconds left, finds input."""
        ...


class Wall:
    """The time of day's pace."""

    now = staticmethod(time.perf_counter)

    def wait(self, until: float | None, poll: Callable[[float | None], None]) -> None:
        poll(None if until is None else max(0.0, until - self.now()))


class Virtual:
    """Time that passes only while nothing is left to do: for tests, and films faster than they play.

    >>> clock = Virtual()
    >>> dispatcher = Dispatcher(clock)
    >>> _ = dispatcher.timeout(3600.0, dispatcher.stop)
    >>> dispatcher.run()
    >>> clock.now()
    3600.0
    """

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait(self, until: float | None, poll: Callable[[float | None], None]) -> None:
        poll(0.0 if until is not None else None)
        if until is not None:
            self._now = max(self._now, until)


@dataclass
class Lateness:
    """How late timeouts were called: a histogram with steps of 0.1 ms up to 20 ms, where the published one ends.

    What is later is counted together there, and by doublings of 20 ms besides.
    """

    STEP = 1e-4
    STEPS = 200
    DOUBLINGS = 16

    counts: list[int] = field(default_factory=lambda: [0] * (Lateness.STEPS + 1))
    worst: float = 0.0
    total: float = 0.0
    beyond: list[int] = field(default_factory=lambda: [0] * Lateness.DOUBLINGS)

    def enter(self, late: float) -> None:
        """Enters one timeout, in seconds."""
        late = max(0.0, late)
        step = min(int(late / self.STEP), self.STEPS)
        self.counts[step] += 1
        if step == self.STEPS:
            times = late / (self.STEP * self.STEPS)
            self.beyond[min(max(0, int(math.log2(times))), self.DOUBLINGS - 1)] += 1
        self.worst = max(self.worst, late)
        self.total += late

    @property
    def count(self) -> int:
        """Timeouts entered."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Mean lateness in seconds."""
        return self.total / max(1, self.count)

    def within(self, limit: float) -> float:
        """The share of timeouts that were at most this late, to the step.

        >>> late = Lateness()
        >>> for seconds in (0.001, 0.002, 0.018): late.enter(seconds)
        >>> round(late.within(0.015), 3)
        0.667
        """
        steps = round(limit / self.STEP)
        return sum(self.counts[:steps]) / max(1, self.count)

    def quantile(self, share: float) -> float:
        """The lateness that this share of timeouts does not exceed: to the step, beyond 20 ms to the doubling."""
        wanted = share * self.count
        seen = 0
        for step, number in enumerate(self.counts[: self.STEPS]):
            seen += number
            if seen >= wanted and seen:
                return min((step + 1) * self.STEP, self.worst)
        edge = self.STEP * self.STEPS
        for number in self.beyond:
            seen, edge = seen + number, 2 * edge
            if seen >= wanted:
                return min(edge, self.worst)
        return self.worst

    def add(self, other: Lateness) -> None:
        """Adds another histogram, of another process."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.beyond = [a + b for a, b in zip(self.beyond, other.beyond, strict=True)]
        self.worst = max(self.worst, other.worst)
        self.total += other.total

    def to_dict(self) -> dict[str, Any]:
        """For JSON: seconds."""
        return {
            "count": self.count,
            "mean": self.mean,
            "p50": self.quantile(0.5),
            "p99": self.quantile(0.99),
            "worst": self.worst,
            "within_15ms": self.within(0.015),
            "step": self.STEP,
            "counts": self.counts,
            "beyond": self.beyond,
        }


class Timeout:
    """A callback at an instant; :meth:`cancel` takes it back."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """It will not be called."""
        self.callback = None


class Dispatcher:
    """Calls back, one at a time, in the thread that called :meth:`run`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or Wall()
        self.lateness = Lateness()
        self._timeouts: list[tuple[float, int, Timeout]] = []
        self._serial = count()
        self._ready: deque[Callable[[], object]] = deque()
        # Of all selectors this one does not round up to milliseconds.
        self._selector = selectors.SelectSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._returned: deque[Callable[[], object]] = deque()
        self._threads: ThreadPoolExecutor | None = None
        self._away = 0
        self._watched = 0
        self._stopped = False

    def now(self) -> float:
        """The clock's time."""
        return self.clock.now()

    def timeout(self, due: float, callback: Callable[[], object]) -> Timeout:
        """Calls back at an instant of the clock; its lateness is recorded."""
        made = Timeout(due, callback)
        heapq.heappush(self._timeouts, (due, next(self._serial), made))
        return made

    def defer(self, callback: Callable[[], object]) -> None:
        """Calls back as soon as what was deferred before has run."""
        self._ready.append(callback)

    def next(self, callback: Callable[[], object]) -> None:
        """Calls back before all that was deferred: what has just been made is worked on while it is in the caches."""
        self._ready.appendleft(callback)

    def watch(self, file: socket.socket | int, callback: Callable[[], object]) -> None:
        """Calls back while a file can be read, until :meth:`unwatch`."""
        self._selector.register(file, selectors.EVENT_READ, callback)
        self._watched += 1

    def unwatch(self, file: socket.socket | int) -> None:
        """No longer calls back for this file."""
        self._selector.unregister(file)
        self._watched -= 1

    def pool(self, work: Callable[[], T], done: Callable[[Future[T]], object]) -> None:
        """Has ``work`` done by a thread, and calls ``done`` back with its future."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="media")
        self._away += 1
        self._threads.submit(work).add_done_callback(
            lambda future: self._give(lambda: done(future))
        )

    def awaited(self, callback: Callable[[], object]) -> Callable[[], None]:
        """A function that any thread may call, once, to have ``callback`` called; :meth:`run` waits for it."""
        self._away += 1
        return lambda: self._give(callback)

    def _give(self, callback: Callable[[], object]) -> None:
        self._returned.append(callback)
        try:
            self._wake_write.send(b"\0")
        except BlockingIOError:
            pass  # It is awake already.

    def stop(self) -> None:
        """Leaves :meth:`run` after the callback that runs."""
        self._stopped = True

    def run(self) -> None:
        """Calls back until there is nothing left to wait for, or :meth:`stop`."""
        self._stopped = False
        ready, timeouts = self._ready, self._timeouts
        while not self._stopped:
            self._expire()
            for _ in range(ROUNDS):
                if not ready or self._stopped:
                    break
                ready.popleft()()
                if timeouts and timeouts[0][0] <= self.now():
                    break
            if self._stopped:
                break
            if self._ready:
                self._poll(0.0)
                continue
            due = self._next_due()
            if due is None and not self._away and not self._watched:
                break
            if due is None or due > self.now() or self._away:
                self.clock.wait(due, self._poll)

    def close(self) -> None:
        """Ends the pool's threads and frees the files; what was not called is forgotten."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _next_due(self) -> float | None:
        while self._timeouts and self._timeouts[0][2].callback is None:
            heapq.heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else None

    def _expire(self) -> None:
        while (due := self._next_due()) is not None and not self._stopped:
            late = self.now() - due
            if late < 0:
                return
            _, _, timeout = heapq.heappop(self._timeouts)
            callback, timeout.callback = timeout.callback, None
            self.lateness.enter(late)
            if callback is not None:
                callback()

    def _poll(self, seconds: float | None) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._empty_wake()
            else:
                self._ready.append(key.data)
        while self._returned:
            self._away -= 1
            self._ready.append(self._returned.popleft())

    def _empty_wake(self) -> None:
        try:
            while self._wake_read.recv(4096):
                pass
        except BlockingIOError:
            pass
