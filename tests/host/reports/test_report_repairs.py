"""What a report says of rewrites, of a simulated device and of the first bad node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from aipc.reports import html, summary, text, words
from aipc.reports import report as report_module
from aipc.reports.report import FailedStep, Report
from runtimes.contract import Failure, Kind, Status, Step

FOLDER = Path("runs/cell")
LOWERED = (
    "lower_opset for operator Einsum, node /model.12/attn/Einsum (convert): "
    "could not be done: rewrite lower_opset: no such opset"
)
TRACEBACK = """I RKNN: loading
Traceback (most recent call last):
  File "/runtimes/kit/worker.py", line 88, in _attempt
    return _do(layout, versions)
ValueError: no such shape

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/runtimes/rknn/adapter.py", line 12, in convert
runtimes.kit.work.Failed: no such shape
E RKNN: build failed
"""


def test_each_rewrite_is_told_with_what_it_was_for_and_what_came_of_it(reports: Mapping[str, Report]) -> None:
    assert summary.repairs(reports["disagrees"]) == (
        "fp16 before the first conversion: 2 places changed",
        LOWERED,
        "fold_constants for operator Einsum, node /model.12/attn/Einsum (convert): nothing to change",
        "einsum_to_matmul for operator Einsum, node /model.12/attn/Einsum (convert): 1 place changed, helped",
        "guard_silu for wrong numbers: 57 places changed, did not help and was taken back",
    )


def test_a_rewrite_that_always_comes_first_is_told_only_where_it_changed_something(
    reports: Mapping[str, Report],
) -> None:
    report = reports["disagrees"]
    first = dataclasses.replace(report.repairs[0], changed=())
    assert first.symptom is None
    idle = dataclasses.replace(report, repairs=(first, *report.repairs[1:]))
    assert summary.repairs(idle) == summary.repairs(report)[1:]


def test_terminal_and_page_tell_the_same_of_rewrites_simulator_and_first_bad_node(
    reports: Mapping[str, Report], run_folder: Path
) -> None:
    report = reports["disagrees"]
    told, page = text.plain(report, FOLDER), html.render(report, run_folder)
    for shown in (told, page):
        assert "einsum_to_matmul" in shown
        assert "57 places changed, did not help and was taken back" in shown
        assert "simulated by the HTP emulator of onnxruntime-qnn 2.7.0" in shown
        assert "The first bad node is /model.12/attn/Sigmoid (Sigmoid), number 312 of 640." in shown
        assert "The smallest piece that fails has 2 nodes: it lies in first-bad/." in shown
    assert "The error along the model" in page
    assert "(4 of 5 changed" not in page
    assert "(3 of 5 changed something)" in page


def test_what_an_agent_did_is_told_and_that_the_judge_does_not_agree(
    reports: Mapping[str, Report], run_folder: Path
) -> None:
    report = reports["disagrees"]
    told, page = text.plain(report, FOLDER), html.render(report, run_folder)
    for shown in (" ".join(told.split()), page):
        assert "An agent (qwen2.5-coder) worked in the mode repair, with skills: 7 steps, 8 calls" in shown
        assert "about 9120 tokens, 61 s, costing 0.03. It ended: submitted." in shown
        assert "on inputs drawn afterwards (seed 4711): disagrees; what the rules reached stands." in shown
    assert "In its own words: The Einsum is rewritten &lt;b&gt;now&lt;/b&gt;" in page
    for piece in ("patch of net/attention.py", "- a @ b", "+ torch.matmul(a, b)", "def patch(model):", "opset 17"):
        assert piece in page


def test_where_an_agent_left_its_way_is_told_with_the_step(reports: Mapping[str, Report], run_folder: Path) -> None:
    report = reports["disagrees"]
    assert summary.deviations(report) == (
        "a stage was skipped at step 7: submit though compare had not succeeded for the candidate as it was",
        "success was claimed, and the judge disagrees: it claimed success; the judge: disagrees",
        "it wrote, or tried to, outside its workspace: its code was refused: <i>[Errno 13]</i>",
    )
    told, page = " ".join(text.plain(report, FOLDER).split()), html.render(report, run_folder)
    for sentence in summary.deviations(report):
        assert f"! agent: {sentence}" in told
    for piece in ("a stage was skipped", "submit though compare had not", "&lt;i&gt;[Errno 13]&lt;/i&gt;"):
        assert piece in page


def test_a_rule_that_was_withheld_stands_beside_the_verdict(reports: Mapping[str, Report], run_folder: Path) -> None:
    report = dataclasses.replace(reports["agrees"], withheld=("einsum_to_matmul", "fix_shapes"))
    said = "Made harder on purpose: no rule was let try einsum_to_matmul, fix_shapes. This is no normal deploy."
    assert summary.caveats(report)[0] == said
    assert said in " ".join(text.plain(report, FOLDER).split())
    assert said in html.render(report, run_folder)
    assert "on purpose" not in text.plain(reports["agrees"], FOLDER)


def test_a_report_without_them_says_nothing_of_them(reports: Mapping[str, Report], run_folder: Path) -> None:
    page = html.render(reports["agrees"], run_folder)
    for word in ("Rewrites of the graph", "simulated", "Where it goes wrong", "The agent", "Where it left its way"):
        assert word not in page


def test_where_no_node_was_found_the_notes_are_told(reports: Mapping[str, Report], run_folder: Path) -> None:
    found = reports["disagrees"].bisection
    assert found
    lost = dataclasses.replace(found, first=None, piece=(), index=-1)
    report = dataclasses.replace(reports["disagrees"], bisection=lost)
    for shown in (text.plain(report, FOLDER), html.render(report, run_folder)):
        assert "The model with tensors inside as outputs is slower." in shown
        assert "The first bad node" not in shown


def test_a_report_with_repairs_is_read_back_as_it_was(reports: Mapping[str, Report], tmp_path: Path) -> None:
    report_module.write(reports["disagrees"], tmp_path / "report.json")
    assert report_module.read(tmp_path / "report.json") == reports["disagrees"]


def test_notes_are_told_on_the_terminal(reports: Mapping[str, Report]) -> None:
    assert "note: OpenVINO keeps weights in FP16" in text.plain(reports["agrees"], FOLDER)


def test_a_traceback_goes_with_the_exception_that_it_ends_in_and_the_vendors_lines_stay() -> None:
    assert words.without_traceback(TRACEBACK).splitlines() == ["I RKNN: loading", "E RKNN: build failed"]


@pytest.mark.parametrize(("status", "shown"), [(Status.FAILED, False), (Status.BROKEN, True), (Status.CRASHED, True)])
def test_our_own_traceback_is_shown_where_it_is_a_bug_and_not_where_the_vendor_gave_up(
    reports: Mapping[str, Report], status: Status, shown: bool
) -> None:
    failure = Failure(kind=Kind.TOOLCHAIN, message="no such shape")
    failed = FailedStep(step=Step.CONVERT, status=status, failure=failure, log_tail=TRACEBACK)
    told = text.plain(dataclasses.replace(reports["failed"], failure=failed), FOLDER)
    assert ("runtimes/rknn/adapter.py" in told) is shown
    assert "no such shape" in told
    assert "E RKNN: build failed" in told


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_failure_has_words(kind: Kind) -> None:
    assert words.KINDS[kind]
