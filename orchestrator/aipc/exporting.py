"""From PyTorch to an ONNX model: inputs, PyTorch's answers to them, and the export that is checked against those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aipc import materials
from aipc.building import output
from aipc.config import Matrix
from aipc.jobs import Session, StepRun
from aipc.mending import Walk
from aipc.model import Model, Source
from aipc.repairs import Rule, Symptom
from aipc.runtime import Runtime
from aipc.store import Material
from runtimes.contract import Json, Step, encode


@dataclass(frozen=True, kw_only=True)
class Patched:
    """A model's source as somebody changed it: it is exported in place of its own, which answers.

    Attributes:
        source: the files.
        seed: of the inputs, and PyTorch's answers to them, that its code may see while it is exported.
    """

    source: Material
    seed: int


@dataclass
class Exporting:
    """A cell up to its ONNX model; `given` follows what repairs of a given ONNX file make."""

    walk: Walk
    model: Model
    matrix: Matrix
    reference: Runtime
    given: dict[str, Material]
    patched: Patched | None = None

    def attempt(self) -> StepRun:
        """Prepare and export.

        Raises:
            Stopped: one of them was not done.
        """
        patched = self.patched
        if patched is None:
            return self._export(self.prepare(self.matrix.seed), self.given)
        # Its code runs in the job that exports, and could learn answers by heart: it never sees the judge's.
        # Another job checks and compares what it made.
        exported = self._export(self.prepare(patched.seed), {**self.given, "source": patched.source})
        given = {"model": output(exported, "model"), **self.prepare(self.matrix.seed)}
        return self.walk.step(Step.REWRITE, self.reference, given, {"rewrites": []}, ("model", "cpu"))

    def prepare(self, seed: int) -> Mapping[str, Material]:
        """Return `samples`, inputs drawn from `seed`, and `golden`, the answers of the model's own source to them."""
        pictures = loose(self.walk.session, self.matrix.pictures)
        prepared = self.walk.step(
            Step.PREPARE,
            self._home_of_model,
            {**self.given, **({"pictures": pictures} if pictures.files else {})},
            {**_model_options(self.model), "seed": seed, "magnitudes": list(self.matrix.magnitudes)},
            ("samples", "golden"),
        )
        return {name: output(prepared, name) for name in ("samples", "golden")}

    def _export(self, trial: Mapping[str, Material], given: Mapping[str, Material]) -> StepRun:
        return self.walk.step(
            Step.EXPORT,
            self._home_of_model,
            {**given, **trial},
            {**_model_options(self.model), "opset": self.model.opset, "exporter": self.model.exporter},
            ("model", "cpu"),
        )

    @property
    def _home_of_model(self) -> Runtime:
        """Where the model is loaded: that may need packages of its own, which nobody chose for the judge."""
        return replace(self.reference, environment=self.model.environment or self.reference.environment)

    def rewrite(self, rule: Rule, symptom: Symptom) -> StepRun:
        """Rewrite the ONNX file that was given, and go on with what comes of it where something changed."""
        weights = self.given["weights"]
        name = next(file.path for file in weights.files if file.path.lower().endswith(".onnx"))
        file = materials.renamed(weights, name, materials.ONNX_FILE)
        run = self.walk.rewrite(self.reference, {"model": file}, (rule,), symptom)
        if run and any(run.result.facts["changed"].values()):
            self.given["weights"] = materials.renamed(output(run, "model"), materials.ONNX_FILE, name)
        return run

    def keep(self) -> Callable[[], None]:
        """Return what puts the file back that there is now."""
        given = dict(self.given)
        return lambda: self.given.update(given)


def loose(session: Session, sources: tuple[Source, ...]) -> Material:
    """Return files from anywhere as one material, fetched where they are not here."""
    return materials.of_sources(sources, session.cache, lambda text: session.listener.progress(text, None))


def _model_options(model: Model) -> dict[str, Json]:
    return {
        "source": model.source,
        "architecture": model.architecture,
        "function": model.function,
        "trusted": model.trusted,
        "inputs": encode(model.inputs),
        "outputs": list(model.outputs),
        "shape": list(model.shape),
    }
