"""A build whose graph optimiser gets nowhere is ended, and only that one."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from runtimes.rknn import adapter, watch

RULE = "D     convert_reshape_to_transpose: remove node = ['a'], add node = ['b']"
WARNING = [
    "W build: onnx.checker.check_model fail: Nodes in a graph must be topologically sorted",
    "name: and2 OpType: And",
]
SPIN = "while True: pass"


def watched(said: str, then: str, *, quiet_seconds: float, wait_seconds: float, first: str = "") -> bool:
    """Return whether the watch ends a process that does something first, says something and does something then."""
    argv = (sys.executable, "-c", f"{first}\nprint({said!r}, flush=True)\n{then}")
    lines: list[str] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            with watch.Watch(process, lines, quiet_seconds=quiet_seconds) as looking:
                assert process.stdout is not None
                lines.append(process.stdout.readline().decode().strip())
                end = time.monotonic() + wait_seconds
                while process.poll() is None and time.monotonic() < end:
                    time.sleep(0.05)
            ended = process.poll() is not None
        finally:
            process.kill()
    assert looking.stalled == ("convert_reshape_to_transpose" if ended else "")
    return ended


def test_an_optimiser_that_calculates_and_says_nothing_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.05)
    assert watched(RULE, SPIN, quiet_seconds=0.2, wait_seconds=30.0)


def test_an_optimiser_that_was_slow_all_along_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(watch, "PATIENCE", 1e9)
    assert not watched(RULE, SPIN, quiet_seconds=0.2, wait_seconds=2.0, first="sum(range(10**7))")


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([RULE], "convert_reshape_to_transpose"),
        ([RULE, *WARNING], "convert_reshape_to_transpose"),
        ([RULE, "D fuse_ops done."], ""),
        ([RULE, *WARNING, "I rknn building ..."], ""),
        (WARNING, ""),
        ([], ""),
    ],
)
def test_the_last_rule_is_known_through_warnings_and_only_while_the_optimiser_works(
    lines: list[str], rule: str
) -> None:
    assert watch.last_rule(lines) == rule


def test_rules_that_search_are_disabled_first_and_come_back_where_they_were_not_at_fault() -> None:
    searching = dict.fromkeys(watch.SEARCHING, "did not end")
    first = adapter._endless({"crashed": "failed"}, "one", "")
    assert first == {"crashed": "failed", **searching}
    assert adapter._endless(first, "one", "one") == {"crashed": "failed", "one": "did not end"}
    assert adapter._endless(first, "other", "one") == {**first, "other": "did not end"}


@pytest.mark.parametrize(
    ("said", "then", "quiet_seconds"),
    [
        pytest.param("I rknn building ...", SPIN, 0.2, id="it is past its optimiser"),
        pytest.param(RULE, "import time; time.sleep(60)", 0.2, id="the machine is busy with something else"),
        pytest.param(RULE, SPIN, 1e9, id="its rules are disabled already"),
    ],
)
def test_another_build_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, said: str, then: str, quiet_seconds: float
) -> None:
    monkeypatch.setattr(watch, "INTERVAL_SECONDS", 0.05)
    assert not watched(said, then, quiet_seconds=quiet_seconds, wait_seconds=2.0)


def test_the_time_that_a_process_calculated_is_that_of_the_system() -> None:
    before = watch.cpu_seconds(os.getpid())
    assert before == pytest.approx(time.process_time(), abs=0.5)
    assert watch.cpu_seconds(2**22 + 1) == 0.0
