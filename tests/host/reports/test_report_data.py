from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aipc.facts import Judgement
from aipc.reports import report as report_module
from aipc.reports import schema
from aipc.reports.report import Report
from runtimes import contract
from runtimes.contract import Misused, Status, Step, Verdict

VERDICTS = [verdict.value for verdict in Verdict]


def changed(report: Report, change: Mapping[str, Any]) -> Report:
    return dataclasses.replace(report, **change)


@pytest.mark.parametrize("word", VERDICTS)
def test_a_report_comes_back_from_its_file_as_it_was(reports: Mapping[str, Report], word: str, tmp_path: Path) -> None:
    report_module.write(reports[word], tmp_path / "report.json")
    assert report_module.read(tmp_path / "report.json") == reports[word]


def test_only_a_report_that_agrees_is_true(reports: Mapping[str, Report]) -> None:
    assert [word for word, report in reports.items() if report] == ["agrees"]


def test_a_report_of_another_schema_is_refused_by_its_number(reports: Mapping[str, Report], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**contract.encode(reports["agrees"]), "report_schema": 3, "new_key": 1}))
    with pytest.raises(Misused, match="report_schema 3 is not 2; read it with the aipc that wrote it"):
        report_module.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '"report_schema"', "report_schema"])
def test_a_file_that_is_no_report_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(Misused, match=r"some\.json: not a report"):
        report_module.read(path)


def test_a_misspelt_key_is_refused_with_a_suggestion(reports: Mapping[str, Report], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**contract.encode(reports["agrees"]), "gate": []}))
    with pytest.raises(Misused, match=r"unknown key 'gate'; did you mean 'gates'\?"):
        report_module.read(path)


CONTRADICTIONS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "agreement without gates": ("agrees", {"gates": ()}, "an empty report is not good"),
    "agreement without measures": ("agrees", {"measures": ()}, "an empty report is not good"),
    "agreement without an artefact": ("agrees", {"artifact": None}, "an empty report is not good"),
    "failed without a failure": ("failed", {"failure": None}, "failed without a failure"),
    "refused without a failure": ("refused", {"failure": None}, "refused without a failure"),
    "disagreement without a reason": ("disagrees", {"reasons": ()}, "disagrees without a reason"),
    "a date without a zone": ("agrees", {"made": "2026-11-30T16:34:12"}, "is not ISO 8601 with a time zone"),
    "no date": ("agrees", {"made": "today"}, "is not ISO 8601 with a time zone"),
    "a measure of no group": ("agrees", {"tolerances": ()}, "measures of the group 'image', which has no tolerance"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_report_that_contradicts_itself_cannot_be_made(reports: Mapping[str, Report], case: str) -> None:
    word, change, said = CONTRADICTIONS[case]
    with pytest.raises(Misused, match=said):
        changed(reports[word], change)


def test_a_green_report_holds_no_red_gate(reports: Mapping[str, Report]) -> None:
    with pytest.raises(Misused, match="agrees, but sensitive failed"):
        changed(reports["vacuous"], {"verdict": Verdict.AGREES})


def test_a_green_report_holds_no_failed_step(reports: Mapping[str, Report]) -> None:
    with pytest.raises(Misused, match="agrees, but a step failed"):
        changed(reports["agrees"], {"failure": reports["failed"].failure})


def test_a_failed_step_that_is_done_is_refused(reports: Mapping[str, Report]) -> None:
    failure = reports["failed"].failure
    assert failure is not None
    with pytest.raises(Misused, match="the failed step convert is done"):
        changed(reports["failed"], {"failure": dataclasses.replace(failure, status=Status.DONE, step=Step.CONVERT)})


def test_a_contradiction_in_a_file_is_found_when_it_is_read(reports: Mapping[str, Report], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**contract.encode(reports["agrees"]), "gates": []}))
    with pytest.raises(Misused, match="an empty report is not good"):
        report_module.read(path)


def test_what_the_judge_writes_is_a_judgement() -> None:
    facts = {
        "verdict": "disagrees",
        "reasons": ["finite: 1 value"],
        "gates": [{"name": "finite", "passed": False, "measured": 1.0, "threshold": 0.0, "detail": "1 value"}],
        "measures": [
            {
                "group": "scores",
                "output": "scores",
                "sample": "photo",
                "cosine": None,
                "snr_db": None,
                "max_abs": None,
                "max_rel": None,
                "nan": 1,
                "inf": 0,
            }
        ],
        "pictures": [],
    }
    judgement = contract.decode(Judgement, facts, "verdict.json")
    assert judgement.verdict is Verdict.DISAGREES
    assert judgement.measures[0].cosine is None
    assert not judgement.gates[0]


def test_the_published_schema_is_that_of_the_dataclasses() -> None:
    hint = "run: python -m aipc.reports.schema > orchestrator/aipc/reports/report.schema.json"
    assert schema.PUBLISHED.read_text(encoding="utf-8") == schema.published(), hint


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema.published()))


@pytest.mark.parametrize("word", VERDICTS)
def test_every_report_keeps_to_the_published_schema(reports: Mapping[str, Report], word: str, tmp_path: Path) -> None:
    report_module.write(reports[word], tmp_path / "report.json")
    jsonschema.validate(json.loads((tmp_path / "report.json").read_text()), json.loads(schema.PUBLISHED.read_text()))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "fine"},
        {"report_schema": 3},
        {"unknown": 1},
        {"gates": [{"name": "finite"}]},
        {"stages": [{"step": "convert"}]},
        {"seconds": "long"},
        {"io": {"inputs": [], "outputs": [{"name": "y", "shape": [1.5], "dtype": "float32", "layout": ""}]}},
    ],
)
def test_the_published_schema_refuses_what_is_no_report(
    reports: Mapping[str, Report], change: Mapping[str, Any]
) -> None:
    data = {**json.loads(contract.dumps(reports["agrees"])), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json.loads(schema.PUBLISHED.read_text()))


def test_the_published_schema_describes_every_key_of_a_report() -> None:
    published = json.loads(schema.published())
    ours = [published, *(part for name, part in published["$defs"].items() if name not in ("Artifact", "Component"))]
    silent = [key for part in ours for key, value in part["properties"].items() if "description" not in value]
    assert silent == []
