from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from aipc.reports import html, results
from aipc.reports import report as report_module
from aipc.reports.report import FailedStep, Report
from runtimes.contract import Failure, Kind, Status, Step, Verdict
from tests.host.reports.test_results import FOUND

pytestmark = pytest.mark.browser

VERDICTS = [verdict.value for verdict in Verdict]
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
OVERFLOW = """() => [...document.querySelectorAll('body *')]
    .filter(one => one.getClientRects().length && one.getBoundingClientRect().right > innerWidth + 0.5)
    .map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        reason = "no chromium on the PATH: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Visit:
    """A page that was opened, what it asked the network for, and what the console said."""

    page: Page
    requests: list[str]
    console: list[str]


def visit(browser: Browser, path: Path, *, scheme: str = "light") -> Visit:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    requests: list[str] = []
    console: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.goto(path.as_uri())
    return Visit(page=page, requests=requests, console=console)


@pytest.fixture(scope="module")
def pages(reports: Mapping[str, Report], run_folder: Path) -> Mapping[str, Path]:
    """The page of each verdict in a file of its own, with its JSON beside it."""
    found = {}
    for word, report in reports.items():
        found[word] = html.write(report, run_folder).rename(run_folder / f"{word}.html")
        report_module.write(report, run_folder / f"{word}.json")
    return found


@pytest.fixture(scope="module")
def visits(browser: Browser, pages: Mapping[str, Path]) -> Mapping[str, Visit]:
    """The page of each verdict, opened once."""
    return {word: visit(browser, path) for word, path in pages.items()}


@pytest.mark.parametrize("word", VERDICTS)
def test_a_page_opens_without_a_complaint_and_without_the_network(
    visits: Mapping[str, Visit], pages: Mapping[str, Path], word: str
) -> None:
    assert visits[word].console == []
    assert [url for url in visits[word].requests if not url.startswith("data:")] == [pages[word].as_uri()]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_table_of_a_matrix_opens_without_a_complaint_and_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    results.write(FOUND, tmp_path)
    seen = visit(browser, tmp_path / results.PAGE_NAME)
    seen.page.set_viewport_size({"width": width, "height": 800})
    assert seen.console == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [(tmp_path / "index.html").as_uri()]
    # A wide table is moved inside its own frame, never the page.
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert seen.page.locator(".list tbody tr").count() == len(FOUND.rows) + len(FOUND.missing)


@pytest.mark.parametrize("word", VERDICTS)
def test_the_page_shows_the_verdict_of_its_json(
    visits: Mapping[str, Visit], pages: Mapping[str, Path], word: str
) -> None:
    seen = visits[word]
    report = report_module.read(pages[word].with_suffix(".json"))
    shown = seen.page.locator(".word")
    assert shown.inner_text() == report.verdict.value
    assert shown.is_visible()
    assert seen.page.locator("h1").inner_text() == report.cell


def test_every_picture_is_really_drawn(visits: Mapping[str, Visit]) -> None:
    seen = visits["agrees"]
    widths = seen.page.evaluate("() => [...document.images].map(one => one.naturalWidth)")
    assert widths == [64, 256, 256, 256]
    shown = seen.page.evaluate("() => [...document.images].map(one => Math.round(one.getBoundingClientRect().width))")
    assert max(shown) - min(shown) <= 1


@pytest.mark.parametrize("word", VERDICTS)
def test_nothing_sticks_out_to_the_right(visits: Mapping[str, Visit], word: str) -> None:
    page = visits[word].page
    page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true; })")
    for width in (400, 1280, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_words_without_a_blank_break_where_they_must(
    browser: Browser, reports: Mapping[str, Report], tmp_path: Path
) -> None:
    endless = "/a_name_without_a_blank" * 30
    failure = Failure(kind=Kind.TOOLCHAIN, message=endless, hint=endless, op=endless, node=endless)
    good = reports["disagrees"]
    report = dataclasses.replace(
        good,
        cell=endless,
        reasons=(endless,),
        reproduce=("aipc", endless),
        measures=tuple(dataclasses.replace(measure, sample=endless, output=endless) for measure in good.measures),
        gates=tuple(dataclasses.replace(gate, name=endless, detail=endless) for gate in good.gates),
        execution={endless: endless},
        notes=(endless,),
        host={endless: endless},
        failure=FailedStep(step=Step.JUDGE, status=Status.CRASHED, failure=failure, log_tail=endless),
        pictures=(),
    )
    seen = visit(browser, html.write(report, tmp_path))
    for width in (400, 1280):
        seen.page.set_viewport_size({"width": width, "height": 900})
        assert seen.page.evaluate(OVERFLOW) == []
    seen.page.close()


def test_the_page_is_dark_where_the_reader_wants_it_dark(browser: Browser, pages: Mapping[str, Path]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        seen = visit(browser, pages["agrees"], scheme=scheme)
        grounds.append(seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        seen.page.close()
    assert grounds == ["rgb(244, 245, 247)", "rgb(16, 19, 23)"]


def test_printed_pages_are_light_and_show_what_is_folded(browser: Browser, pages: Mapping[str, Path]) -> None:
    seen = visit(browser, pages["agrees"], scheme="dark")
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    folded = seen.page.locator("details", has_text="1187 nodes").locator("p")
    box = folded.bounding_box()
    assert box is not None
    assert box["height"] > 10
    seen.page.close()


def test_a_click_selects_the_whole_command(browser: Browser, pages: Mapping[str, Path]) -> None:
    seen = visit(browser, pages["agrees"])
    seen.page.locator(".command code").click()
    selected = seen.page.evaluate("() => String(getSelection())")
    assert selected.strip() == "aipc deploy 'esrgan#64x48/openvino/fp16@cpu' --engine docker"
    seen.page.close()


def test_a_script_in_a_vendors_words_does_not_run(
    browser: Browser, reports: Mapping[str, Report], tmp_path: Path
) -> None:
    evil = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
    failure = Failure(kind=Kind.CRASH, message=evil)
    failed = FailedStep(step=Step.CONVERT, status=Status.CRASHED, failure=failure, log_tail=evil)
    report = dataclasses.replace(reports["failed"], failure=failed, cell=evil, reasons=(evil,))
    seen = visit(browser, html.write(report, tmp_path))
    assert seen.page.title() == f"failed: {evil} (aipc)"
    assert seen.page.locator("pre.vendor").inner_text() == evil
    assert seen.console == []
    seen.page.close()
