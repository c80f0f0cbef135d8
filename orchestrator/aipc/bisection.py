"""Where a runtime goes wrong: the first node whose answer is bad, and the smallest piece of the graph that shows it.

Each look converts and runs a piece of the ONNX model on the runtime itself and compares it with ONNX Runtime. The first
bad node is the one with which the pieces from the inputs turn from good to bad, found by halving; the smallest failing
piece is that node with as few of those before it as it takes, found by doubling and halving. A search ends after about
2·log2(N) looks, or when its time is over, with what was found until then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aipc.facts import BisectFacts, BisectMeasure, NodeName
from aipc.jobs import Session, StepRun
from aipc.model import Tolerance
from aipc.runtime import Runtime
from aipc.store import Material
from runtimes.contract import Json, Step, decode

NEIGHBOURS = 3
"""So many cuts beside one that cannot be built are tried."""

SPARE_LOOKS = 8
"""So many looks a search may take beyond 2·log2 of the number of nodes."""

MOST_SECONDS = 1800.0
"""So long a search may take; the piece that is then being built is given up."""


class Build(Protocol):
    """Converts a piece for the runtime and runs it there."""

    def __call__(
        self, model: Material, samples: Material, ports: Mapping[str, Json], seconds: float
    ) -> Material | None:
        """Return what the piece gave, a sample set; None where it could not be converted or run in so many seconds."""


class _Spent(Exception):
    """The search may go no further: why, in words."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """How good the answer is at one tensor inside the model.

    Attributes:
        index: of the node that gives it, among those that depend on an input, in topological order.
        output: the tensor's name.
        cosine: its cosine similarity with ONNX Runtime's, or null.
        snr_db: its SNR in dB, or null.
    """

    index: int
    output: str
    cosine: float | None
    snr_db: float | None


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """Where a runtime goes wrong. It is true when the first bad node was found.

    Attributes:
        sample: the sample that was fed.
        total: how many nodes there are that depend on an input.
        runs: how many pieces were converted and run.
        first: the first bad node, or null.
        index: its place among them, from 0; −1 where it was not found.
        nearest: how many nodes the last good piece has; with `index` it says between which two the error comes.
        curve: how good the answer is along the model.
        piece: the nodes of the smallest failing piece, () where none fails by itself.
        notes: for people.
    """

    sample: str
    total: int
    runs: int
    first: NodeName | None = None
    index: int = -1
    nearest: int = 0
    curve: tuple[CurvePoint, ...] = ()
    piece: tuple[NodeName, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.first is not None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A bisection, and the files of the smallest failing piece: model, samples, golden and the runtime's outputs."""

    bisection: Bisection
    files: Mapping[str, Material] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A piece of the model, and its files: model, samples and golden."""

    facts: BisectFacts
    files: Mapping[str, Material]


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One piece, and how the runtime's answer to it compares; `measures` is () where there is nothing to compare."""

    facts: BisectFacts
    measures: tuple[BisectMeasure, ...]
    files: Mapping[str, Material]


@dataclass
class _Search:
    """One search; it remembers how often it looked, and what it found.

    Attributes:
        most: so often it may look.
        until: when its time is over, by the monotonic clock.
        runs: so often it looked.
        good: the size of the largest good prefix so far.
        bad: the size of the smallest bad one so far.
        piece: the smallest failing piece so far.
    """

    session: Session
    reference: Runtime
    model: Material
    samples: Material
    sample: str
    tolerance: Tolerance
    build: Build
    until: float
    most: int = 1
    runs: int = 0
    good: int = 0
    bad: int = 0
    piece: _Look | None = None

    def cut(self, task: str, **options: int) -> _Piece | None:
        """Return a piece of the model; None where ONNX Runtime cannot make it."""
        told = {"task": task, "sample": self.sample, **options}
        run = self._step({"model": self.model, "samples": self.samples}, told)
        if not run or run.entry is None:
            return None
        facts = _facts(run)
        names = ("model", "samples", "golden") if facts.outputs else ()
        return _Piece(facts=facts, files={name: run.entry.output(name) for name in names})

    def look(self, task: str, **options: int) -> _Look | None:
        """Return what the runtime makes of a piece; None where the piece cannot be made, converted or run.

        Raises:
            _Spent: there is no look left, or no time.
        """
        if self.runs >= self.most:
            raise _Spent(f"{self.most} pieces were built and run")
        left = self.until - time.monotonic()
        if left <= 0:
            raise _Spent("its time was over")
        piece = self.cut(task, **options)
        if piece is None:
            return None
        facts, files = piece.facts, piece.files
        if not facts.outputs:
            return _Look(facts=facts, measures=(), files={})
        self.runs += 1
        ports = {
            side: [{"name": each.name, "shape": list(each.shape), "dtype": each.dtype} for each in ports]
            for side, ports in (("inputs", facts.inputs), ("outputs", facts.outputs))
        }
        outputs = self.build(files["model"], files["samples"], ports, left)
        if outputs is None:
            return None
        compared = self._step(
            {"golden": files["golden"], "outputs": outputs}, {"task": "compare", "sample": self.sample}
        )
        if not compared:
            return None
        return _Look(facts=facts, measures=_facts(compared).measures, files={**files, "outputs": outputs})

    def _step(self, inputs: Mapping[str, Material], options: Mapping[str, Json]) -> StepRun:
        return self.session.step(Step.BISECT, self.reference, inputs, options)

    def is_bad(self, measures: Sequence[BisectMeasure]) -> bool:
        """Return whether one of the tensors is too far from ONNX Runtime's."""
        return any(
            each.cosine is None
            or each.snr_db is None
            or each.cosine < self.tolerance.cosine
            or each.snr_db < self.tolerance.snr_db
            for each in measures
        )


