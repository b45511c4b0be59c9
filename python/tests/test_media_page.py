"""The pages of ``lastmeter media browse`` and of a live window, in a browser, by keyboard.

Needs Chromium and OpenCV; without them the tests are skipped with a message.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from browser import chromium
from playwright.sync_api import Page, Route, expect

from lastmeter.media import Caption, Clip, Graph, Index, modules, programs, shows, web
from lastmeter.media.traffic import NAMES
from lastmeter.media.window import BrowserSink
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
    """A tab of each width with the clips."""
    with opened(request.param, address) as tab:
        yield tab


@contextmanager
def opened(width: int, address: str) -> Iterator[Page]:
    """A tab in which errors and requests to other servers fail the test."""
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": width, "height": 900})
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
        tab.close()
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


@pytest.fixture
def puzzle() -> Iterator[tuple[shows.Puzzle, str]]:
    """A puzzle that one move solves, running, and the address of its window."""
    graph = Graph(title="Puzzle")
    graph.add("camera", modules.Pattern(rate=30, width=320, height=240, pace=1.0))
    game: shows.Puzzle = graph.add("puzzle", shows.Puzzle(3, shuffles=0))
    assert game.slide(5), "the tile above the hole slides down"
    window: BrowserSink = graph.add("window", BrowserSink())
    window.title, window.on_key, window.words = "Puzzle", game.press, lambda: game.words
    graph.join("camera", "puzzle")
    graph.join("puzzle", "window")
    thread = threading.Thread(target=graph.run, daemon=True)
    thread.start()
    eventually(lambda: window.handled > 0, "the window shows pictures")
    yield game, f"http://127.0.0.1:{window.port}/"
    graph.stop()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("width", [1440, 390])
def test_the_puzzle_is_solved_by_keyboard(width: int, puzzle: tuple[shows.Puzzle, str]) -> None:
    game, address = puzzle
    with opened(width, address) as tab:
        expect(tab.locator("#title")).to_have_text("Puzzle", timeout=PATIENCE_MS)
        expect(tab.locator("#keys button")).to_have_count(4, timeout=PATIENCE_MS)
        picture = tab.locator("#picture")
        eventually(lambda: picture.evaluate("image => image.naturalWidth") == 320, "the picture")
        overflow = tab.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, "nothing is wider than the window"
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        left = re.compile(r"/key\?name=left$")
        tab.route(left, hold)
        tab.keyboard.press("ArrowLeft")  # There is nothing that could slide to the left.
        tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(300)  # The first key is late on its way; the second does not overtake it.
        assert game.moves == 0
        held[0].continue_()
        expect(tab.locator("#words")).to_have_text("1 move.", timeout=PATIENCE_MS)
        tab.unroute(left, hold)
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent").endswith("left")
        tab.keyboard.press("Enter")  # The same with a button, back.
        expect(tab.locator("#words")).to_have_text("2 moves.", timeout=PATIENCE_MS)
        tab.keyboard.press("ArrowUp")
        expect(tab.locator("#words")).to_have_text("Solved after 3 moves.", timeout=PATIENCE_MS)
        assert game.solved


def test_a_window_answers_its_own_page_alone(puzzle: tuple[shows.Puzzle, str]) -> None:
    game, address = puzzle
    for path, headers, status in (
        ("state", {"Host": "elsewhere.example"}, 403),
        ("stream", {"Host": "elsewhere.example"}, 403),
        ("key?name=up", {"Origin": "http://elsewhere.example"}, 403),
        ("key?name=jump", {}, 404),
        ("key", {}, 404),
        ("../web.py", {}, 404),
    ):
        method = "POST" if path.startswith("key") else "GET"
        asked = urllib.request.Request(address + path, headers=headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10)
        assert refused.value.code == status, path
    assert game.moves == 0


def test_what_browsers_fetch_is_counted(tmp_path: Path) -> None:
    with Index(tmp_path / "index.db") as index:
        (tmp_path / "clip.mp4").write_bytes(bytes(50_000))
        number = index.add(index.film("film"), Clip("room", 0.0, 1.0, path="clip.mp4"))
        site = web.Site(index, tmp_path)
        server = web.serve(index, tmp_path, site=site)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/clip/{number}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert len(answer.read()) == 50_000
        asked = urllib.request.Request(address, headers={"Range": "bytes=0-99"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert len(answer.read()) == 100
        retrieval = site.retrieval["room"]
        # A session is entered when its last byte has been sent, which the client may know before.
        eventually(lambda: sum(part[2] for part in retrieval.sessions) == 50_100, "counted")
        server.shutdown()
        server.server_close()
    row = retrieval.to_dict()
    assert row["published"]["bits"] == "100 Mb" and row["component"] == "retrieval"


def test_pages_say_what_they_showed_and_nothing_else_is_counted(tmp_path: Path) -> None:
    """A-117: rows `retrieval` and `display`, of a clip that is played and of a page of a board that is looked at."""
    with Index(tmp_path / "index.db") as index:
        programs.room("generated:room:2", tmp_path, index)
        programs.board("generated:board:1", tmp_path, index)
        site = web.Site(index, tmp_path)
        server = web.serve(index, tmp_path, site=site)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        try:
            with opened(1440, address) as tab:
                for program in ("board", "room"):
                    tab.locator("#program").select_option(program)
                    tab.locator(f"#clips li:has-text('{NAMES[program]}') button").first.click()
                    shown = site.display[program].sessions
                    eventually(lambda shown=shown: bool(shown), f"{program} is shown")  # type: ignore[misc]
            clip = index.clips("room")[0].id
            for query, headers in (
                (f"clip={clip}&frames=0&width=1&height=1&ms=1", {}),
                (f"clip={clip}&frames=5&width=99999&height=1&ms=1", {}),
                (f"clip={clip}&frames=5&width=1", {}),
                ("clip=999999&frames=5&width=1&height=1&ms=1", {}),
                (f"clip={clip}&frames=5&width=1&height=1&ms=1", {"Origin": "http://else.example"}),
            ):
                path = f"{address}api/shown?{query}"
                asked = urllib.request.Request(path, headers=headers, method="POST")
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(asked, timeout=10)
                assert refused.value.code in (403, 404), query
        finally:
            server.shutdown()
            server.server_close()
    rows = {(row["program"], row["component"]): row for row in (p.to_dict() for p in site.traffic())}
    assert set(rows) == {
        (name, part)
        for name in ("Room Monitor", "Whiteboard Recorder")
        for part in ("retrieval", "display")
    }
    print(rows)
    picture = rows["Whiteboard Recorder", "display"]["bits"] / 8 / web.PIXEL
    assert picture >= 320 * 240, "whole pictures"
    assert rows["Room Monitor", "display"]["rate"] > 0


def test_marks_of_captions_are_not_shown(tmp_path: Path) -> None:
    with Index(tmp_path / "index.db") as index:
        said = [Caption(1.0, 2.0, text=">>> Storms are coming")]
        clip = index.add(index.film("film"), Clip("news", 0.0, 9.0), said)
        site = web.Site(index, tmp_path)
        for path, query, key in (
            ("/api/search", {"q": "storm"}, "line"),
            ("/api/said", {"clip": str(clip)}, "text"),
        ):
            _, _, body = site.answer(path, query)
            assert isinstance(body, bytes)
            (row,) = json.loads(body)
            assert row[key].replace("[", "").replace("]", "") == "Storms are coming"


def test_only_what_the_index_names_is_served(address: str) -> None:
    for path in ("../index.db", "index.db", "clip/99999", "clip/1x", "picture/0", "page.py"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address + path, timeout=10)
        assert refused.value.code == 404, path
    asked = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=10)
    assert refused.value.code == 403
