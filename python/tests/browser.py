"""The browser in which pages are tested."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Error, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window; where there is none, the test is skipped with a message."""
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield browser
        browser.close()
