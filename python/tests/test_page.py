"""The page of ``lastmeter serve``, in a browser.

Needs Chromium: Debian's, or that of ``playwright install chromium``. Without it the tests are skipped with a
message. ``LASTMETER=target/release/lastmeter`` tests another build than the wheel's, and ``LASTMETER_LONG=1``
makes the large result 200 MB instead of 17.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import eventually

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from browser import chromium
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, expect

# A busy machine can be slow.
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)

QUEUE = """\
title = "A queue"
question = "How long does a packet wait?"
duration = "{duration}"
seed = 1

[nodes]
a = {{ host = {{}} }}
desk = {{ station = {{ service = {{ exponential = "1 us" }} }} }}
b = {{ host = {{}} }}

[[links]]
between = ["a", "desk", "b"]
rate = "10 Gbit/s"

[[traffic]]
name = "customers"
from = "a"
to = "b"
poisson = {{ rate = "4 Gbit/s", size = "1000 B" }}
"""


class Server:
    """A running ``lastmeter serve``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        own = os.environ.get("LASTMETER")
        program = [own] if own else [sys.executable, "-m", "lastmeter"]
        line = [*program, "serve", "--json", "--no-token", "--threads", "1", "--listen", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen([*line, str(folder)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments")
    (folder / "queue.toml").write_text(QUEUE.format(duration="20 ms"))
    (folder / "long.toml").write_text(QUEUE.format(duration="200 s"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture()
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A separate tab, in which errors and requests to other servers fail the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    faults = watch(page, server)
    page.goto(server.url)
    yield page
    context.close()
    assert not faults


def watch(page: Page, server: Server) -> list[str]:
    """Faults in a tab: errors of its script, and requests to other servers."""
    faults: list[str] = []

    def hear(line: ConsoleMessage) -> None:
        # Refusals by the server are logged, too; the page shows them.
        if line.type == "error" and not line.text.startswith("Failed to load resource"):
            faults.append(line.text)

    def leave(request: Request) -> None:
        if not request.url.startswith((server.url, "data:", "blob:")):
            faults.append(request.url)

    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("console", hear)
    page.context.on("request", leave)
    return faults


def open_experiment(page: Page, name: str) -> None:
    link = page.get_by_role("link", name=name)
    link.click()
    expect(link).to_have_attribute("aria-current", "true")
    expect(page.locator("#checked")).to_contain_text("Valid")


def write(page: Page, text: str) -> None:
    page.locator("#text").fill(text)


def run(page: Page) -> None:
    """Presses Run and waits until the page shows that run, not an earlier one of the same experiment."""
    with page.expect_response(lambda answer: answer.url.endswith("/api/runs") and answer.request.method == "POST") as begun:
        page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#result-title")).to_have_text(re.compile(rf"Run {begun.value.json()['id']}\b"))


def done(page: Page) -> None:
    expect(page.locator("#state")).to_contain_text("Done in")
    expect(page.locator("#facts")).to_contain_text("simulated")


def delivered(page: Page) -> int:
    return int(re.sub(r"\D", "", page.locator("#facts div", has_text="delivered").locator("dd span").inner_text()))


def test_experiments_are_listed_and_found(page: Page) -> None:
    shelf = page.locator("#list")
    expect(shelf).to_contain_text("first-path")
    expect(shelf).to_contain_text("queue.toml")
    page.locator("#filter").fill("how long does a packet")
    expect(shelf.locator("a")).to_have_count(2)
    open_experiment(page, "queue.toml")
    assert page.locator("#text").input_value() == QUEUE.format(duration="20 ms")
    assert page.url.endswith("#file/queue.toml")


def test_a_newcomer_changes_a_number_and_sees_the_effect(page: Page) -> None:
    # The first experiment opens by itself, is run by one button, and then one number is halved.
    expect(page.locator("#title")).to_contain_text("A capture of 2026")
    run(page)
    done(page)
    expect(page.locator("#verdict")).to_contain_text("bob.cpu limits")
    expect(page.locator("#what-ifs tbody tr").first).to_contain_text("%")
    page.get_by_role("button", name="traffic.stream.constant.rate ÷2").click()
    assert 'rate = "9.2 Mbit/s"' in page.locator("#text").input_value()
    run(page)
    done(page)
    expect(page.locator("#state")).to_contain_text("traffic.stream.constant.rate = 9.2 Mbit/s")
    goodput = page.locator("#facts div", has_text="goodput")
    expect(goodput).to_contain_text(re.compile(r"−\d.*% against run \d+"))
    # Every picture has a table.
    course = page.locator("#course .chart")
    expect(course).to_have_count(3)
    course.first.locator("summary").click()
    assert course.first.locator("tbody tr").count() > 3
    page.get_by_role("button", name="Undo changes").click()
    assert 'rate = "18.4 Mbit/s"' in page.locator("#text").input_value()


def test_the_editor_completes_from_the_schema(page: Page) -> None:
    open_experiment(page, "queue.toml")
    text, words = page.locator("#text"), page.get_by_role("listbox")
    start = QUEUE.format(duration="20 ms").replace('between = ["a", "desk", "b"]\n', 'between = ["a", "desk", "b"]\nX')
    write(page, start)
    at = start.index("\nX") + 2
    text.evaluate("(text, at) => text.setSelectionRange(at, at)", at)
    text.press("Backspace")
    # A key of a link, by its first letters; existing keys are not offered.
    text.press_sequentially("qu")
    expect(words.get_by_role("option", selected=True)).to_contain_text("queue")
    expect(words).not_to_contain_text("between")
    text.press("Enter")
    text.press_sequentially("cod")
    expect(words.get_by_role("option", selected=True)).to_contain_text("codel")
    text.press("Tab")
    assert "queue = { codel = { } }" in re.sub(r" +", " ", text.input_value())
    expect(page.locator("#checked")).to_contain_text("Valid")
    # The parameters of a kind, on request.
    text.press("Control+Space")
    expect(words).to_contain_text("target")
    text.press("Escape")
    expect(words).to_be_hidden()
    # The names of this file's nodes.
    at = text.input_value().index('to = "b"') + 6
    text.evaluate("(text, at) => text.setSelectionRange(at, at)", at)
    text.press("Control+Space")
    expect(words.get_by_role("option")).to_have_text([re.compile("^a"), "desk", "b"])
    # The item at the caret is explained.
    expect(page.locator("#hint")).to_contain_text("traffic.customers.to")


def test_a_response_that_comes_too_late_opens_nothing(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    faults = watch(page, server)
    late: list[Route] = []
    page.route("**/api/experiments/bundled/first-path", lambda route: late.append(route))
    with page.expect_request("**/api/experiments/bundled/first-path"):
        page.goto(server.url)
    open_experiment(page, "queue.toml")
    (route,) = late
    with page.expect_response("**/api/experiments/bundled/first-path"):
        route.continue_()
    page.wait_for_timeout(200)
    expect(page.locator("#text")).to_have_value(QUEUE.format(duration="20 ms"))
    expect(page.get_by_role("link", name="queue.toml")).to_have_attribute("aria-current", "true")
    expect(page.locator("#title")).to_have_text("A queue")
    context.close()
    assert not faults


def test_a_mistake_is_shown_at_its_place_and_corrected(page: Page) -> None:
    open_experiment(page, "queue.toml")
    write(page, QUEUE.format(duration="20 ms").replace("station =", "staton ="))
    problem = page.locator(".problems button")
    expect(problem).to_contain_text("Line 8, nodes.desk")
    expect(page.locator("#gutter b")).to_have_text("✖ 8")
    expect(page.locator("#paint .w")).to_have_text("staton")
    problem.click()
    bubble = page.locator("#bubble")
    expect(bubble).to_be_visible()
    bubble.get_by_role("button", name="Write station").click()
    expect(page.locator("#checked")).to_contain_text("Valid")


def test_a_failed_run_says_where_and_the_page_still_works(page: Page) -> None:
    open_experiment(page, "queue.toml")
    write(page, QUEUE.format(duration="20 ms").replace('"4 Gbit/s"', '"4 Gbit"'))
    run(page)
    expect(page.locator("#state")).to_contain_text("It failed: queue.toml:19")
    expect(page.locator("#bubble")).to_be_visible()
    expect(page.locator("#paint .w")).to_have_text('"4 Gbit"')
    assert page.evaluate("document.activeElement.id") == "text"
    write(page, QUEUE.format(duration="20 ms"))
    run(page)
    done(page)


def test_a_run_is_followed_reloaded_and_stopped(page: Page) -> None:
    open_experiment(page, "long.toml")
    run(page)
    expect(page.locator("#left")).to_contain_text("%")
    expect(page.locator("#verdict")).to_contain_text("The ledger so far")
    first = delivered(page)
    eventually(lambda: delivered(page) > first, "more is delivered")
    # The run continues without the page, and the page finds it again.
    page.reload()
    expect(page.locator("#result-title")).to_contain_text("Run ")
    expect(page.locator("#facts")).to_contain_text("so far")
    assert delivered(page) > first
    expect(page.locator("#course .chart")).to_have_count(3)
    page.locator("#stop").click()
    expect(page.locator("#state")).to_contain_text("Stopped: the figures cover what had run")
    expect(page.locator("#runs")).to_contain_text("stopped")


def test_two_tabs_see_the_same_run_and_keep_their_own_text(page: Page, server: Server) -> None:
    open_experiment(page, "long.toml")
    other = page.context.new_page()
    faults = watch(other, server)
    other.goto(page.url)
    expect(other.locator("#checked")).to_contain_text("Valid")
    changed = QUEUE.format(duration="1000 s")
    write(other, changed)
    run(page)
    expect(page.locator("#facts")).to_contain_text("so far")
    row = other.locator("#runs tr", has_text="running").first
    row.get_by_role("button", name=re.compile(r"^\d+$")).click()
    expect(other.locator("#facts")).to_contain_text("so far")
    other.locator("#stop").click()
    expect(page.locator("#state")).to_contain_text("Stopped")
    expect(other.locator("#state")).to_contain_text("Stopped")
    other.reload()
    expect(other.locator("#title")).to_contain_text("A queue")
    assert other.locator("#text").input_value() == changed
    assert page.locator("#text").input_value() == QUEUE.format(duration="200 s")
    assert not faults


def test_two_runs_are_compared(page: Page) -> None:
    open_experiment(page, "queue.toml")
    numbers = []
    for rate in ("2 Gbit/s", "7 Gbit/s"):
        write(page, QUEUE.format(duration="20 ms").replace("4 Gbit/s", rate))
        run(page)
        expect(page.locator("#state")).to_contain_text(f"rate = {rate}")
        done(page)
        title = page.locator("#result-title").inner_text()
        numbers.append(re.findall(r"\d+", title)[0])
    compare = page.get_by_role("button", name="Compare two")
    expect(compare).to_be_disabled()
    for number in numbers:
        page.get_by_label(f"Compare run {number}", exact=True).check()
    compare.click()
    compared = page.locator("#compared")
    expect(compared.locator("tr", has_text="all paths: goodput")).to_contain_text("+2")
    expect(compared).to_contain_text("desk")
    expect(page.locator("#comparison-title")).to_be_focused()


def test_a_text_is_saved_and_never_overwrites_another(page: Page, folder: Path) -> None:
    open_experiment(page, "queue.toml")
    text = QUEUE.format(duration="30 ms")
    write(page, text)
    page.evaluate("saveAs('')")
    page.locator("#save-name").fill("../escaped.toml")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.locator("#save-fault")).not_to_be_empty()
    page.locator("#save-name").fill("kept.toml")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.locator("#list")).to_contain_text("kept.toml")
    expect(page.locator("#saved")).to_have_text(f"Saved as {folder}/kept.toml")
    assert (folder / "kept.toml").read_text() == text
    assert not (folder.parent / "escaped.toml").exists()
    # Another program writes the file meanwhile.
    (folder / "kept.toml").write_text("# mine\n")
    write(page, text.replace("30 ms", "40 ms"))
    page.locator("#save").click()
    expect(page.locator("#save-fault")).to_contain_text("changed by somebody else")
    page.locator("#save-no").click()
    assert (folder / "kept.toml").read_text() == "# mine\n"


def test_a_file_that_was_not_made_on_the_page_is_saved_as_a_copy(page: Page, folder: Path) -> None:
    open_experiment(page, "queue.toml")
    before = (folder / "queue.toml").read_text()
    write(page, QUEUE.format(duration="35 ms"))
    expect(page.locator("#save")).to_have_text("Save as…")
    page.locator("#save").click()
    expect(page.locator("#save-name")).to_have_value("queue-2.toml")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.locator("#saved")).to_have_text(f"Saved as {folder}/queue-2.toml")
    assert (folder / "queue.toml").read_text() == before
    # The copy is this page's own.
    write(page, QUEUE.format(duration="36 ms"))
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#saved")).to_contain_text("queue-2.toml")
    expect(page.locator("#save")).to_be_disabled()
    assert '"36 ms"' in (folder / "queue-2.toml").read_text()


def test_tab_reaches_run_within_ten_stops(page: Page) -> None:
    expect(page.locator("#list a[tabindex='0']")).to_have_count(1)
    stops = []
    for _ in range(10):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if stops[-1] == "run":
            break
    assert stops[-1] == "run", stops
    # Arrows move within the list, which is one stop.
    page.locator("#list a[tabindex='0']").focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement === [...document.querySelectorAll('#list a')].pop()")


def test_bundled_experiments_come_first_and_tests_are_not_listed(page: Page, folder: Path) -> None:
    for place in ["tests", ".hidden"]:
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "broken.toml").write_text(QUEUE.format(duration="20 ms"))
    page.reload()
    expect(page.locator("#list h3").first).to_have_text("Bundled")
    expect(page.locator("#list")).to_contain_text("queue.toml")
    expect(page.locator("#list")).not_to_contain_text("broken.toml")


@pytest.mark.parametrize("width", [1440, 390])
def test_no_table_is_wider_than_its_place(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.reload()
    expect(page.locator("#checked")).to_contain_text("Valid")
    run(page)
    done(page)
    wide = page.evaluate(
        "[...document.querySelectorAll('.table')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => `${one.getAttribute('aria-label')}: ${one.scrollWidth} of ${one.clientWidth}`)"
    )
    assert wide == []
    # Runs stand above the long tables.
    below = page.evaluate("document.querySelector('.runs').getBoundingClientRect().top < document.querySelector('#paths').getBoundingClientRect().top")
    assert below


def test_the_page_handles_a_large_result(page: Page, folder: Path, server: Server) -> None:
    hops, flows = 40, 5000 if os.environ.get("LASTMETER_LONG") else 400
    names = [f"n{hop}" for hop in range(hops)]
    nodes = "".join(f"{name} = {{ {'host' if name in (names[0], names[-1]) else 'router'} = {{}} }}\n" for name in names)
    traffic = "".join(
        f'[[traffic]]\nname = "t{flow}"\nfrom = "n0"\nto = "{names[-1]}"\n'
        f'constant = {{ rate = "1 Mbit/s", size = "125 B" }}\n'
        for flow in range(flows)
    )
    chain = f'[[links]]\nbetween = {json.dumps(names)}\nrate = "100 Gbit/s"\ndelay = "1 us"\nqueue.drop-tail.packets = {flows}\n'
    text = f'title = "Many paths"\nquestion = ""\nduration = "30 ms"\nseed = 1\n[nodes]\n{nodes}{chain}{traffic}'
    (folder / "many.toml").write_text(text)
    page.reload()
    open_experiment(page, "many.toml")
    page.locator("#quick").check()
    run(page)
    expect(page.locator("#state")).to_contain_text("Done in", timeout=10 * PATIENCE_MS)
    expect(page.locator("#paths .more").first).to_contain_text(f"1 to 20 of {flows:,}".replace(",", "\u202f"))
    page.locator("#paths").get_by_role("button", name="next").click()
    expect(page.locator("#paths .more").first).to_contain_text("21 to 40")
    expect(page.locator("#paths select")).to_contain_text("t20")
    # The whole ledger can be downloaded, and is never loaded in the browser.
    file = page.locator("#files a", has_text="ledger.json")
    expect(file).to_contain_text("MB")
    with page.expect_download() as download:
        file.click()
    length = Path(download.value.path()).stat().st_size
    assert length > 41_000 * flows, length
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    assert heap < 100e6, heap
    # Its page has a limited number of paths, and states the total.
    with page.context.expect_page() as opened:
        page.locator("#files a", has_text="as a page").click()
    expect(opened.value.locator(".warn")).to_contain_text(f"of {flows} paths")


def test_the_first_paint_is_quick_and_nothing_is_loaded_from_other_servers(browser: Browser, server: Server) -> None:
    paints = []
    for _ in range(3):
        context = browser.new_context()
        page = context.new_page()
        faults = watch(page, server)
        page.goto(server.url)
        expect(page.locator("#list")).to_contain_text("first-path")
        entries: list[Any] = page.evaluate("performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)")
        paints.append(entries[0])
        policy = page.evaluate("fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
        assert policy.startswith("default-src 'self'")
        assert not faults
        # The policy blocks a request to another server before it is sent.
        blocked = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'stopped')")
        assert blocked == "stopped"
        context.close()
    assert min(paints) < 1000, paints


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_fits_and_is_reachable_by_keyboard(browser: Browser, server: Server, width: int, scheme: Any) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{server.url}#file/queue.toml")
    expect(page.locator("#checked")).to_contain_text("Valid")
    page.locator("#quick").check()
    run(page)
    done(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The text has enough contrast.
    contrast = page.evaluate(CONTRAST, ["body", ".question", "#checked .fine", "#facts dt", "#run", ".hint"])
    assert min(contrast) >= 4.5, contrast
    # Every control is reachable by keyboard and has a name: arrows move within the list of experiments.
    assert page.locator("#list a[tabindex='0']").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, a[href], input, select, textarea')]"
        ".filter(one => one.tabIndex < 0 && !one.closest('#list')"
        " || !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).map(one => one.outerHTML)"
    )
    assert not unnamed
    page.locator("#text").focus()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#runs tbody tr").nth(1)).to_be_visible()
    context.close()


CONTRAST = """names => names.map(name => {
  const one = document.querySelector(name);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let ground = one;
  while (ground.parentElement && numbers(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
  const [a, b] = [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor].map(numbers).map(light);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
})"""


def test_the_page_reports_that_the_program_ended(browser: Browser, tmp_path: Path) -> None:
    server = Server(tmp_path)
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    expect(page.locator("#checked")).to_contain_text("Valid")
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 30
    expect(page.locator("#link")).to_contain_text("No connection")
    context.close()
