"""The step `calibrate`: the samples that a quantiser measures the ranges of a model's tensors on.

| given | what the samples are |
|---|---|
| nothing | cuts of the matrix's photographs at many places and sizes, draws for other inputs; one in four only draws |
| a folder of pictures | each picture in it, as prepare takes one; draws for the other inputs |
| a folder of `.npy` files | each file is the one input of a sample, with or without the first dimension |
| a folder of `.npz` files | each file is a sample, its arrays called after the inputs |

A photograph leaves much of an input's range unused, so one sample in four draws every input from the whole of it: with
photographs alone the ranges of inner tensors are too narrow for anything else, which is then cut off. These draws are
none that the judge compares with, since a draw depends on the name of its sample.

A wrong scale is the usual mistake, and builds without a word (pixels of 0 to 255 for a model that takes 0 to 1), so
what a folder holds is compared with the range that each input is declared to have.
"""

from __future__ import annotations

import dataclasses
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from runtimes.contract import Json, Kind
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Work, refuse
from runtimes.reference import inputs
from runtimes.reference.inputs import Samples
from runtimes.reference.options import Content, Input

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
ARRAYS = (".npy", ".npz")
SMALLEST_CUT = 0.4
"""The smallest side of a cut, as a share of the largest that fits."""
DRAWN = 4
"""One sample in so many is drawn from the whole range of each input."""
SLACK = 0.02
"""By such a share of the declared range floating values may lie outside: resizing a picture may overshoot."""
NARROW = 8.0
"""Data that reach no further than the declared range divided by this are of another scale."""
DEVIATIONS = 8.0
"""So many standard deviations from 0 is no draw of a normal distribution."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """What `calibrate` is told.

    Attributes:
        inputs: the model's inputs.
        count: how many samples to make, or to take of a folder at most.
        seed: what every draw starts from.
    """

    inputs: tuple[Input, ...]
    count: int
    seed: int


def calibrate(work: Work) -> dict[str, Json]:
    """Make `calibration`, a sample set, of `pictures` or of what `folder` holds; return how many samples there are.

    `pictures` may be left out where no input is one.

    Raises:
        Refused: the folder holds nothing that can be used, or values of another shape, type or scale.
    """
    options = work.options(CalibrateOptions)
    if "folder" in work.job.inputs:
        samples = _given(work.input("folder"), options)
    else:
        pictures = sorted(work.input("pictures").iterdir()) if "pictures" in work.job.inputs else []
        _check_pictures(pictures, options.inputs)
        with tempfile.TemporaryDirectory() as scratch:
            samples = _cut(pictures, options, Path(scratch))
    tensors.save_samples(work.output("calibration"), samples)
    ranges = {
        each.name: [
            float(min(sample[each.name].min() for sample in samples.values())),
            float(max(sample[each.name].max() for sample in samples.values())),
        ]
        for each in options.inputs
    }
    return {"samples": len(samples), "ranges": ranges}


def _cut(pictures: Sequence[Path], options: CalibrateOptions, scratch: Path) -> Samples:
    """Return samples: three cuts of photographs at a random place, of a random size, and then a draw; and so on."""
    draw = np.random.Generator(np.random.PCG64([options.seed, 1]))
    samples: Samples = {}
    for number in range(options.count):
        name = f"calibration-{number:03d}"
        cuts = [_piece(path, draw, scratch / f"{number}-{index}.png") for index, path in enumerate(pictures)]
        start = number % max(1, len(cuts))
        samples[name] = {
            each.name: inputs.draw(each, name, options.seed)
            if number % DRAWN == DRAWN - 1
            else _filled(each, cuts[start:] + cuts[:start], name, options.seed)
            for each in options.inputs
        }
    return samples


def _check_pictures(pictures: Sequence[Path], asked: Sequence[Input]) -> None:
    without = [each.name for each in asked if each.content is Content.PICTURE and not pictures]
    if without:
        refuse(
            Kind.OPTION,
            f"input {without[0]!r} is a picture, and there is none to calibrate with",
            hint="name pictures in matrix.toml, or give a folder with --calibration",
        )


def _piece(path: Path, draw: np.random.Generator, target: Path) -> Path:
    """Write a cut of a picture to `target`, and return that."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    share = draw.uniform(SMALLEST_CUT, 1.0)
    width, height = (max(1, int(size * share)) for size in picture.size)
    left, top = (
        int(draw.integers(0, whole - size, endpoint=True))
        for whole, size in zip(picture.size, (width, height), strict=True)
    )
    picture.crop((left, top, left + width, top + height)).save(target)
    return target


