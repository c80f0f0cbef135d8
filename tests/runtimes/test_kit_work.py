"""What a step is given, and how it says that it cannot go on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtimes.contract import Failure, Job, Kind, Layout, Misused, Step
from runtimes.kit.work import Failed, Refused, Work, fail, refuse


@dataclass(frozen=True, kw_only=True)
class Options:
    precision: str
    opset: int = 17


@pytest.fixture
def work(tmp_path: Path) -> Work:
    layout = Layout(tmp_path)
    (layout.inputs / "model").mkdir(parents=True)
    job = Job(step=Step.CONVERT, runtime="probe", inputs=("model", "gone"), options={"precision": "fp16"})
    return Work(layout, job)


def test_an_input_that_is_there_is_found(work: Work) -> None:
    assert work.input("model") == work.layout.inputs / "model"


def test_an_input_that_the_job_does_not_list_is_misuse(work: Work) -> None:
    (work.layout.inputs / "weights").mkdir()
    with pytest.raises(Misused, match="inputs: 'weights' is missing, convert needs it"):
        work.input("weights")


def test_an_input_that_is_listed_but_not_there_is_misuse(work: Work) -> None:
    with pytest.raises(Misused, match="in/gone: no such file or folder"):
        work.input("gone")


def test_an_output_lies_directly_under_out(work: Work) -> None:
    work.output("artifact").touch()
    assert [path.name for path in work.layout.outputs.iterdir()] == ["artifact"]


@pytest.mark.parametrize("name", ["", ".", "..", "../in/model", "a/b", "/etc/passwd", "a\0b"])
def test_an_output_elsewhere_is_an_error(work: Work, name: str) -> None:
    with pytest.raises(ValueError, match="is not a plain file name"):
        work.output(name)


def test_options_are_decoded(work: Work) -> None:
    assert work.options(Options) == Options(precision="fp16")


def test_an_unknown_option_is_misuse(work: Work) -> None:
    job = Job(step=Step.CONVERT, runtime="probe", inputs=(), options={"precision": "fp16", "opsett": 18})
    with pytest.raises(Misused, match="job.json: options: unknown key 'opsett'; did you mean 'opset'"):
        Work(work.layout, job).options(Options)


def test_progress_is_one_line_each(work: Work) -> None:
    work.progress("reading\nthe model")
    work.progress("größer", 0.5)
    lines = work.layout.events.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"text": "reading\nthe model", "fraction": None},
        {"text": "größer", "fraction": 0.5},
    ]


def test_refuse_and_fail_raise_by_themselves() -> None:
    with pytest.raises(Refused) as refused:
        refuse(Kind.OPTION, "no GPU here", hint="use a CPU")
    assert refused.value.failure == Failure(kind=Kind.OPTION, message="no GPU here", hint="use a CPU")
    with pytest.raises(Failed, match="no rule") as failed:
        fail(Kind.UNSUPPORTED_OP, "no rule", op="Det", node="/Det")
    assert failed.value.failure == Failure(kind=Kind.UNSUPPORTED_OP, message="no rule", op="Det", node="/Det")
