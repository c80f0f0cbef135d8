"""A rewrite that is asked for: who does it, what it is given, who checks it, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from aipc import runtime
from aipc.engines import Identity
from aipc.jobs import Session, StepRun
from aipc.mending import Walk
from aipc.repairs import Wish
from aipc.runtime import Runtime
from aipc.store import Entry, Material, Record, StoredFile
from runtimes.contract import Failure, Json, Kind, Result, Status, Step

NOTHING = Material(files=(), places={})
GIVEN = dict.fromkeys(("model", "samples", "golden", "calibration"), NOTHING)
IDENTITY = Identity(engine="venv", environment="", digest="", interpreter="", base_image="")


@dataclass
class Steps:
    """A session whose steps take no time: each is done, or fails where `failing` says so.

    Attributes:
        failing: a step that fails.
        done: by step what it was given: runtime, inputs, options.
    """

    failing: Step | None = None
    done: list[tuple[Step, str, list[str], Json]] = field(default_factory=list)

    def step(
        self,
        step: Step,
        runtime: Runtime,
        inputs: Mapping[str, Material],
        options: Mapping[str, Json],
        _needed: tuple[str, ...],
    ) -> StepRun:
        self.done.append((step, runtime.name, sorted(inputs), options))
        result = Result(status=Status.DONE, facts={"changed": {"join": ["/a"], "quantize": ["/b"]}})
        if step is self.failing:
            result = Result(status=Status.FAILED, failure=Failure(kind=Kind.REWRITE, message="its own words"))
        files = tuple(StoredFile(path=f"{name}/a", sha256="", size_bytes=0) for name in ("model", "cpu"))
        entry = Entry(key="", folder=Path(), record=Record(parts={}, result=result, files=files, uncaged=()))
        return StepRun(
            step=step,
            runtime=runtime.name,
            key="",
            cached=False,
            result=result,
            identity=IDENTITY,
            uncaged=(),
            entry=entry if step is not self.failing else None,
            log=b"",
        )


def granted(checkout: Path, steps: Steps, rewrite: str, doer: str) -> Walk:
    assert checkout.exists()
    walk = Walk(cast("Session", steps))
    reference = replace(runtime.find("reference"), steps=(Step.REWRITE,), rewrites=("join",))
    alpha = replace(
        runtime.find("alpha"),
        steps=(Step.CONVERT, Step.RUN, Step.PATCH),
        rewrites=("join", "quantize"),
        quantizers=("quantize",),
    )
    wish = Wish(rewrite=rewrite, runtime=reference if doer == "reference" else alpha)
    walk.grant(reference, GIVEN, wish, "int8")
    return walk


def test_a_rewrite_of_the_references_own_is_one_step(checkout: Path) -> None:
    steps = Steps()
    walk = granted(checkout, steps, "join", "reference")
    assert steps.done == [
        (Step.REWRITE, "reference", sorted(GIVEN), {"rewrites": [{"name": "join", "options": {}}]}),
    ]
    (told,) = walk.repairs
    assert (told.rewrite, told.asked, told.status, told.changed) == ("join", True, Status.DONE, ("/a",))


@pytest.mark.parametrize(("rewrite", "precision"), [("join", "fp32"), ("quantize", "int8")])
def test_a_rewrite_of_another_is_checked_by_the_reference_in_the_precision_that_it_may_have(
    checkout: Path, rewrite: str, precision: str
) -> None:
    steps = Steps()
    walk = granted(checkout, steps, rewrite, "alpha")
    wanted = [{"name": rewrite, "options": {}}]
    assert steps.done == [
        (Step.PATCH, "alpha", ["calibration", "model"], {"rewrites": wanted, "precision": "int8"}),
        (Step.REWRITE, "reference", sorted([*GIVEN, "made"]), {"rewrites": wanted, "precision": precision}),
    ]
    assert [(each.rewrite, each.asked, each.status) for each in walk.repairs] == [(rewrite, True, Status.DONE)]


@pytest.mark.parametrize(("failing", "count"), [(Step.PATCH, 1), (Step.REWRITE, 2)])
def test_one_that_is_not_done_or_does_not_hold_is_remembered_with_its_words(
    checkout: Path, failing: Step, count: int
) -> None:
    steps = Steps(failing=failing)
    walk = granted(checkout, steps, "join", "alpha")
    assert len(steps.done) == count
    (told,) = walk.repairs
    assert (told.status, told.changed, told.problem) == (Status.FAILED, (), "its own words")