def _filled(each: Input, pictures: Sequence[Path], sample: str, seed: int) -> Array:
    """Return one input of a sample: photographs for a picture, a draw for anything else."""
    if each.content is not Content.PICTURE:
        return inputs.draw(each, sample, seed)
    if len(each.shape) == 3:
        return inputs.picture(pictures[0], each)
    return np.stack([inputs.picture(pictures[index % len(pictures)], each) for index in range(each.shape[0])])


def _given(folder: Path, options: CalibrateOptions) -> Samples:
    """Return what a person's folder holds."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (*PICTURES, *ARRAYS))[: options.count]
    if not files:
        refuse(
            Kind.OPTION,
            f"the calibration folder holds no file that ends in {', '.join((*PICTURES, *ARRAYS))}",
            hint="give a folder of pictures, or of arrays that are scaled as the model takes them",
        )
    samples = {}
    for path in files:
        name = path.relative_to(folder).as_posix().replace("/", "-")
        if path.suffix.lower() in PICTURES:
            samples[name] = {each.name: _filled(each, [path], name, options.seed) for each in options.inputs}
        else:
            samples[name] = _read(path, options.inputs)
    _check_scale(samples, options)
    return samples


def _read(path: Path, asked: Sequence[Input]) -> dict[str, Array]:
    """Return the sample that a file of arrays holds."""
    try:
        found = np.load(path, allow_pickle=False)
        arrays = dict(found) if isinstance(found, np.lib.npyio.NpzFile) else {asked[0].name: found}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        refuse(Kind.OPTION, f"calibration file {path.name}: {error}", hint="write it with numpy.save or numpy.savez")
    if set(arrays) != {each.name for each in asked}:
        names = ", ".join(repr(each.name) for each in asked)
        refuse(
            Kind.OPTION,
            f"calibration file {path.name}: it holds {sorted(arrays)}, the model takes {names}",
            hint="give one .npz file a sample, its arrays called after the inputs",
        )
    sample = {}
    for each in asked:
        array = arrays[each.name]
        array = array[np.newaxis] if array.shape == each.shape[1:] else array
        if array.shape != each.shape or array.dtype != np.dtype(each.dtype):
            refuse(
                Kind.OPTION,
                f"calibration file {path.name}: {each.name!r} is {array.dtype} {list(array.shape)}, "
                f"the model takes {each.dtype} {list(each.shape)}",
            )
        sample[each.name] = array
    return sample


def _check_scale(samples: Samples, options: CalibrateOptions) -> None:
    """Refuse values that are not of the range which the input is declared to have."""
    for each in options.inputs:
        values = np.stack([sample[each.name] for sample in samples.values()])
        numbers = values.astype(np.float64)
        low, high = _range(each)
        least, most = float(numbers.min()), float(numbers.max())
        slack = 0.0 if values.dtype.kind in "iub" else SLACK * (high - low)
        where, seen = f"the calibration data of input {each.name!r}", f"goes from {least:.4g} to {most:.4g}"
        takes = f"the model takes {low:.4g} to {high:.4g}"
        if not low - slack <= least <= most <= high + slack:
            _refuse_scale(f"{where} {seen}, {takes}", each)
        wide = each.content in {Content.PICTURE, Content.UNIFORM, Content.NORMAL}
        if wide and max(abs(least), abs(most)) * NARROW < max(abs(low), abs(high)):
            _refuse_scale(f"{where} {seen} only, {takes}", each)


def _range(each: Input) -> tuple[float, float]:
    """Return between which numbers an input lies: as declared, of a picture after mean and std."""
    if each.content is Content.MASK:
        return 0.0, 1.0
    if each.content is Content.NORMAL:
        return -DEVIATIONS * each.high, DEVIATIONS * each.high
    if each.content is not Content.PICTURE:
        return each.low, each.high
    mean, std = np.asarray(each.mean or (0.0,)), np.asarray(each.std or (1.0,))
    ends = (np.array([[each.low], [each.high]]) - mean) / std
    return float(ends.min()), float(ends.max())


def _refuse_scale(problem: str, each: Input) -> NoReturn:
    normalised = f", with mean {list(each.mean)} and std {list(each.std)}" if each.mean or each.std else ""
    hint = f"scale it as the model's own preprocessing does: {each.low:g} to {each.high:g}{normalised}"
    refuse(Kind.OPTION, problem, hint=f"{hint}; nothing scales it afterwards")
