"""What an input is taken for where only a file tells of it."""

from __future__ import annotations

from runtimes.contract import Kind
from runtimes.kit import tensors
from runtimes.kit.work import refuse
from runtimes.reference.options import Content, Input


def describe_input(name: str, shape: tuple[int, ...], dtype: str) -> tuple[Input, str]:
    """Return the input that a file tells of, and a note that says what it is taken for.

    Raises:
        Refused: its type does not travel.
    """
    if dtype not in tensors.DTYPES:
        refuse(
            Kind.INVALID_MODEL,
            f"input {name}: has the type {dtype}",
            hint=f"use one of {', '.join(tensors.DTYPES)}",
        )
    pictured = len(shape) == 4 and shape[1] in {1, 3, 4}
    if pictured and dtype == "uint8":
        words = "a picture, black 0 and white 255"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.PICTURE, high=255.0)
    elif not dtype.startswith("float"):
        words = "whole numbers from 0 to 1, the only ones that suit every index"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.INTEGERS)
    elif pictured:
        words = "a picture, black 0 and white 1"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.PICTURE)
    else:
        words = "numbers between -1 and 1"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.UNIFORM, low=-1.0, high=1.0)
    note = (
        f"input {name} {dtype} {list(shape)} is taken for {words}; name the inputs in matrix.toml where that is wrong"
    )
    return made, note
