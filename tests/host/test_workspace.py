"""The host believes a job only where everything fits, and is not harmed by what a job leaves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from aipc import workspace
from aipc.engines import Ended, Limits
from aipc.workspace import Believed
from runtimes import contract
from runtimes.contract import Failure, Job, Kind, Layout, Result, Status, Step

LIMITS = Limits(seconds=5.0, memory_bytes=1 << 30)
JOB = Job(step=Step.RUN, runtime="openvino", inputs=(), options={})
DONE = Result(status=Status.DONE, outputs=("outputs",), facts={"device": "CPU"})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A workspace as a good job leaves it."""
    made = workspace.lay(tmp_path / "attempt", JOB, {})
    (made.outputs / "outputs").mkdir()
    (made.outputs / "outputs" / "0.npy").write_bytes(b"numbers")
    made.log.write_text("first\nlast words\n")
    contract.write(DONE, made.result)
    return made


def believe(layout: Layout, code: int = 0, *, timed_out: bool = False, out_of_memory: bool = False) -> Believed:
    ended = Ended(code=code, seconds=1.0, out_of_memory=out_of_memory, timed_out=timed_out, uncaged=())
    return workspace.believe(layout, JOB, ended, LIMITS, ("outputs",))


def test_a_job_that_fits_in_everything_is_believed(layout: Layout) -> None:
    found = believe(layout)
    assert found.result == DONE
    assert [file.path for file in found.files] == ["outputs/0.npy"]
    assert found.log_tail == "first\nlast words"


def no_result(layout: Layout) -> None:
    layout.result.unlink()


def result_is_a_pipe(layout: Layout) -> None:
    layout.result.unlink()
    os.mkfifo(layout.result)


def result_is_a_link(layout: Layout) -> None:
    layout.result.rename(layout.root / "elsewhere")
    layout.result.symlink_to(layout.root / "elsewhere")


def result_has_nan(layout: Layout) -> None:
    layout.result.write_text(layout.result.read_text().replace('"CPU"', "NaN"))


def result_has_half_a_character(layout: Layout) -> None:
    layout.result.write_text(layout.result.read_text().replace('"CPU"', '"\\ud800"'))


def result_nests_deep(layout: Layout) -> None:
    layout.result.write_text(layout.result.read_text().replace('"CPU"', "[" * 100_000 + "]" * 100_000))


def result_of_another_schema(layout: Layout) -> None:
    layout.result.write_text(layout.result.read_text().replace('"schema":1', '"schema":2'))


def outputs_are_gone(layout: Layout) -> None:
    shutil.rmtree(layout.outputs)


def outputs_are_a_file(layout: Layout) -> None:
    shutil.rmtree(layout.outputs)
    layout.outputs.write_text("")


def outputs_are_a_link(layout: Layout) -> None:
    shutil.rmtree(layout.outputs)
    layout.outputs.symlink_to("/etc")


def an_output_is_a_link(layout: Layout) -> None:
    (layout.outputs / "outputs" / "0.npy").unlink()
    (layout.outputs / "outputs" / "0.npy").symlink_to("/etc/hostname")


def an_output_is_empty(layout: Layout) -> None:
    (layout.outputs / "outputs" / "0.npy").unlink()


def an_output_more(layout: Layout) -> None:
    (layout.outputs / "more").touch()


def facts_are_missing(layout: Layout) -> None:
    contract.write(Result(status=Status.DONE, outputs=("outputs",)), layout.result)


def facts_are_strange(layout: Layout) -> None:
    strange = Result(status=Status.DONE, outputs=("outputs",), facts={"device": "CPU", "placment": []})
    contract.write(strange, layout.result)


@pytest.mark.parametrize(
    "spoil",
    [
        no_result,
        result_is_a_pipe,
        result_is_a_link,
        result_has_nan,
        result_has_half_a_character,
        result_nests_deep,
        result_of_another_schema,
        outputs_are_gone,
        outputs_are_a_file,
        outputs_are_a_link,
        an_output_is_a_link,
        an_output_is_empty,
        an_output_more,
        facts_are_missing,
        facts_are_strange,
    ],
)
def test_a_job_with_one_thing_wrong_has_crashed_and_keeps_its_last_words(
    layout: Layout, spoil: Callable[[Layout], None]
) -> None:
    spoil(layout)
    found = believe(layout)
    assert found.result.status is Status.CRASHED
    assert found.files == ()
    assert found.result.failure is not None
    assert found.result.failure.message.endswith("last words")


@pytest.mark.parametrize(
    ("code", "status"), [(1, Status.DONE), (20, Status.DONE), (0, Status.FAILED), (139, Status.DONE)]
)
def test_an_exit_code_that_contradicts_the_result_is_a_crash(layout: Layout, code: int, status: Status) -> None:
    failure = None if status is Status.DONE else Failure(kind=Kind.TOOLCHAIN, message="no")
    contract.write(Result(status=status, failure=failure, outputs=("outputs",), facts=DONE.facts), layout.result)
    assert believe(layout, code).result.status is Status.CRASHED


def test_a_refusal_is_believed_whatever_lies_in_its_outputs(layout: Layout) -> None:
    refusal = Result(status=Status.REFUSED, failure=Failure(kind=Kind.UNSUPPORTED_OP, message="no such operator"))
    contract.write(refusal, layout.result)
    found = believe(layout, 20)
    assert found.result == refusal
    assert found.files == ()


def test_a_job_that_ran_too_long_or_needed_too_much_says_so(layout: Layout) -> None:
    slow, large = believe(layout, 137, timed_out=True).result, believe(layout, 137, out_of_memory=True).result
    assert slow.failure is not None
    assert (slow.failure.kind, "within 5 s" in slow.failure.message) == (Kind.TIMEOUT, True)
    assert large.failure is not None
    assert (large.failure.kind, "1.0 GiB" in large.failure.message) == (Kind.MEMORY, True)


@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: Path(path).symlink_to("/etc/hostname"), lambda _: None])
def test_a_log_that_became_something_else_is_empty(layout: Layout, replace: Callable[[Path], None]) -> None:
    layout.log.unlink()
    replace(layout.log)
    found = believe(layout)
    assert found.result == DONE
    assert found.log == b""


def test_only_the_end_of_a_long_log_is_kept(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "LOG_BYTES", 11)
    assert believe(layout).log == b"last words\n"


def test_the_last_event_is_told_once(layout: Layout) -> None:
    told: list[tuple[str, float | None]] = []
    events = workspace.Events(layout, lambda text, fraction: told.append((text, fraction)))
    events.poll()
    layout.events.write_text('{"text": "one"}\n{"text": "two", "fraction": 0.5}\n{"text": "thr')
    events.poll()
    events.poll()
    assert told == [("two", 0.5)]


@pytest.mark.parametrize(
    "line",
    ["{}", "[]", "5", "{", '{"text": 5}', '{"text": "a", "fraction": 1e999}', '{"text": "a", "more": 1}', "[" * 9999],
)
def test_a_line_that_is_no_event_is_passed_over(layout: Layout, line: str) -> None:
    layout.events.write_text(f"{line}\n")
    workspace.Events(layout, lambda *_: pytest.fail("told")).poll()


def test_events_that_became_a_pipe_do_not_hold_the_host(layout: Layout) -> None:
    layout.events.unlink()
    os.mkfifo(layout.events)
    workspace.Events(layout, lambda *_: pytest.fail("told")).poll()