def bisect(
    session: Session,
    reference: Runtime,
    model: Material,
    samples: Material,
    sample: str,
    tolerance: Tolerance,
    build: Build,
    seconds: float = MOST_SECONDS,
) -> Found:
    """Find where a runtime, whose answer to the whole model is bad, goes wrong.

    Args:
        session: the engine, the store and who is told.
        reference: the reference runtime, which cuts and compares.
        model: the ONNX model as it was last converted.
        samples: what it was run on.
        sample: the one of them that shows the error.
        tolerance: below it an answer is bad.
        build: converts and runs a piece on the runtime.
        seconds: it ends after so long, with what was found until then.

    Raises:
        AipcError: an engine, disk or network failed.
    """
    search = _Search(session, reference, model, samples, sample, tolerance, build, time.monotonic() + seconds)
    along = search.look("curve")
    if along is None:
        why = "the model with tensors inside as outputs could not be run there"
        return Found(bisection=Bisection(sample=sample, total=0, runs=search.runs, notes=(why,)))
    notes = []
    final = {each.name for each in along.facts.outputs if each.final}
    if not search.is_bad([each for each in along.measures if each.output in final]):
        notes.append("with tensors inside as outputs the last answers are right: look for a fusion of nodes")
    search.bad = along.facts.total
    search.most = bound(search.bad)
    notes += _narrow(search)
    last = search.cut("tail", end=search.bad, count=1)
    made = Bisection(
        sample=sample,
        total=along.facts.total,
        runs=search.runs,
        first=last.facts.nodes[-1] if last else None,
        index=search.bad - 1,
        nearest=search.good,
        curve=_curve(along),
        piece=search.piece.facts.nodes if search.piece else (),
        notes=tuple(notes),
    )
    return Found(bisection=made, files=search.piece.files if search.piece else {})


def _narrow(search: _Search) -> list[str]:
    """Find the first bad node and the smallest failing piece, as far as the search may go; return notes."""
    notes = []
    try:
        _halve(search)
        if search.bad - search.good > 1:
            notes.append(f"no cut between node {search.good} and node {search.bad} could be run there")
        _shrink(search)
        if search.piece is None:
            notes.append("no piece with its true inputs fails by itself: the error grows")
    except _Spent as spent:
        where = f"the first bad node lies between node {search.good} and node {search.bad}"
        smaller = (
            "a smaller piece than this may fail too" if search.piece else "no piece was found that fails by itself"
        )
        notes.append(f"the search ended early: {spent}; {where if search.bad - search.good > 1 else smaller}")
    return notes


def bound(total: int) -> int:
    """Return how many pieces of a model of `total` nodes a search may build and run: about 2·log2 of that."""
    return 2 * max(total - 1, 1).bit_length() + SPARE_LOOKS


def _halve(search: _Search) -> None:
    """Bring a good and a bad prefix as near to each other as they come: at first nothing is good and all is bad."""
    while search.bad - search.good > 1:
        middle = (search.good + search.bad) // 2
        near = (middle + step * side for step in range(NEIGHBOURS + 1) for side in (1, -1))
        for end in dict.fromkeys(each for each in near if search.good < each < search.bad):
            look = search.look("prefix", end=end)
            if look is not None:
                if search.is_bad(look.measures):
                    search.bad = end
                else:
                    search.good = end
                break
        else:
            break


def _shrink(search: _Search) -> None:
    """Find the smallest tail of the bad prefix that is bad with its true inputs."""
    count, smaller = 1, 0
    while True:
        look = search.look("tail", end=search.bad, count=count)
        if look is not None and search.is_bad(look.measures):
            search.piece = look
            break
        # No more nodes than the last one depends on.
        if count > search.bad or (look is not None and len(look.facts.nodes) < count):
            return
        smaller, count = count, count * 2
    larger = count
    while larger - smaller > 1:
        middle = (smaller + larger) // 2
        look = search.look("tail", end=search.bad, count=middle)
        if look is not None and search.is_bad(look.measures):
            larger, search.piece = middle, look
        else:
            smaller = middle


def _curve(look: _Look) -> tuple[CurvePoint, ...]:
    places = {each.name: each.index for each in look.facts.outputs}
    points = [
        CurvePoint(index=places[each.output], output=each.output, cosine=each.cosine, snr_db=each.snr_db)
        for each in look.measures
    ]
    return tuple(sorted(points, key=lambda point: point.index))


def _facts(run: StepRun) -> BisectFacts:
    return decode(BisectFacts, run.result.facts, "facts of bisect")
