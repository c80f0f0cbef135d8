"""Pictures for people: what went in, what the reference and the artefact made of it, and where they differ.

Of each output of a picture group the `photo` sample is drawn whole, and a piece of it pixel by pixel around the largest
error; where another sample has a lower SNR, a piece of that too. All are PNG files of equal bytes for equal tensors:

- `input`, `golden`, `output_picture`: 0…1 is black to white where golden (or the input) keeps to that range but for an
  overshoot, otherwise its own smallest to largest value. What lies outside is clipped; what is not finite is magenta.
- `error`: the absolute difference in each channel; `scale` is the difference that is drawn white: the largest one,
  rounded up to 1, 2 or 5 times a power of ten. Shrinking keeps the largest difference of each block, so that a single
  pixel stays seen.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtimes.kit.tensors import Array
from runtimes.reference.judge_case import Case, Pair
from runtimes.reference.measures import same_values, worst_at

LONG_SIDE = 512
"""Pixels: a larger picture is shrunk by a whole factor."""

PIECE = 64
"""Pixels: the side of a piece that is shown pixel by pixel."""

OVERSHOOT = 0.5
"""A picture that leaves 0…1 by at most so much is still one of range 0…1."""

COLOURS = (1, 3)
RANK = 4
NAME_LENGTH = 60
MAGENTA = (255, 0, 255)

Values = NDArray[np.float64]
"""A picture [H, W, C]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Four pictures of one output in one sample; a path is relative to `out/`, or "" where there is nothing to draw.

    Attributes:
        output: the output's name.
        sample: the sample's name, and for a piece, which pixels.
        input: what went in.
        golden: the reference's answer.
        output_picture: the artefact's answer.
        error: their difference.
        scale: the difference that is drawn white, in the output's unit; 0 where there is none.
    """

    output: str
    sample: str
    input: str
    golden: str
    output_picture: str
    error: str
    scale: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of the golden picture, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    def cut(self, values: Values, golden: Values) -> Values:
        """Return this part of `values`, a picture of the same scene as `golden` but maybe of another size."""
        (height, width), (rows, columns) = values.shape[:2], golden.shape[:2]
        down = np.arange(self.top, self.top + self.height) * height // rows
        across = np.arange(self.left, self.left + self.width) * width // columns
        part: Values = values[down][:, across]
        return part

    def __str__(self) -> str:
        return f"x {self.left}…{self.left + self.width - 1}, y {self.top}…{self.top + self.height - 1}"


def draw(case: Case, folder: Path) -> tuple[View, ...]:
    """Draw the outputs of the picture groups into `folder`.

    Args:
        case: the sample sets; the first picture of an output is drawn, when golden is [N, C, H, W] with C = 1 or 3.
        folder: where to, made by this; the paths of the views start with its name.
    """
    folder.mkdir()
    views: list[View] = []
    for output in dict.fromkeys(pair.output for pair in case.pairs if pair.group.content == "picture"):
        pairs = [pair for pair in case.of_output(output) if is_picture(pair.golden)]
        if not pairs:
            continue
        photo = next((pair for pair in pairs if pair.sample == "photo"), pairs[0])
        views.append(_draw(case, photo, None, folder, len(views)))
        piece = _around_the_worst(photo)
        if piece and (piece.height, piece.width) != photo.golden.shape[2:]:
            views.append(_draw(case, photo, piece, folder, len(views)))
        worst = min(pairs, key=_snr_db)
        piece = _around_the_worst(worst)
        if piece and worst is not photo:
            views.append(_draw(case, worst, piece, folder, len(views)))
    return tuple(views)


def is_picture(tensor: Array) -> bool:
    """Return whether `tensor` is [N, C, H, W] with one or three channels and something in it."""
    return tensor.ndim == RANK and tensor.shape[1] in COLOURS and tensor.size > 0


def _snr_db(pair: Pair) -> float:
    found = pair.measure
    return -math.inf if found is None or found.snr_db is None else found.snr_db


def _around_the_worst(pair: Pair) -> Piece | None:
    """Return the piece around the largest difference in the first picture; None where there is none to show."""
    if pair.aligned is None:
        return None
    golden, made = pair.golden[0], pair.aligned[0]
    if same_values(golden, made).all():
        return None
    _, y, x = worst_at(golden, made)
    rows, columns = golden.shape[1:]
    height, width = min(PIECE, rows), min(PIECE, columns)
    top = min(max(y - height // 2, 0), rows - height)
    left = min(max(x - width // 2, 0), columns - width)
    return Piece(top=top, left=left, height=height, width=width)


def _draw(case: Case, pair: Pair, piece: Piece | None, folder: Path, number: int) -> View:
    """Draw one view; `number` makes its file names unique, whatever the output and the sample are called."""
    golden = _first(pair.golden)
    made = _first(pair.made) if pair.made is not None and is_picture(pair.made) else None
    given = next((tensor for tensor in case.samples.get(pair.sample, {}).values() if is_picture(tensor)), None)
    stem = "-".join([str(number), *re.findall("[A-Za-z0-9_]+", f"{pair.output} {pair.sample}")])[:NAME_LENGTH]

    def saved(name: str, values: Values, extent: tuple[float, float], *, largest: bool = False) -> str:
        shown = _shrunk(piece.cut(values, golden) if piece else values, largest=largest)
        path = folder / f"{stem}-{name}.png"
        _save(shown, extent, path)
        return f"{folder.name}/{path.name}"

    extent = _extent(pair.golden)
    error, scale = "", 0.0
    if made is not None and made.shape == golden.shape:
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.abs(made - golden)
        scale = _rounded_up(difference)
        error = saved("error", difference, (0.0, scale or 1.0), largest=True)
    return View(
        output=pair.output,
        sample=f"{pair.sample}: {piece}" if piece else pair.sample,
        input="" if given is None else saved("input", _first(given), _extent(given)),
        golden=saved("golden", golden, extent),
        output_picture="" if made is None else saved("output", made, extent),
        error=error,
        scale=scale,
    )


def _first(tensor: Array) -> Values:
    """Return the first picture of [N, C, H, W] as [H, W, C]."""
    return np.moveaxis(tensor[0].astype(np.float64), 0, -1)


def _extent(tensor: Array) -> tuple[float, float]:
    """Return the values that are drawn black and white."""
    if tensor.dtype == np.uint8:
        return 0.0, 255.0
    values = tensor[np.isfinite(tensor)].astype(np.float64)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if low >= -OVERSHOOT and high <= 1.0 + OVERSHOOT:
        return 0.0, 1.0
    return low, high


def _rounded_up(difference: Values) -> float:
    """Return the largest finite difference, rounded up to 1, 2 or 5 times a power of ten; 0 when there is none."""
    finite = difference[np.isfinite(difference)]
    largest = float(finite.max()) if finite.size else 0.0
    if largest == 0.0:
        return 0.0
    power = math.floor(math.log10(largest))
    steps = (float(f"{step}e{power + more}") for more in (0, 1) for step in (1, 2, 5))
    return next((step for step in steps if step >= largest), largest)


def _shrunk(values: Values, *, largest: bool) -> Values:
    """Return the picture with no side over `LONG_SIDE`: the mean of each block, or the largest value."""
    height, width, channels = values.shape
    factor = -(-max(height, width) // LONG_SIDE)
    if factor == 1:
        return values
    padded = np.pad(values, ((0, -height % factor), (0, -width % factor), (0, 0)), mode="edge")
    blocks = padded.reshape(padded.shape[0] // factor, factor, padded.shape[1] // factor, factor, channels)
    with np.errstate(invalid="ignore", over="ignore"):
        shrunk: Values = blocks.max(axis=(1, 3)) if largest else blocks.mean(axis=(1, 3))
    return shrunk


def _save(values: Values, extent: tuple[float, float], path: Path) -> None:
    """Write a picture as PNG, `extent` being black and white; the bytes depend on the values only."""
    from PIL import Image

    low, high = extent
    with np.errstate(invalid="ignore", over="ignore"):
        shades = ((values - low) / ((high - low) or 1.0)).clip(0.0, 1.0)
    coloured = np.repeat(shades, 3, axis=2) if shades.shape[2] == 1 else shades
    pixels = np.rint(np.nan_to_num(coloured) * 255.0).astype(np.uint8)
    pixels[~np.isfinite(values).all(axis=2)] = MAGENTA
    Image.fromarray(pixels).save(path, format="PNG", compress_level=6)
