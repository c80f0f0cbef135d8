"""The search for the first bad node: how often it looks, and what it says when it may look no further.

A model here is a chain of nodes, one of which is bad; a cut, a run and a comparison take no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aipc import bisection
from aipc.bisection import Bisection
from aipc.engines import Identity
from aipc.jobs import Session, StepRun
from aipc.model import Tolerance
from aipc.runtime import Runtime
from aipc.store import Entry, Material, Record, StoredFile
from runtimes.contract import Json, Result, Status, Step

FILES = (StoredFile(path="a", sha256="", size_bytes=0),)
NOWHERE = Material(files=(), places={})
POINTS = 32


@dataclass
class Chain:
    """A model of `total` nodes; every answer behind node `bad` is bad, that of a tail only with enough before it.

    Attributes:
        total: how many nodes it has.
        bad: the first bad one.
        needs: so many nodes it takes before the bad one shows.
        broken: prefixes of these sizes cannot be converted.
        limits: the seconds that each run was given.
    """

    total: int
    bad: int
    needs: int = 1
    broken: frozenset[int] = frozenset()
    limits: list[float] = field(default_factory=list)
    _nodes: range = range(0)
    _is_prefix: bool = True
    _shown: list[int] = field(default_factory=list)

    def step(
        self, step: Step, _reference: Runtime, _inputs: Mapping[str, Material], told: Mapping[str, Json]
    ) -> StepRun:
        if told["task"] == "compare":
            return ran(step, {"measures": [self._measure(at) for at in self._shown]})
        end = told.get("end", self.total)
        self._is_prefix = told["task"] != "tail"
        self._nodes = range(0 if self._is_prefix else max(0, end - told["count"]), end)
        self._shown[:] = sorted({end - 1, *(range(0, end, -(-end // POINTS)) if told["task"] == "curve" else ())})
        ports = [{"name": f"t{at}", "shape": [1], "dtype": "float32"} for at in self._shown]
        outputs = [
            {**port, "index": at, "final": at == self.total - 1} for port, at in zip(ports, self._shown, strict=True)
        ]
        nodes = [{"node": f"n{at}", "op": "Relu"} for at in self._nodes]
        return ran(step, {"total": self.total, "nodes": nodes, "inputs": [], "outputs": outputs})

    def build(self, model: Material, samples: Material, ports: Mapping[str, Json], seconds: float) -> Material | None:
        assert (model.files, samples.files, len(ports["outputs"])) == (FILES, FILES, len(self._shown))
        self.limits.append(seconds)
        return None if self._is_prefix and len(self._nodes) in self.broken else NOWHERE

    def _measure(self, at: int) -> Json:
        is_bad = at >= self.bad and (self._is_prefix or (self.bad in self._nodes and len(self._nodes) >= self.needs))
        ratio = 3.0 if is_bad else 99.0
        return {"output": f"t{at}", "cosine": 1.0, "snr_db": ratio, "max_abs": 0.0}

    def search(self, seconds: float = bisection.MOST_SECONDS) -> Bisection:
        session, reference = cast("Session", self), cast("Runtime", None)
        limit = Tolerance(cosine=0.999, snr_db=30.0)
        found = bisection.bisect(session, reference, NOWHERE, NOWHERE, "photo", limit, self.build, seconds)
        assert found.bisection.runs == len(self.limits)
        return found.bisection


def ran(step: Step, facts: Mapping[str, Json]) -> StepRun:
    files = tuple(StoredFile(path=f"{name}/a", sha256="", size_bytes=0) for name in ("model", "samples", "golden"))
    result = Result(status=Status.DONE, facts=facts)
    entry = Entry(key="", folder=Path(), record=Record(parts={}, result=result, files=files, uncaged=()))
    return StepRun(
        step=step,
        runtime="reference",
        key="",
        cached=False,
        result=result,
        identity=Identity(engine="venv", environment="", digest="", interpreter="", base_image=""),
        uncaged=(),
        entry=entry,
        log=b"",
    )


@settings(deadline=None)
@given(st.integers(1, 2000), st.data())
def test_one_bad_node_is_found_in_about_log2_of_the_nodes(total: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, total - 1))
    found = Chain(total, bad).search()
    assert (found.index, found.nearest) == (bad, bad)
    assert [each.node for each in found.piece] == [f"n{bad}"]
    assert found.runs <= math.ceil(math.log2(total)) + 2 <= bisection.bound(total)
    assert found.notes == ()


@settings(deadline=None)
@given(st.integers(2, 2000), st.data())
def test_no_search_looks_more_often_than_its_bound_and_each_gives_a_place_that_is_true(
    total: int, data: st.DataObject
) -> None:
    bad = data.draw(st.integers(0, total - 1))
    gap = data.draw(st.integers(1, 20))
    broken = frozenset(end for end in range(1, total) if end % gap)
    found = Chain(total, bad, needs=data.draw(st.integers(1, bad + 1)), broken=broken).search()
    assert found.runs <= bisection.bound(total) <= 2 * math.ceil(math.log2(total)) + bisection.SPARE_LOOKS
    assert found.nearest <= bad <= found.index
    assert found.first is not None


def test_a_search_that_used_up_its_looks_says_between_which_nodes_the_error_comes() -> None:
    chain = Chain(4096, 5, broken=frozenset(range(4096)) - {2051, 1028, 517, 261, 133, 69})
    found = chain.search()
    assert found.runs == bisection.bound(4096) == 32
    (note,) = found.notes
    assert "the search ended early: 32 pieces were built and run" in note
    assert f"the first bad node lies between node {found.nearest} and node {found.index + 1}" in note
    assert (found.nearest, found.index + 1) == (0, 133)


def test_a_search_that_used_up_its_looks_keeps_the_smallest_piece_so_far() -> None:
    found = Chain(1000, 999, needs=700).search()
    assert found.runs == bisection.bound(1000)
    assert 700 <= len(found.piece) < 1000
    assert "a smaller piece than this may fail too" in found.notes[0]


def test_a_search_whose_time_is_over_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(1024, 700)
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    found = chain.search(seconds=550.0)
    assert chain.limits == [450.0, 350.0, 250.0, 150.0, 50.0]
    (note,) = found.notes
    assert "its time was over" in note
    assert found.nearest <= 700 <= found.index < 1023
    assert found.first is not None
