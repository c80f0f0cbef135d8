from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from aipc.reports import text
from aipc.reports.report import FailedStep, Report
from runtimes.contract import Failure, Kind, Status, Step, Verdict

VERDICTS = [verdict.value for verdict in Verdict]
FOLDER = Path("runs/a folder with a rather long name/esrgan#64x48/openvino/fp16@cpu/which/goes/on/and/on")


def shown(report: Report, *, width: int = 80, terminal: bool = True, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None, highlight=False)
    text.show(report, FOLDER, console)
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize("word", VERDICTS)
def test_away_from_a_terminal_the_summary_is_plain(reports: Mapping[str, Report], word: str) -> None:
    told = shown(reports[word], terminal=False)
    assert told == text.plain(reports[word], FOLDER)
    assert "\x1b" not in told


@pytest.mark.parametrize("word", VERDICTS)
def test_the_verdict_and_the_cell_come_first(reports: Mapping[str, Report], word: str) -> None:
    first = text.plain(reports[word], FOLDER).strip().splitlines()[0]
    assert first.split()[1:] == [word, reports[word].cell]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("word", VERDICTS)
def test_on_a_terminal_only_what_is_copied_is_wider_than_it(
    reports: Mapping[str, Report], word: str, width: int
) -> None:
    wide = [line for line in shown(reports[word], width=width).splitlines() if len(line) > width]
    assert all(line.split()[0] in ("artefact", "report", "again") for line in wide)


def test_paths_and_the_command_stay_on_one_line(reports: Mapping[str, Report]) -> None:
    told = shown(reports["agrees"], width=40).splitlines()
    assert f"  report    {FOLDER / 'report.html'}" in told
    assert f"  artefact  {FOLDER / 'artifact'}  35.2 MB, 2 files" in told
    assert "  again     aipc deploy 'esrgan#64x48/openvino/fp16@cpu' --engine docker" in told


def test_each_group_has_its_worst_numbers_beside_the_thresholds(reports: Mapping[str, Report]) -> None:
    rows = [line.split("  ") for line in text.plain(reports["disagrees"], FOLDER).splitlines()]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["boxes", "cosine", "0.99999956", "≥ 0.99", "random-10.0"] in cells
    assert ["✗", "max abs", "4.05", "≤ 0.5", "random-10.0"] in cells
    assert ["✗ scores", "cosine", "n/a", "≥ 0.999", "random-10.0"] in cells


def test_what_was_made_easier_and_what_was_not_caged_stands_below_the_verdict(reports: Mapping[str, Report]) -> None:
    told = text.plain(reports["disagrees"], FOLDER)
    assert "  ! Looser tolerance for boxes: cosine ≥ 0.99 instead of 0.999.\n" in told
    assert "  ! Smaller input: image was tried at 1×3×256×320, the model declares 1×3×640×640.\n" in told
    assert "  ! Not caged: network (bubblewrap is missing), memory (counted per process).\n" in told


def failing(reports: Mapping[str, Report], message: str, log: str = "") -> Report:
    failure = Failure(kind=Kind.TOOLCHAIN, message=message, hint="[bold]try[/bold]")
    failed = FailedStep(step=Step.CONVERT, status=Status.FAILED, failure=failure, log_tail=log)
    return dataclasses.replace(reports["failed"], failure=failed, reasons=(f"convert: {message}",))


def test_a_short_message_is_told_whole_and_once(reports: Mapping[str, Report]) -> None:
    told = text.plain(failing(reports, "first words\nlast words"), FOLDER)
    assert "    first words\n    last words\n" in told
    assert told.count("first words") == 1


def test_of_a_long_message_the_end_is_told_and_the_rest_counted(reports: Mapping[str, Report]) -> None:
    message = "\n".join(f"line {number}" for number in range(100))
    told = text.plain(failing(reports, message, message), FOLDER)
    assert "    … 84 lines before this are in the report\n    line 84\n" in told
    assert "    … 92 lines before this are in the report\n    line 92\n" in told


def test_markup_and_escape_sequences_do_nothing_to_the_terminal(reports: Mapping[str, Report]) -> None:
    told = shown(failing(reports, "[red]a[/red] \x1b[2Jb\x1b]0;title\x07", "\x1b[1A:smile: \x07"), width=200)
    assert "    [red]a[/red] b\n" in told
    assert "    :smile:" in told
    assert "what to do: [bold]try[/bold]" in told
    assert "\x1b[2J" not in told
    assert "\x07" not in told


def test_no_name_plays_tricks_on_the_terminal(reports: Mapping[str, Report]) -> None:
    evil, good = "\x1b[2J\u202e\nx", reports["disagrees"]
    report = dataclasses.replace(
        good,
        cell=evil,
        reasons=(evil,),
        uncaged=(evil,),
        reproduce=(evil,),
        inputs=(dataclasses.replace(good.inputs[0], name=evil),),
        measures=tuple(dataclasses.replace(measure, sample=evil) for measure in good.measures),
    )
    told = text.plain(report, FOLDER)
    assert not {"\x1b", "\u202e"} & set(told)
    assert len(told.splitlines()) == len(text.plain(good, FOLDER).splitlines()) - 1  # one reason instead of two


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_poor_encoding_gets_poorer_signs_and_no_error(reports: Mapping[str, Report], encoding: str) -> None:
    told = shown(failing(reports, "schlägt fehl: 形"), encoding=encoding)
    assert "fehl" in told
    assert "\\u5f62" in told
    assert ">= 0.99" in shown(reports["disagrees"], encoding=encoding) or encoding == "cp437"


def test_a_board_that_is_not_here_is_not_the_toolchains_refusal(reports: Mapping[str, Report]) -> None:
    told = text.plain(reports["untried"], FOLDER)
    assert "verify (run) was not tried" in told
    assert "refused" not in told


FACTS = {
    "file": "net.onnx",
    "size_bytes": 66_901_322,
    "format": "ONNX",
    "gates": [
        {"name": "checker", "passed": True, "detail": "full_check"},
        {"name": "static", "passed": False, "detail": "input 'x' has the free dimension 'h'"},
    ],
    "opsets": {"ai.onnx": 17},
    "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 3, "h", 64]}],
    "nodes": {"Add": 2, "Conv": 351},
    "parameters": 16_697_987,
    "external_data": [],
    "tensors": {f"layer.{number}\x1b[2J": {"dtype": "float32", "shape": [64]} for number in range(30)},
}


def test_the_facts_of_a_file_are_for_people() -> None:
    told = "".join(f"{line.text}\n" for line in text.fact_lines(FACTS))
    assert "size            66.9 MB\n" in told
    assert "parameters      16.7 M\n" in told
    assert "\ngates (2)\n  ✓ checker  full_check\n  ✗ static  input 'x' has the free dimension 'h'\n" in told
    assert "\ninputs (1)\n  x  1×3×h×64 float32\n" in told
    assert "\nnodes (2)\n  Conv 351, Add 2\n" in told
    assert "\nopsets (1)\n  ai.onnx  17\n" in told
    assert "  layer.19  64 float32\n  … and 10 more; --json shows them all\n" in told
    assert "\x1b" not in told


def test_the_facts_of_a_file_fit_the_terminal() -> None:
    stream = io.StringIO()
    text.show_facts(FACTS, Console(file=stream, width=50, force_terminal=True, color_system=None, highlight=False))
    assert max(map(len, stream.getvalue().splitlines())) <= 50
