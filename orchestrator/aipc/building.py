"""From an ONNX model to a judged artefact: rewritten as the runtime needs it, converted or quantised, run, compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from aipc.cell import Cell
from aipc.jobs import Session, StepRun
from aipc.mending import Stopped, Walk
from aipc.model import Group
from aipc.repairs import Repairs, Rule, Symptom, Wish
from aipc.runtime import Run, Runtime
from aipc.store import Material
from runtimes.contract import Json, Step, encode

CALIBRATION_SAMPLES = 32
"""So many samples are made to quantise with, or taken of a folder at most."""


@dataclass(kw_only=True)
class Build:
    """One cell from its ONNX model on; `model` and `cpu` follow what the rewrites make.

    Attributes:
        walk: remembers what is done.
        cell: what is asked for.
        runtime: the toolchain.
        reference: rewrites and judges.
        repairs: what the toolchain's repairs.toml says.
        wishes: the rewrites that are asked for.
        samples: what the artefact is run on.
        golden: the reference's answers to them.
        calibration: what the step `calibrate` is given; () where nothing is quantised.
        encodings: a person's ranges, which `quantize` is given too; () where there are none.
        told: options of `calibrate`.
        judged: options of the judge that are known before the artefact is.
        groups: the output groups that are judged.
        ports: inputs and outputs of the model.
        model: the ONNX model as it is now.
        cpu: ONNX Runtime's answers with it.
    """

    walk: Walk
    cell: Cell
    runtime: Runtime
    reference: Runtime
    repairs: Repairs
    wishes: tuple[Wish, ...]
    samples: Material
    golden: Material
    calibration: Mapping[str, Material]
    encodings: Mapping[str, Material]
    told: Mapping[str, Json]
    judged: Mapping[str, Json]
    groups: tuple[Group, ...]
    ports: Mapping[str, Json]
    model: Material
    cpu: Material
    _is_begun: bool = field(default=False, init=False)
    _calibrated: Material | None = field(default=None, init=False)

    def attempt(self) -> StepRun:
        """Take the model as it is now to the judge.

        Raises:
            Stopped: a step was not done.
        """
        converted = self.convert()
        ran = converted
        if self.runtime.run is Run.ARTIFACT:
            inputs = {"artifact": output(converted, "artifact"), "samples": self.samples}
            ran = self.walk.step(Step.RUN, self.runtime, inputs, self._asked, ("outputs",))
        target = self.runtime.targets[self.cell.target]
        return self.walk.step(
            Step.JUDGE,
            self.reference,
            {"samples": self.samples, "golden": self.golden, "outputs": output(ran, "outputs"), "cpu": self.cpu},
            {
                **self.judged,
                "groups": encode(self.groups),
                "expected_outputs": self.ports["outputs"],
                "declared_outputs": [port(each) for each in converted.result.facts["io"]["outputs"]],
                "quantized": self.cell.precision in self.runtime.quantized,
                "accelerator": target.accelerator,
                "placement": ran.result.facts.get("placement") or converted.result.facts.get("placement", []),
                "accepted_devices": list(target.devices),
            },
            ("verdict.json",),
        )

    def rewrite(self, rule: Rule, symptom: Symptom) -> StepRun:
        """Rewrite the model as it is now, and go on with what comes of it where something changed."""
        run = self.walk.rewrite(self.reference, self._rewritten, (rule,), symptom)
        self._take(run)
        return run

    def keep(self) -> Callable[[], None]:
        """Return what puts the model back that there is now."""
        model, cpu = self.model, self.cpu

        def back() -> None:
            self.model, self.cpu = model, cpu

        return back

    def piece(
        self, session: Session, model: Material, samples: Material, ports: Mapping[str, Json], seconds: float
    ) -> Material | None:
        """Return what the runtime gives for a piece of the model; None where it cannot be converted or run in time."""
        runtime = replace(self.runtime, timeout_seconds=min(self.runtime.timeout_seconds, seconds))
        inputs = {"model": model, **({"samples": samples} if runtime.run is Run.IN_CONVERT else {})}
        run = session.step(Step.CONVERT, runtime, inputs, {**self._asked, **ports}, self._made)
        if run and runtime.run is Run.ARTIFACT:
            inputs = {"artifact": output(run, "artifact"), "samples": samples}
            run = session.step(Step.RUN, runtime, inputs, self._asked, ("outputs",))
        return output(run, "outputs") if run else None

    def begin(self) -> None:
        """Do what always comes before the first conversion, and what is asked for, once.

        Raises:
            Stopped: one of these rewrites is not done.
        """
        wanted = tuple(
            each for each in self.repairs.always if not each.precisions or self.cell.precision in each.precisions
        )
        if self._is_begun or not (wanted or self.wishes):
            return
        if wanted:
            given = self._rewritten
            if self.cell.precision in self.runtime.quantized:
                given["calibration"] = self._calibrate()
            self._take(self.walk.rewrite(self.reference, given, wanted), needed=True)
        for wish in self.wishes:
            given = {**self._rewritten, **({"calibration": self._calibrate()} if wish.quantizes else {})}
            self._take(self.walk.grant(self.reference, given, wish, self.cell.precision), needed=True)
        self._is_begun = True

    def _take(self, run: StepRun, *, needed: bool = False) -> None:
        """Go on with what a rewrite made where it changed something.

        Raises:
            Stopped: it was needed, and is not done.
        """
        if needed and not run:
            raise Stopped
        if run and any(run.result.facts["changed"].values()):
            self.model, self.cpu = output(run, "model"), output(run, "cpu")

    def convert(self) -> StepRun:
        """Return the run that made the artefact, and its outputs too where the runtime works so.

        Raises:
            Stopped: a step was not done.
        """
        self.begin()
        inputs = {"model": self.model}
        if self.runtime.run is Run.IN_CONVERT:
            inputs["samples"] = self.samples
        options = {**self._asked, **self.ports}
        if self.cell.precision not in self.runtime.quantized:
            return self.walk.step(Step.CONVERT, self.runtime, inputs, options, self._made)
        inputs |= {"calibration": self._calibrate(), **self.encodings}
        return self.walk.step(Step.QUANTIZE, self.runtime, inputs, options, self._made)

    def _calibrate(self) -> Material:
        """Return the samples to quantise with, made once."""
        if self._calibrated is None:
            made = self.walk.step(Step.CALIBRATE, self.reference, self.calibration, self.told, ("calibration",))
            self._calibrated = output(made, "calibration")
        return self._calibrated

    @property
    def _asked(self) -> dict[str, Json]:
        return {"precision": self.cell.precision, "target": self.cell.target}

    @property
    def _made(self) -> tuple[str, ...]:
        return ("artifact", "outputs") if self.runtime.run is Run.IN_CONVERT else ("artifact",)

    @property
    def _rewritten(self) -> dict[str, Material]:
        return {"model": self.model, "samples": self.samples, "golden": self.golden}


def output(run: StepRun, name: str) -> Material:
    """Return an output of a step that is done."""
    assert run.entry is not None  # noqa: S101 - a step that is done is kept
    return run.entry.output(name)


def port(of: Mapping[str, Json]) -> Json:
    """Return what a step is told of an input or output."""
    return {key: of[key] for key in ("name", "shape", "dtype")}
