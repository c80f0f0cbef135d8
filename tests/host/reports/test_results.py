"""The table of a matrix: what it counts, for machines, for the terminal, as a page and as Markdown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aipc.reports import results
from aipc.reports.results import Results, Row
from aipc.sweep import is_expected
from runtimes import contract
from runtimes.contract import Verdict

GOOD = Row(
    cell="esrgan#64x48/ortqnn/fp16@sm8650",
    verdict=Verdict.AGREES,
    expected=None,
    as_expected=True,
    cosine=0.99999987,
    snr_db=52.36,
    rewrites=("einsum_to_matmul", "guard_silu"),
    device="HTP",
    simulated="the HTP emulator of onnxruntime-qnn 2.7.0",
    seconds=31.4,
    shrunk=1,
    page="esrgan_64x48/ortqnn/fp16@sm8650/report.html",
)
ROWS = (
    dataclasses.replace(GOOD, cell="esrgan/openvino/fp16@cpu", simulated="", device="CPU", rewrites=(), shrunk=0),
    GOOD,
    Row(
        cell="esrgan/tensorrt/fp16@sm89",
        verdict=Verdict.UNTRIED,
        expected=None,
        as_expected=True,
        seconds=4.0,
        reason="verify (run): no NVIDIA GPU here",
        page="esrgan/tensorrt/fp16@sm89/report.html",
    ),
    Row(
        cell="yoloworld/rknn/int8@rk3588",
        verdict=Verdict.DISAGREES,
        expected=None,
        as_expected=False,
        cosine=0.912,
        snr_db=None,
        device="NPU",
        simulated="the RKNN simulator of rknn-toolkit2 2.5.0",
        seconds=4.0,
        loosened=2,
        reason="cosine:scores is 0.912, below 0.95 | <b>",
        page="yoloworld/rknn/int8@rk3588/report.html",
    ),
    Row(
        cell="yoloworld/qairt/fp16@sm8650",
        verdict=None,
        expected=None,
        as_expected=False,
        seconds=0.1,
        reason="no such package",
    ),
)
FOUND = Results(
    made="2026-11-30T20:00:00+00:00",
    commit="0123456789ab+",
    engine="venv",
    seconds=93.0,
    rows=ROWS,
    missing=("yoloworld/openvino/fp16@cpu",),
)


@pytest.mark.parametrize(
    ("verdict", "wanted", "so"),
    [
        (Verdict.AGREES, None, True),
        (Verdict.UNTRIED, None, True),
        *((each, None, False) for each in Verdict if each not in {Verdict.AGREES, Verdict.UNTRIED}),
        (Verdict.REFUSED, Verdict.REFUSED, True),
        (Verdict.AGREES, Verdict.REFUSED, False),
        (Verdict.UNTRIED, Verdict.AGREES, False),
        (Verdict.FAILED, Verdict.REFUSED, False),
    ],
)
def test_a_cell_is_as_expected_where_the_matrix_says_so_or_else_where_it_agrees_or_has_no_device(
    verdict: Verdict, wanted: Verdict | None, so: bool
) -> None:
    assert is_expected(verdict, wanted) is so


def test_a_matrix_is_good_where_every_cell_was_reached_and_is_as_expected() -> None:
    good = dataclasses.replace(FOUND, rows=ROWS[:3], missing=())
    assert good
    assert not dataclasses.replace(good, missing=("a/b/c@d",))
    assert not dataclasses.replace(good, rows=())
    assert not dataclasses.replace(good, rows=ROWS[:4])


def test_the_summary_counts_verdicts_simulators_and_what_was_made_easier() -> None:
    assert FOUND.summary == (
        "5 cells: 2 agrees, 1 untried, 1 disagrees, 1 not started; 1 not reached; 2 not as expected; "
        "2 on a simulator; 2 tolerances loosened, 1 inputs shrunk"
    )


def test_the_table_on_the_terminal_has_a_line_for_each_cell() -> None:
    told = list(results.table(FOUND))
    assert len(told) == 1 + len(ROWS) + 2
    assert "HTP (simulated)" in told[2]
    assert "einsum_to_matmul, guard_silu" in told[2]
    assert "1 smaller input" in told[2]
    assert told[4].startswith("✗  yoloworld/rknn/int8@rk3588")
    assert "disagrees, not expected" in told[4]
    assert "2 looser" in told[4]


def test_what_is_written_for_machines_is_read_back(tmp_path: Path) -> None:
    results.write(FOUND, tmp_path)
    assert contract.read(Results, tmp_path / results.FILE_NAME) == FOUND
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "matrix.json"]


def test_the_page_links_every_report_and_nothing_outside(tmp_path: Path) -> None:
    results.write(FOUND, tmp_path)
    page = (tmp_path / "index.html").read_text()
    for row in ROWS:
        assert row.page.replace("@", "%40") in page
    assert "//" not in page.partition("</style>")[2]
    assert "&lt;b&gt;" in page
    assert "not reached" in page
    assert "simulated by the HTP emulator" in page


def test_the_markdown_names_commit_and_day_and_escapes_bars() -> None:
    replaced = dataclasses.replace(ROWS[-1], device="CPU | DSP")
    told = results.markdown(dataclasses.replace(FOUND, rows=(*ROWS[:-1], replaced)))
    assert "commit `0123456789ab+` on 2026-11-30" in told
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(ROWS)
    assert {line.count(" | ") for line in rows} == {8}
    assert r"CPU \| DSP" in told
    assert "- `esrgan/tensorrt/fp16@sm89`: verify (run): no NVIDIA GPU here" in told
