"""What an agent may have done: its verbs, each an ordinary job of the host's, and what it is told of them.

A candidate is edits alone. Every verb takes them from the beginning, which is quick: whatever was done before is in the
store. No verb gives away what the golden outputs are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aipc import materials, pipeline
from aipc.agent.candidate import Candidate, Edit, Opset, Replacement, patched, text_of
from aipc.building import Build
from aipc.cell import Cell
from aipc.config import Matrix
from aipc.exporting import Patched
from aipc.jobs import Session, StepRun
from aipc.mending import Stopped, reached
from aipc.model import Model
from aipc.pipeline import Course
from aipc.repairs import Wish
from aipc.runtime import find
from aipc.store import Material
from runtimes.contract import Json, Misused, Status, Verdict, suggest

MOST_NODES = 12
"""So many nodes are shown at once."""
PATCH = "patch_graph"
"""What the agent's own code is called where rewrites are named."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all attempts of a session share; see `pipeline.start`.

    `seed` is that of the inputs which the agent and its code may see; the judge's is the matrix's own by then.
    """

    session: Session
    matrix: Matrix
    cell: Cell
    model: Model
    runs: Path
    own: Mapping[str, Material]
    seed: int
    scratch: Path

    def start(self, candidate: Candidate) -> Course:
        """Take the cell to its ONNX model, as `candidate` has it.

        Raises:
            Misused: its changes of the source cannot be made.
            AipcError: see `pipeline.start`.
        """
        model = replace(self.model, opset=candidate.opset or self.model.opset)
        source = self.source
        made = patched(source, candidate.replacements, self.scratch) if source and candidate.replacements else None
        return pipeline.start(
            self.session,
            self.matrix,
            self.cell,
            model,
            self.runs,
            own=self.own,
            wishes=candidate.wishes,
            patched=Patched(source=made, seed=self.seed) if made else None,
        )

    @property
    def source(self) -> Material | None:
        """The model's PyTorch source, where it has one of its own."""
        return materials.of_source_folder(self.model, self.runs)


