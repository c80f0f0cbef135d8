"""The real judge's words, through the report to the page and the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from aipc.facts import Judgement
from aipc.reports import html, summary, text
from aipc.reports.report import GroupTolerance, Report, Thresholds
from runtimes import contract
from runtimes.contract import Job, Layout, Step, Verdict
from runtimes.kit import tensors
from runtimes.kit.work import Work
from runtimes.reference.judge import judge
from runtimes.reference.judge_case import Case
from tests.runtimes.judge_cases import GROUPS, good

NAMES = ("golden", "outputs", "samples")


def judged(base: Report, case: Case, root: Path) -> tuple[Report, Path]:
    """Return what the judge says of `case` as a report, and the run folder with its pictures."""
    layout = Layout(root)
    layout.outputs.mkdir(parents=True)
    for name in NAMES:
        tensors.save_samples(layout.inputs / name, getattr(case, name))
    job = Job(step=Step.JUDGE, runtime="reference", inputs=NAMES, options=contract.encode(case.options))
    judgement = contract.decode(Judgement, judge(Work(layout, job)), "verdict.json")
    report = dataclasses.replace(
        base,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        gates=judgement.gates,
        measures=judgement.measures,
        pictures=judgement.pictures,
        tolerances=tuple(
            GroupTolerance(
                group=group.name,
                outputs=group.outputs,
                content=group.content,
                applied=Thresholds(cosine=group.cosine, snr_db=group.snr_db, max_abs=group.max_abs),
                default=Thresholds(cosine=group.cosine, snr_db=group.snr_db),
            )
            for group in case.options.groups
        ),
    )
    return report, layout.outputs


def test_a_cell_that_agrees_has_no_red_number_anywhere(reports: Mapping[str, Report], tmp_path: Path) -> None:
    report, folder = judged(reports["agrees"], good(), tmp_path)
    assert report
    assert all(summary.group_numbers(report))
    page = html.render(report, folder)
    assert "✗" not in page
    assert "No picture" not in page
    assert page.count("<img") == 4 * len(report.pictures) > 0
    assert "✗" not in text.plain(report, folder)


@pytest.mark.parametrize(("output", "group"), [("scores", "detections"), ("picture", "image")])
def test_a_wrong_output_is_red_where_it_is_wrong(
    reports: Mapping[str, Report], tmp_path: Path, output: str, group: str
) -> None:
    case = good()
    wrong = case.outputs["photo"][output] + np.float32(0.1)
    outputs = {**case.outputs, "photo": {**case.outputs["photo"], output: wrong}}
    report, _ = judged(reports["disagrees"], dataclasses.replace(case, outputs=outputs), tmp_path)
    assert report.verdict is Verdict.DISAGREES
    tolerances = {tolerance.group: tolerance for tolerance in report.tolerances}
    red = [
        (measure.sample, measure.output)
        for measure in report.measures
        if summary.failing(report, tolerances[measure.group], measure)
    ]
    assert red == [("photo", output)]
    assert [numbers.tolerance.group for numbers in summary.group_numbers(report) if not numbers] == [group]


def test_labels_that_the_judge_accepts_are_not_red(reports: Mapping[str, Report], tmp_path: Path) -> None:
    groups = (*GROUPS[:2], dataclasses.replace(GROUPS[2], cosine=0.85))
    case = good(groups=groups)
    labels = case.outputs["photo"]["labels"].copy()
    labels.flat[0] += 1000
    outputs = {**case.outputs, "photo": {**case.outputs["photo"], "labels": labels}}
    report, _ = judged(reports["agrees"], dataclasses.replace(case, outputs=outputs), tmp_path)
    assert report
    assert all(summary.group_numbers(report))
