"""What deviations are found in, gathered from a session: its jobs, the deployments before and behind it, the files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aipc import home, pipeline, repairs
from aipc.agent.deviations import Act, Evidence, Used
from aipc.cell import Cell
from aipc.deployment import Deployment
from aipc.fetch import hash_file
from aipc.jobs import StepRun
from aipc.repairs import Rule, Symptom, symptom_of
from aipc.runtime import find
from aipc.store import Material
from runtimes.contract import Json, Step, Verdict, decode

OWN_CODE = frozenset({Step.PATCH, Step.EXPORT})
"""The steps in which code of an agent's may run: its patch of the graph, and the source that it changed."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A session that is over.

    Attributes:
        cell: what was worked on.
        drives: the agent had to export too.
        skills: there were skills to read.
        facts: what the agent's job says of itself.
        ended: why it was over.
        claim: what was claimed when it submitted, "" where it did not.
        jobs: what the host did for it, in order.
        changed: the folders that were others afterwards.
    """

    cell: Cell
    drives: bool
    skills: bool
    facts: Mapping[str, Json]
    ended: str
    claim: str
    jobs: Sequence[StepRun]
    changed: Sequence[str]


def watch(source: Material | None) -> Mapping[str, str]:
    """Return a digest of each folder of the host's that no session may change: aipc's own, and the model's source."""
    folders = {"runtimes": home.runtimes_folder(), "images": home.images_folder(), "skills": home.skills_folder()}
    found = {name: digest_of(folder) for name, folder in folders.items()}
    return {**found, "the model's source": source.digest} if source else found


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the folders that are not what they were."""
    return tuple(name for name, digest in before.items() if after.get(name) != digest)


def gather(visit: Visit, first: Deployment | None, built: Deployment | None) -> Evidence:
    """Return the evidence of a session.

    Args:
        visit: the session.
        first: what the rules had come to before it; None where none was used.
        built: what came of the candidate, built anew; None where there was nothing to build.

    Raises:
        Misused: the agent's own trace is none.
    """
    judged = built.facts(Step.JUDGE) if built is not None else {}
    begun = _begun(first, visit.jobs)
    before, after = (each.runs if each is not None else () for each in (first, built))
    runs = (*before, *visit.jobs, *after)
    return Evidence(
        trace=tuple(decode(Act, each, "trace") for each in visit.facts.get("trace", ())),
        drives=visit.drives,
        skills=visit.skills,
        ended=visit.ended,
        claim=visit.claim,
        verdict=built.verdict if built is not None else None,
        broken_gates=tuple(gate["name"] for gate in judged.get("gates", ()) if not gate["passed"]),
        ran_elsewhere=judged.get("verdict") == Verdict.AGREES and built is not None and not built,
        begun=begun,
        rules=_rules(visit.cell, begun),
        tried=tuple(each.rewrite for each in (first.repairs if first is not None else ()) if each.symptom),
        versions=tuple(
            Used(environment=run.runtime, package=package, version=version)
            for run in runs
            for package, version in run.result.versions.items()
        ),
        changed=visit.changed,
        refusals=tuple(
            run.result.failure.message for run in visit.jobs if run.step in OWN_CODE and run.result.failure is not None
        ),
    )


def _begun(first: Deployment | None, jobs: Sequence[StepRun]) -> Symptom | None:
    """Return what was wrong when the session began, else the first thing that went wrong in it."""
    if first is not None:
        if first.stop is not None:
            return symptom_of(first.stop.step, first.stop.failure)
        return Symptom(step=Step.JUDGE, kind=None) if first.verdict is Verdict.DISAGREES else None
    for run in jobs:
        if run.result.failure is not None:
            return symptom_of(run.step, run.result.failure)
        if run.step is Step.JUDGE and run.result.facts["verdict"] == Verdict.DISAGREES:
            return Symptom(step=Step.JUDGE, kind=None)
    return None


def _rules(cell: Cell, begun: Symptom | None) -> tuple[Rule, ...]:
    """Return the lines that are for what was wrong: the reference's before there is an ONNX model."""
    if begun is None:
        return ()
    early = begun.step in {Step.PREPARE, Step.EXPORT}
    return repairs.load(find(pipeline.REFERENCE if early else cell.runtime)).repairs


def digest_of(folder: Path) -> str:
    """Return the sha256 over the names and contents of all files below `folder` but Python's own caches.

    That of a folder which is not there is that of one without files.
    """
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(folder)}\0{hash_file(path)}\n".encode(errors="surrogateescape"))
    return found.hexdigest()
