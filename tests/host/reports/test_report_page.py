from __future__ import annotations

import base64
import dataclasses
import re
import subprocess
import sys
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aipc.facts import Placed
from aipc.reports import html
from aipc.reports.report import FailedStep, Report
from runtimes.contract import Failure, Kind, Status, Step, Verdict

VERDICTS = [verdict.value for verdict in Verdict]
EVIL = '</pre></style><script>document.title="owned"</script><img src=x onerror="alert(1)">" onmouseover="alert(2)'
HIDDEN = "\x1b[31m\u202e\x9b"
VOID = frozenset({"meta", "link", "img", "br", "wbr", "path", "circle"})


class Page(HTMLParser):
    """Reads a page: its elements with their attributes, and whether each that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Mapping[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, *names: str) -> list[Mapping[str, str | None]]:
        return [attributes for name, attributes in self.elements if name in names]


def page(report: Report, folder: Path) -> str:
    return html.write(report, folder).read_text(encoding="utf-8")


def failing(reports: Mapping[str, Report], message: str, log: str = "") -> Report:
    failure = Failure(kind=Kind.TOOLCHAIN, message=message, hint=message, op=message, node=message)
    failed = FailedStep(step=Step.CONVERT, status=Status.FAILED, failure=failure, log_tail=log)
    return dataclasses.replace(reports["failed"], failure=failed, reasons=(message,))


def named_all(good: Report, name: str) -> Report:
    """Return a report in which whatever has a name has this one."""
    return dataclasses.replace(
        good,
        cell=name,
        target=name,
        reasons=(name,),
        reproduce=("aipc", name),
        uncaged=(name,),
        notes=(name,),
        host={name: name},
        execution={name: [name]},
        model=dataclasses.replace(good.model, name=name, licence=name, sensitivity={name: {name: 0.5}}),
        measures=tuple(dataclasses.replace(measure, output=name, sample=name) for measure in good.measures),
        gates=tuple(dataclasses.replace(gate, name=name, detail=name) for gate in good.gates),
        pictures=tuple(dataclasses.replace(pictures, sample=name, output=name) for pictures in good.pictures),
        placement=(Placed(node=name, op=name, device=name),),
    )


@pytest.mark.parametrize("word", VERDICTS)
def test_the_title_names_the_cell_and_the_verdict(reports: Mapping[str, Report], run_folder: Path, word: str) -> None:
    title = re.search("<title>(.*)</title>", page(reports[word], run_folder))
    assert title
    assert unescape(title[1]) == f"{word}: {reports[word].cell} (aipc)"


@pytest.mark.parametrize("word", VERDICTS)
def test_a_page_is_well_formed_and_names_its_language(
    reports: Mapping[str, Report], run_folder: Path, word: str
) -> None:
    read = Page(page(reports[word], run_folder))
    assert read.open == []
    assert read.named("html") == [{"lang": "en"}]
    assert len(read.named("h1")) == 1
    assert all(header.get("scope") for header in read.named("th"))
    assert all(picture.get("alt") for picture in read.named("img"))


@pytest.mark.parametrize("word", VERDICTS)
def test_a_page_needs_no_script_and_no_network(reports: Mapping[str, Report], run_folder: Path, word: str) -> None:
    read = Page(page(reports[word], run_folder))
    sources = [
        value or "" for _, attributes in read.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert sources
    assert all(source.startswith("data:") for source in sources)
    assert not read.named("script", "iframe", "object", "form")
    assert "url(" not in html.render(reports[word], run_folder)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in read.named("meta")


def test_markup_in_a_vendors_words_stays_text(reports: Mapping[str, Report], run_folder: Path) -> None:
    text = page(failing(reports, EVIL, EVIL), run_folder)
    read = Page(text)
    assert not read.named("script", "img")
    assert unescape(text).count(EVIL) >= 5


def test_markup_in_names_stays_text(reports: Mapping[str, Report], run_folder: Path) -> None:
    read = Page(page(named_all(reports["disagrees"], EVIL), run_folder))
    assert read.open == []
    assert not read.named("script")
    assert len(read.named("img")) == 4
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]


def test_hidden_characters_get_onto_no_place_of_a_page(reports: Mapping[str, Report], run_folder: Path) -> None:
    for report in (named_all(reports["disagrees"], HIDDEN), failing(reports, HIDDEN, HIDDEN)):
        assert not {"\x1b", "\u202e", "\x9b"} & set(page(report, run_folder))


def test_escape_sequences_of_a_vendor_are_not_shown(reports: Mapping[str, Report], run_folder: Path) -> None:
    text = page(failing(reports, "\x1b[31mred\x1b[0m words", "1%\r100%\nend"), run_folder)
    assert ">red words</pre>" in text
    assert ">100%\nend</pre>" in text


def test_a_message_is_shown_whole_up_to_a_generous_length(reports: Mapping[str, Report], run_folder: Path) -> None:
    message = "\n".join(f"line {number}" for number in range(4000))
    assert message in page(failing(reports, message), run_folder)


def test_of_an_endless_message_both_ends_are_shown_and_the_gap_is_named(
    reports: Mapping[str, Report], run_folder: Path
) -> None:
    words = "BEGIN" + "x" * 3_000_000 + "END"
    failed = FailedStep(
        step=Step.CONVERT, status=Status.FAILED, failure=Failure(kind=Kind.TOOLCHAIN, message=words), log_tail=words
    )
    text = page(dataclasses.replace(reports["failed"], failure=failed, reasons=(f"convert: {words}",)), run_folder)
    assert len(text) < 300_000
    assert text.count("END</pre>") == 2
    assert text.count("[… 2940008 characters are left out here; report.json has them all …]") == 2


def test_a_large_report_stays_small_besides_its_pictures(reports: Mapping[str, Report], run_folder: Path) -> None:
    good = reports["agrees"]
    measures = tuple(
        dataclasses.replace(good.measures[0], output=f"output_{number // 12}", sample=f"random-{number % 12}")
        for number in range(240)
    )
    nodes = tuple(
        Placed(node=f"/model.{number}/conv/Conv", op=f"Op{number % 40}", device="NPU") for number in range(3000)
    )
    text = page(dataclasses.replace(good, measures=measures, placement=nodes, pictures=()), run_folder)
    assert len(text.encode()) < 300_000


def test_pictures_lie_in_the_page_itself(reports: Mapping[str, Report], run_folder: Path) -> None:
    pictures = Page(page(reports["agrees"], run_folder)).named("img")
    contents = [base64.b64decode((picture["src"] or "").partition(",")[2]) for picture in pictures]
    names = ("input", "golden", "output", "error")
    assert contents == [(run_folder / "pictures" / f"{name}.png").read_bytes() for name in names]
    assert [(picture["width"], picture["height"]) for picture in pictures] == [("64", "48")] + [("256", "192")] * 3


def test_a_missing_picture_is_named_and_the_rest_of_the_page_stands(
    reports: Mapping[str, Report], run_folder: Path
) -> None:
    (pictures,) = reports["agrees"].pictures
    report = dataclasses.replace(
        reports["agrees"], pictures=(dataclasses.replace(pictures, golden="pictures/lost.png", input=""),)
    )
    text = page(report, run_folder)
    assert "No picture: pictures/lost.png: No such file or directory" in text
    assert len(Page(text).named("img")) == 2


def test_a_file_outside_the_run_folder_never_gets_onto_the_page(run_folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    outside.write_bytes((run_folder / "pictures" / "input.png").read_bytes())
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "link.png").symlink_to(outside)
    for name in ("../secret.png", str(outside), "link.png"):
        assert html.load_picture(inside, name).problem == f"{name} lies outside the run folder"


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n", b"<svg onload='alert(1)'/>" + bytes(40), b"GIF89a" + bytes(40)]
)
def test_only_a_png_is_a_picture(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.png").write_bytes(content)
    assert html.load_picture(tmp_path, "x.png").problem == "x.png is not a PNG"


def test_an_onnx_file_is_not_said_to_be_compared_with_pytorch(reports: Mapping[str, Report], run_folder: Path) -> None:
    good = reports["agrees"]
    report = dataclasses.replace(good, model=dataclasses.replace(good.model, reference="onnxruntime"))
    text = page(report, run_folder)
    assert "PyTorch" not in text
    assert "The artefact beside ONNX Runtime FP32" in text


def test_a_page_is_replaced_whole(reports: Mapping[str, Report], run_folder: Path) -> None:
    assert page(reports["agrees"], run_folder) != page(reports["failed"], run_folder)
    assert [path.name for path in run_folder.iterdir() if path.name.startswith(".")] == []


def test_jinja_is_loaded_only_to_render() -> None:
    code = "import sys, aipc.reports.html, aipc.reports.text; print({'jinja2', 'rich'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


PALETTES = {"light": 0, "dark": 1, "print": 2}
PAIRS = [
    *((ink, ground) for ink in ("ink", "soft") for ground in ("page", "card", "well")),
    *((tone, ground) for tone in ("good", "bad", "warn", "calm") for ground in ("card", f"{tone}-back")),
    *(("ink", f"{tone}-back") for tone in ("good", "bad", "warn", "calm")),
    *(("warn", f"{tone}-back") for tone in ("good", "bad", "calm")),
    ("soft", "bad-back"),
]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", PALETTES)
def test_every_text_stands_out_from_its_ground(scheme: str) -> None:
    css = Path(html.__file__).with_name("page.css").read_text(encoding="utf-8")
    found = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[PALETTES[scheme]]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", found))
    for ink, ground in PAIRS:
        low, high = sorted((luminance(colours[ink]), luminance(colours[ground])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{ink} on {ground}"
