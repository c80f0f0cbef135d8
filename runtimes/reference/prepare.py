"""The step `prepare`: inputs, what the reference makes of them, and how much each output depends on each input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from runtimes.contract import Json, Kind, encode
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Work, fail, refuse
from runtimes.reference import inputs, models
from runtimes.reference.models import Reference
from runtimes.reference.options import ModelOptions, PrepareOptions


def prepare(work: Work) -> dict[str, Json]:
    """Make `samples` and `golden`, two sample sets; return the facts.

    Raises:
        Refused: the model cannot be loaded, or its inputs cannot be filled.
        Failed: the model does not run, or what it returns is not finite.
    """
    options = work.options(PrepareOptions)
    work.progress("loading the model")
    reference = load(work, options)
    pictures = folder(work, "pictures")
    files = sorted(pictures.iterdir()) if pictures else []
    samples = inputs.make(reference.inputs, files, seed=options.seed, magnitudes=options.magnitudes)
    golden: inputs.Samples = {}
    for number, (name, sample) in enumerate(samples.items()):
        work.progress(f"{reference.kind} on {name}", number / len(samples))
        golden[name] = reference.run(sample)
        _check_outputs(name, golden[name])
        _check_sizes(name, golden[name], golden[inputs.PHOTO])
    tensors.save_samples(work.output("samples"), samples)
    tensors.save_samples(work.output("golden"), golden)
    return _facts(reference, golden)


def load(work: Work, options: ModelOptions) -> Reference:
    """Return the model of a job, from its inputs `weights` and `source` where it has them."""
    return models.load(options, folder(work, "weights"), folder(work, "source"))


def folder(work: Work, name: str) -> Path | None:
    """Return the job's input folder `name`, or None where it has none."""
    return work.input(name) if name in work.job.inputs else None


def sensitivity(golden: Mapping[str, Mapping[str, Array]], names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return how much each output depends on each input: output name to input name to a number from 0 to 2.

    It is ‖y₁ − y₀‖ / max(‖y₀‖, ‖y₁‖), where y₀ is the output for `photo` and y₁ that for the sample in which only that
    input differs (for a model of one input: that for the sample which changes it most); 0 where both are zero.
    So it is the relative error of an artefact that ignores the input: −20·log₁₀ of it is the SNR in decibels that such
    an artefact would reach, and a judge with a limit below that cannot tell it from a good one.

    Args:
        golden: sample name to outputs by name.
        names: the inputs.
    """
    photo = golden[inputs.PHOTO]
    others = {name: [f"other-{name}"] for name in names}
    if len(names) == 1:
        others = {names[0]: [sample for sample in golden if sample != inputs.PHOTO]}
    return {
        output: {
            name: max((_change(photo[output], golden[sample][output]) for sample in others[name]), default=0.0)
            for name in names
        }
        for output in photo
    }


def _change(before: Array, after: Array) -> float:
    if before.shape != after.shape:
        return 2.0
    first, second = before.astype(np.float64).ravel(), after.astype(np.float64).ravel()
    peak = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    if peak == 0.0:
        return 0.0
    # Divided by the peak first, so that no square overflows or vanishes.
    first, second = first / peak, second / peak
    return float(np.linalg.norm(second - first) / max(np.linalg.norm(first), np.linalg.norm(second)))


def _check_outputs(sample: str, outputs: Mapping[str, Array]) -> None:
    for name, array in outputs.items():
        if array.dtype.name not in tensors.DTYPES:
            refuse(Kind.INVALID_MODEL, f"output {name}: has the type {array.dtype}", hint="return real numbers")
        bad = int(array.size - np.isfinite(array).sum())
        if bad:
            fail(
                Kind.INVALID_MODEL,
                f"sample {sample}: output {name} of the reference: {bad} of {array.size} values are NaN or infinite",
                hint="give the inputs the range that the model was made for (low, high, mean, std)",
            )


def _check_sizes(sample: str, outputs: Mapping[str, Array], first: Mapping[str, Array]) -> None:
    for name, array in outputs.items():
        if array.shape != first[name].shape:
            refuse(
                Kind.DYNAMIC_SHAPE,
                f"output {name} is {list(first[name].shape)} for {inputs.PHOTO}, {list(array.shape)} for {sample}: "
                "its size depends on the data, and an artefact has fixed sizes",
                hint="end the model before what chooses among its results, such as NonMaxSuppression or NonZero",
            )


def _facts(reference: Reference, golden: inputs.Samples) -> dict[str, Json]:
    return {
        "reference": reference.kind,
        "inputs": encode(reference.inputs),
        "outputs": [
            {"name": name, "shape": list(array.shape), "dtype": array.dtype.name}
            for name, array in golden[inputs.PHOTO].items()
        ],
        "sensitivity": sensitivity(golden, tuple(each.name for each in reference.inputs)),
        "reaching": {name: list(found) for name, found in reference.reaching.items()},
        "parameters": reference.parameters,
        "notes": list(reference.notes),
    }
