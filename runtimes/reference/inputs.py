"""The inputs that a model is tried on: photographs and random draws, the same on every machine.

| sample | what each input holds |
|---|---|
| `photo` | a photograph; where the input is no picture, a draw of its own content |
| `random-<magnitude>` | a draw from [low·magnitude, high·magnitude]: both ends of the input's range are multiplied |
| `other-<input>` | as `photo`, but that one input is another: the next photograph, or a draw |

There is an `other-` sample only where there are two inputs or more.
A draw depends on the seed and on the names of sample and input, on nothing else.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runtimes.contract import Kind
from runtimes.kit.tensors import Array
from runtimes.kit.work import refuse
from runtimes.reference.options import Content, Input

if TYPE_CHECKING:
    from PIL.Image import Image

MODES: Mapping[int, str] = {1: "L", 3: "RGB", 4: "RGBA"}
"""Channels of a picture, to Pillow's name of that kind of image."""

PHOTO = "photo"

Samples = dict[str, dict[str, Array]]
"""Sample name to arrays by input name."""


def make(inputs: Sequence[Input], pictures: Sequence[Path], *, seed: int, magnitudes: Sequence[float]) -> Samples:
    """Return the samples, `photo` first.

    Args:
        inputs: what to fill.
        pictures: image files; needed where an input is a picture.
        seed: what every draw starts from.
        magnitudes: one random sample each.

    Raises:
        Refused: an input is a picture and there is none, or a file is no image.
    """
    photo = {each.name: _real(each, pictures, index, PHOTO, seed) for index, each in enumerate(inputs)}
    samples = {PHOTO: photo}
    for magnitude in magnitudes:
        name = f"random-{magnitude:g}"
        samples[name] = {each.name: draw(each, name, seed, magnitude) for each in inputs}
    if len(inputs) > 1:
        for index, each in enumerate(inputs):
            name = f"other-{each.name}"
            samples[name] = {**photo, each.name: _other(each, pictures, index, name, seed)}
    return samples


def draw(each: Input, sample: str, seed: int, magnitude: float = 1.0) -> Array:
    """Return a random array for the input `each`; equal arguments give equal arrays.

    | content | drawn from |
    |---|---|
    | uniform | [low·magnitude, high·magnitude), evenly |
    | picture | the same; then mean is subtracted and std divides, as for a photograph |
    | normal | a normal distribution about 0, of the standard deviation high·magnitude |
    | integers | low to low + (high − low)·magnitude, both rounded towards 0 and included, at least two numbers |
    | mask | ones along the last axis, and zeros after them: from a half of it to all are ones, but in `photo` all |

    Integers never leave the input's range, however large the magnitude, since they may be indices.
    """
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(f"{sample}/{each.name}".encode())]))
    if each.content is Content.INTEGERS:
        least = int(each.low)
        most = int(min(each.high, each.low + max(1.0, (each.high - each.low) * magnitude)))
        return np.asarray(generator.integers(least, most, size=each.shape, endpoint=True)).astype(each.dtype)
    if each.content is Content.MASK:
        return _mask(each, generator, whole=sample == PHOTO)
    if each.content is Content.NORMAL:
        return np.asarray(generator.standard_normal(each.shape) * (each.high * magnitude)).astype(each.dtype)
    values = np.asarray(magnitude * (each.low + (each.high - each.low) * generator.random(each.shape)))
    return _normalise(values, each) if each.content is Content.PICTURE else values.astype(each.dtype)


def _mask(each: Input, generator: np.random.Generator, *, whole: bool) -> Array:
    """Return ones, with zeros at the end of the last axis unless `whole`; of one number, there is one."""
    length = each.shape[-1] if each.shape else 1
    ones = length if whole or length == 1 else int(generator.integers((length + 1) // 2, length))
    return np.broadcast_to(np.arange(length) < ones, each.shape or (1,)).reshape(each.shape).astype(each.dtype)


def picture(path: Path, each: Input) -> Array:
    """Return the image at `path` as the input `each` takes it, [C,H,W].

    The middle of the image is cut to the input's aspect, resized (Lanczos) to its height and width, turned into its
    channels and scaled from black…white to low…high; then mean is subtracted and std divides.

    Raises:
        Refused: the file is no image.
    """
    from PIL import Image, ImageOps

    channels, height, width = each.shape[-3:]
    try:
        with warnings.catch_warnings():
            # Pillow warns of a picture too large to be trusted before it refuses one; here both refuse.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                upright = ImageOps.exif_transpose(opened).convert(MODES[channels])
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        refuse(Kind.OPTION, f"picture {path.name}: {error}", hint="give a PNG or JPEG file")
    fitted: Image.Image = ImageOps.fit(upright, (width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(fitted, dtype=np.float64).reshape(height, width, channels).transpose(2, 0, 1)
    return _normalise(each.low + (each.high - each.low) * (pixels / 255.0), each)


def _normalise(values: Array, each: Input) -> Array:
    mean = np.reshape(each.mean or (0.0,), (-1, 1, 1))
    std = np.reshape(each.std or (1.0,), (-1, 1, 1))
    values = (values - mean) / std
    if np.dtype(each.dtype).kind in "iu":
        limits = np.iinfo(each.dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(each.dtype)


def _real(each: Input, pictures: Sequence[Path], start: int, sample: str, seed: int) -> Array:
    """Return photographs for a picture, taken in turn from number `start`; a draw for anything else."""
    if each.content is not Content.PICTURE:
        return draw(each, sample, seed)
    if not pictures:
        refuse(
            Kind.OPTION,
            f"input {each.name}: is a picture, and there is none to fill it with",
            hint="name at least one picture in matrix.toml, or another content for this input",
        )
    if len(each.shape) == 3:
        return picture(pictures[start % len(pictures)], each)
    return np.stack([picture(pictures[(start + index) % len(pictures)], each) for index in range(each.shape[0])])


def _other(each: Input, pictures: Sequence[Path], index: int, sample: str, seed: int) -> Array:
    if each.content is Content.PICTURE and len(pictures) > 1:
        return _real(each, pictures, index + 1, sample, seed)
    return draw(each, sample, seed)
