"""Sources that a thread of their own fills: films, cameras, pipelines. The dispatcher never waits for them.

    thread: items() --> a few payloads --> dispatcher: emitted when due, or as they come

A file's thread waits when enough is ready. A camera's does not: what the graph has not taken by then is out of date,
and the oldest is dropped (counted, ``out of date``).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from .graph import LATER, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from .payload import Payload

#: Payloads ready ahead of their time.
AHEAD = 8
#: Seconds that a thread has to notice that it is no longer wanted.
PATIENCE = 10.0


class Ahead(Source):
    """A source whose :meth:`items` runs in a thread; errors of it end the graph's run."""

    def __init__(self, pace: float = 0.0) -> None:
        super().__init__(pace)
        self._ready: deque[tuple[str, Payload] | BaseException | None] = deque()
        self._changed = threading.Condition()
        self._wanted: Callable[[], object] | None = None
        self._closing = False
        self._started = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Starts the thread; the stream's time begins with its first payload."""
        self._thread = threading.Thread(target=self._fill, name=f"ahead {self.name}", daemon=True)
        self._thread.start()
        self._advance()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(PATIENCE)
        if self._wanted is not None:  # Nothing will come; the dispatcher need not wait for it.
            self._wanted()
            self._wanted = None

    def _pull(self) -> tuple[str, Payload] | None:
        with self._changed:
            if not self._ready:
                self._wanted = self.dispatcher.awaited(self._advance)
                return LATER
            item = self._ready.popleft()
            self._changed.notify_all()
        if isinstance(item, BaseException):
            raise item
        if not self._started:
            self._started, self._began = True, self._now()
        return item

    def _advance(self, began: float | None = None) -> None:
        if not self._closing:
            super()._advance(began)

    def waits(self, seconds: float) -> bool:
        """Waits so long, in the thread; True as soon as nothing more is wanted."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)

    def _fill(self) -> None:
        try:
            for item in self.items():
                if not self._put(item):
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, item: tuple[str, Payload] | BaseException | None) -> bool:
        with self._changed:
            if isinstance(item, tuple):
                item[1].born = self._now()
                while len(self._ready) >= AHEAD and not self._closing:
                    if self.live:
                        self._ready.popleft()
                        self.drop("out of date")
                    else:
                        self._changed.wait()
            if self._closing:
                return False
            self._ready.append(item)
            wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted()
        return True
