"""The page of ``lastmeter media browse``, in a browser, by keyboard.

Needs Chromium and OpenCV; without them the tests are skipped with a message.
"""

from __future__ import annotations

import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Error, Page, expect, sync_playwright

from lastmeter.media import Index, programs, web
from patience import eventually

PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves the clips of two programs."""
    folder = tmp_path_factory.mktemp("clips")
    with Index(folder / "index.db") as index:
        programs.comedy("generated:comedy:2", index, folder=folder)
        programs.room("generated:room:2", folder, index, seconds=None)
        server = web.serve(index, folder)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        server.server_close()


@pytest.fixture(params=[1440, 390])
def page(request: pytest.FixtureRequest, address: str) -> Iterator[Page]:
    """A tab of each width, in which errors and requests to other servers fail the test."""
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        try:
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        tab = browser.new_page(viewport={"width": request.param, "height": 900})
        tab.set_default_timeout(PATIENCE_MS)
        faults: list[str] = []
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((address, "data:")) else faults.append(asked.url)
            ),
        )
        tab.goto(address)
        yield tab
        browser.close()
        assert not faults


def test_clips_are_found_and_played_by_keyboard(page: Page) -> None:
    expect(page.locator("#clips li")).to_have_count(14, timeout=PATIENCE_MS)
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, "nothing is wider than the window"
    page.locator("#words").focus()
    page.keyboard.type("weather rain")
    page.keyboard.press("Enter")
    expect(page.locator("#note")).to_contain_text("is said", timeout=PATIENCE_MS)
    page.locator("#words").fill("")
    page.keyboard.press("Enter")
    expect(page.locator("#clips li")).to_have_count(14, timeout=PATIENCE_MS)
    page.locator("#program").select_option("room")
    expect(page.locator("#clips li")).to_have_count(4, timeout=PATIENCE_MS)
    page.locator("#least").focus()
    for _ in range(6):  # The timeline is for the mouse: the next stop is the first clip.
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#clips') !== null"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#stage")).to_be_visible()
    expect(page.locator("#title")).to_contain_text("somebody")
    film = page.locator("#film")
    eventually(lambda: film.evaluate("film => film.readyState") >= 1, "the film can be played")


def test_only_what_the_index_names_is_served(address: str) -> None:
    for path in ("../index.db", "index.db", "clip/99999", "clip/1x", "picture/0", "page.py"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address + path, timeout=10)
        assert refused.value.code == 404, path
    asked = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=10)
    assert refused.value.code == 403
