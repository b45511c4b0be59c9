"""Waiting for what a page becomes.

`Page.wait_for_function` evaluates again inside the page, which the page's own security policy forbids: it works only
where the first look is already right. What is asked from outside is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], bool], what: str, within: float = 60.0) -> None:
    """Waits until `true()`; fails with `what` after `within` seconds."""
    until = time.monotonic() + within
    while not true():
        assert time.monotonic() < until, f"not in {within:.0f} s: {what}"
        time.sleep(0.02)
