"""What the judge is given: its options, and four sample sets put side by side, output by output."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runtimes.contract import Misused
from runtimes.kit.tensors import Array
from runtimes.reference.measures import SNR_CAP_DB, Measure, kind_of, measure, rms, same_values

Samples = Mapping[str, Mapping[str, Array]]
"""Sample name to tensor name to tensor."""

CONTENTS = ("tensor", "picture")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Outputs that are judged together, and how near they must be.

    Floating outputs, and any in a picture group, are held to `cosine` and `snr_db`. Integers and booleans in a tensor
    group are labels, right or wrong: the share of equal values is held to the number of `cosine`.

    Attributes:
        name: the group's name.
        outputs: the outputs in it.
        inputs: the inputs that these outputs depend on; () is all.
        content: `tensor` or `picture`.
        cosine: smallest cosine, −1…1, of each output and of all of them as one vector.
        snr_db: smallest SNR in dB.
        max_abs: largest absolute difference, or None for no limit.
    """

    name: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    content: str
    cosine: float
    snr_db: float
    max_abs: float | None

    def __post_init__(self) -> None:
        if self.content not in CONTENTS:
            raise Misused(f"group {self.name!r}: content {self.content!r}; write one of {', '.join(CONTENTS)}")
        # The limits that matrix.toml takes, no narrower: nothing may be refused when all else is done.
        # Each is worded so that NaN is refused too.
        if not -1.0 <= self.cosine <= 1.0:
            raise Misused(f"group {self.name!r}: cosine {self.cosine}; write a number from -1 to 1")
        if not math.isfinite(self.snr_db):
            raise Misused(f"group {self.name!r}: snr_db {self.snr_db}; write a finite number")
        if self.max_abs is not None and not 0.0 <= self.max_abs < math.inf:
            raise Misused(f"group {self.name!r}: max_abs {self.max_abs}; write a finite number that is not negative")


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where one node of the artefact runs."""

    node: str
    op: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Port:
    """One output as prepare or convert states it; a string in the shape, or a negative size, is one that is free."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the judge's job. All must be given: what is left out cannot be checked.

    Attributes:
        groups: every output stands in exactly one.
        sensitivity: output to input to the relative change of the golden output when that input changes; None where
            prepare has no number.
        expected_samples: the names of the samples that prepare was asked for.
        expected_outputs: the model's outputs in order (facts of prepare).
        declared_outputs: the artefact's outputs in order (facts of convert: io).
        quantized: whether the artefact calculates in fixed point. Its error does not shrink with the signal, so an
            SNR is then that beside the strongest sample of the output.
        accelerator: whether the artefact is said to run on something else than the CPU.
        placement: which node runs where.
        accepted_devices: the accelerator, and after it the devices that nodes may run on beside it.
    """

    groups: tuple[Group, ...]
    sensitivity: Mapping[str, Mapping[str, float | None]]
    expected_samples: tuple[str, ...]
    expected_outputs: tuple[Port, ...]
    declared_outputs: tuple[Port, ...]
    quantized: bool
    accelerator: bool
    placement: tuple[Placed, ...]
    accepted_devices: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if len(set(names)) < len(names):
            raise Misused(f"groups {names}: a name stands there twice; name each group once")
        outputs = [output for group in self.groups for output in group.outputs]
        if len(set(outputs)) < len(outputs):
            raise Misused(f"groups {names}: an output stands there twice: {sorted(outputs)}; put each into one group")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One golden output of one sample, and what the artefact made of it.

    Attributes:
        group: the group it is judged in.
        output: its name.
        sample: the sample's name.
        golden: the reference's answer.
        made: the artefact's answer, or None where there is none.
    """

    group: Group
    output: str
    sample: str
    golden: Array
    made: Array | None

    @property
    def aligned(self) -> Array | None:
        """The artefact's answer where it has the golden shape, so that values can be compared."""
        return self.made if self.made is not None and self.made.shape == self.golden.shape else None

    @property
    def exact(self) -> bool:
        """Whether its values are labels, which are right or wrong."""
        return is_exact(self.group, self.golden)

    @functools.cached_property
    def measure(self) -> Measure | None:
        """How far the answer lies from the golden one; None where no value can be compared."""
        usable = self.golden.size == 0 or bool(np.isfinite(self.golden).any())
        return measure(self.golden, self.aligned) if self.aligned is not None and usable else None

    @functools.cached_property
    def equal(self) -> float | None:
        """The share of equal values, or None where no value can be compared."""
        return None if self.aligned is None else share_equal(self.golden, self.aligned)

    @property
    def where(self) -> str:
        """It, for a sentence."""
        return f"output {self.output!r} in sample {self.sample!r}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that a verdict rests on.

    Attributes:
        options: what is claimed and what is asked for.
        samples: the inputs.
        golden: the reference's outputs.
        outputs: the artefact's outputs.
        cpu: ONNX Runtime's outputs on the CPU; only looked at where an accelerator is claimed.
    """

    options: Options
    samples: Samples
    golden: Samples
    outputs: Samples
    cpu: Samples

    @functools.cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every golden output of every sample that stands in a group; by group, output and sample."""
        found = []
        for group in self.options.groups:
            for output in group.outputs:
                for sample, tensors in self.golden.items():
                    if output in tensors:
                        made = self.outputs.get(sample, {}).get(output)
                        found.append(Pair(group=group, output=output, sample=sample, golden=tensors[output], made=made))
        return tuple(found)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all inputs, sorted."""
        return tuple(sorted({name for tensors in self.samples.values() for name in tensors}))

    @functools.cached_property
    def strengths(self) -> Mapping[str, float]:
        """The root mean square of each output's strongest golden sample."""
        found: dict[str, float] = {}
        for pair in self.pairs:
            found[pair.output] = max(found.get(pair.output, 0.0), rms(pair.golden))
        return found

    def snr_db(self, output: str, golden: Array, made: Array, found: Measure) -> float | None:
        """Return the SNR of an answer that is held to a limit: beside its own golden signal, or the strongest sample's.

        Args:
            output: whose answer it is.
            golden: the right answer.
            made: the answer.
            found: how far they lie apart.
        """
        strongest = self.strengths[output] if self.options.quantized else 0.0
        if found.snr_db is None or found.snr_db >= SNR_CAP_DB or not strongest:
            return found.snr_db
        own = rms(golden)
        # Beside a signal of nothing, the answer is the error.
        above = 20.0 * math.log10(strongest / (own or rms(made)))
        return min(SNR_CAP_DB, max(-SNR_CAP_DB, above + (found.snr_db if own else 0.0)))

    def of_output(self, output: str) -> tuple[Pair, ...]:
        """Return the pairs of one output, sample by sample."""
        return tuple(pair for pair in self.pairs if pair.output == output)


def is_exact(group: Group, golden: Array) -> bool:
    """Return whether the values of `golden` are labels: integers or booleans that are no picture."""
    return group.content != "picture" and kind_of(golden) != "floating"


def share_equal(golden: Array, made: Array) -> float:
    """Return the share of equal values, 0…1; 1 when there is none. NaN equals NaN."""
    same = same_values(golden, made)
    return float(same.mean()) if same.size else 1.0


def all_equal(tensors: list[Array]) -> bool:
    """Return whether all tensors hold the same values in the same shape; True for fewer than two."""
    first = tensors[0] if tensors else None
    return all(
        first is not None and one.shape == first.shape and bool(same_values(first, one).all()) for one in tensors
    )