@dataclass
class Workbench:
    """Answers the agent's verbs; one session, one cell.

    Attributes:
        bench: what it works on.
        candidate: the edits as they are now.
        problem: what is wrong, as it was last seen.
        exported: the agent has asked for the export, or need not.
        claim: what it said when it submitted, "" before.
        summary: its own words then.
    """

    bench: Bench
    candidate: Candidate
    problem: str
    exported: bool
    claim: str = ""
    summary: str = ""
    _verbs: Mapping[str, Callable[..., tuple[bool, str]]] = field(init=False)

    def __post_init__(self) -> None:
        self._verbs = {
            "failure": self._failure,
            "graph": self._graph,
            "rewrites": self._rewrites,
            "rewrite": self._rewrite,
            "patch_graph": self._patch_graph,
            "source": self._source,
            "patch_source": self._patch_source,
            "export": self._export,
            "undo": self._undo,
            "convert": self._convert,
            "compare": self._compare,
            "submit": self._submit,
        }

    def __call__(self, request: Mapping[str, Json]) -> Mapping[str, Json]:
        """Do what a request asks for, and return `ok` and `observation`.

        Raises:
            Misused: there is no such verb, or its arguments are others.
            AipcError: the host cannot go on.
        """
        verb = str(request.get("verb"))
        if verb not in self._verbs:
            raise Misused(f"verb: there is no {verb!r}{suggest(verb, self._verbs)}")
        given = {name: value for name, value in request.items() if name != "verb"}
        taken = inspect.signature(self._verbs[verb]).parameters
        for name in given:
            if name not in taken:
                raise Misused(f"{verb}: takes no {name!r}{suggest(name, taken)}")
        for name, parameter in taken.items():
            if name not in given and parameter.default is parameter.empty:
                raise Misused(f"{verb}: {name} is missing; give it")
            if name in given and not isinstance(given[name], _TYPES[str(parameter.annotation)]):
                raise Misused(f"{verb}: {name}: {given[name]!r} is no {parameter.annotation}")
        ok, observation = self._verbs[verb](**given)
        return {"ok": ok, "observation": observation}

    def _failure(self) -> tuple[bool, str]:
        return True, self.problem or "nothing is known to be wrong; convert and compare tell more"

    def _graph(self, op: str = "", node: str = "") -> tuple[bool, str]:
        build, problem = self._built(self.candidate)
        if build is None:
            return False, problem
        run = pipeline.inspect_onnx(self.bench.session, build.model, op, node)
        if not run:
            return False, _said(run)
        facts = run.result.facts
        if not (op or node):
            counted = ", ".join(f"{name} {count}" for name, count in facts["nodes"].items())
            return True, f"opset {facts['opsets'].get('ai.onnx')}; {counted}"
        matches = facts["matches"]
        shown = "\n".join(_show_node(each) for each in matches[:MOST_NODES])
        more = f"\n… and {len(matches) - MOST_NODES} more" if len(matches) > MOST_NODES else ""
        return bool(matches), shown + more or f"no node has {'op ' + op if op else 'the name ' + node}"

    def _rewrites(self) -> tuple[bool, str]:
        return True, ", ".join(self._known)

    def _rewrite(self, name: str, options: dict[str, Json] | None = None) -> tuple[bool, str]:
        if name not in self._known:
            return False, f"there is no rewrite {name!r}{suggest(name, self._known)}"
        return self._add(Wish(rewrite=name, runtime=find(pipeline.REFERENCE), options=options or {}))

    @property
    def _known(self) -> tuple[str, ...]:
        """The rewrites of the reference; those that quantise are for a person to ask for."""
        reference = find(pipeline.REFERENCE)
        return tuple(name for name in reference.rewrites if name not in reference.quantizers)

    def _patch_graph(self, code: str) -> tuple[bool, str]:
        return self._add(Wish(rewrite=PATCH, runtime=find(pipeline.REFERENCE), code=code))

    def _source(self, path: str = "") -> tuple[bool, str]:
        source = self.bench.source
        if source is None:
            return False, "this model has no PyTorch source of its own; change the graph"
        made = patched(source, self.candidate.replacements, self.bench.scratch)
        if path:
            return True, text_of(made, path)
        return True, "\n".join(f"{file.path}  {file.size_bytes} bytes" for file in made.files)

    def _patch_source(self, path: str, old: str, new: str) -> tuple[bool, str]:
        if self.bench.source is None:
            return False, "this model has no PyTorch source of its own; change the graph"
        return self._add(Replacement(path=path, old=old, new=new))

    def _export(self, opset: int | None = None) -> tuple[bool, str]:
        self.exported = True
        if opset is not None:
            return self._add(Opset(number=opset))
        build, problem = self._built(self.candidate)
        return build is not None, problem or "exported; convert comes next"

    def _undo(self) -> tuple[bool, str]:
        if not self.candidate.edits:
            return False, "there is no edit to take back"
        gone = self.candidate.edits[-1]
        self.candidate = Candidate(edits=self.candidate.edits[:-1])
        return True, f"{name_of(gone)} is taken back"

    def _convert(self) -> tuple[bool, str]:
        build, problem = self._built(self.candidate)
        if build is None:
            return False, problem
        run = reached(build.walk, build.convert)
        if not run:
            self.problem = _said(run)
            return False, self.problem
        placement = run.result.facts.get("placement", [])
        devices = sorted({node["device"] for node in placement})
        counted = ", ".join(f"{sum(each['device'] == name for each in placement)} on {name}" for name in devices)
        self.problem = ""
        return True, f"converted: {counted or 'nothing is known of its nodes'}; compare comes next"

    def _compare(self) -> tuple[bool, str]:
        build, problem = self._built(self.candidate)
        if build is None:
            return False, problem
        run = reached(build.walk, build.attempt)
        if not run:
            self.problem = _said(run)
            return False, self.problem
        facts = run.result.facts
        verdict = Verdict(facts["verdict"])
        said = f"{verdict.value}: {'; '.join(facts['reasons'])}"
        measured = "\n".join(
            f"{each['output']} on {each['sample']}: cosine {_number(each['cosine'])}, SNR {_number(each['snr_db'])} dB"
            for each in facts["measures"]
        )
        self.problem = "" if verdict else said
        return bool(verdict), f"{said}\n{measured}"

    def _submit(self, claim: str, summary: str) -> tuple[bool, str]:
        if claim not in CLAIMS:
            raise Misused(f"submit: claim: {claim!r} is none{suggest(claim, CLAIMS)}")
        self.claim, self.summary = claim, summary
        return True, "submitted: the host builds it anew, and a judge measures it on inputs that nobody has seen"

    def _add(self, edit: Edit) -> tuple[bool, str]:
        """Take an edit into the candidate where it can be done, and changes something."""
        if not self.exported and isinstance(edit, Wish):
            return False, "there is no ONNX model yet; export comes first"
        tried = Candidate(edits=(*self.candidate.edits, edit))
        try:
            build, problem = self._built(tried)
        except Misused as error:
            return False, str(error)
        if build is None:
            return False, f"{name_of(edit)} is not taken: {problem}"
        changed = build.walk.repairs[-1].changed if isinstance(edit, Wish) else (name_of(edit),)
        if not changed:
            return False, f"{name_of(edit)} is not taken: it found nothing to change"
        self.candidate = tried
        names = ", ".join(changed[:MOST_NODES]) + (" …" if len(changed) > MOST_NODES else "")
        return True, f"{name_of(edit)}: {len(changed)} changed ({names}); answers stay as they were; convert comes next"

    def _built(self, candidate: Candidate) -> tuple[Build | None, str]:
        """Return the cell with its ONNX model as `candidate` makes it; None and why not."""
        if not self.exported:
            return None, "there is no ONNX model yet; export comes first"
        course = self.bench.start(candidate)
        if course.build is None:
            return None, _said(course.last)
        try:
            course.build.begin()
        except Stopped:
            return None, _said(course.walk.runs[-1])
        return course.build, ""


CLAIMS = ("agrees", "gave_up")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "int | None": (int, type(None)),
    "dict[str, Json] | None": (dict, type(None)),
}


def name_of(edit: Edit) -> str:
    """Return in a word or two what an edit is."""
    match edit:
        case Wish():
            return edit.rewrite
        case Replacement():
            return f"patch of {edit.path}"
        case Opset():
            return f"opset {edit.number}"


def _said(run: StepRun) -> str:
    """Return what is wrong with a step that was not done, in its own words."""
    failure = run.result.failure
    if failure is None:
        return f"{run.step.value}: {run.result.status.value}"
    places = "".join(f"; {word} {name}" for word, name in (("op", failure.op), ("node", failure.node)) if name)
    hint = f"; {failure.hint}" if failure.hint else ""
    status = "" if run.result.status is Status.FAILED else f" {run.result.status.value}"
    return f"{run.step.value}{status}: {failure.kind.value}{places}: {failure.message}{hint}"


def _show_node(node: Mapping[str, Json]) -> str:
    attributes = " ".join(f"{name}={value}" for name, value in node["attributes"].items())
    ends = f"{', '.join(filter(None, node['inputs']))} -> {', '.join(node['outputs'])}"
    return f"{node['op']} {node['name'] or '(no name)'}: {ends}{'  ' + attributes if attributes else ''}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
