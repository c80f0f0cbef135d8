"""What an input is taken for where only a file tells of it."""

from __future__ import annotations

from runtimes.contract import Kind
from runtimes.kit import tensors
from runtimes.kit.work import refuse
from runtimes.reference.options import Content, Input


def describe_input(
    name: str, shape: tuple[int, ...], dtype: str, *, rows: int = 0, masks: bool = False
) -> tuple[Input, str]:
    """Return the input that a file tells of, and a note that says what it is taken for.

    Args:
        name: the input's.
        shape: its sizes.
        dtype: its type.
        rows: of whole numbers that pick rows of a table, how many it has; 0 where that is not known.
        masks: whether it says by 1 and 0 what counts.

    Raises:
        Refused: its type does not travel.
    """
    if dtype not in tensors.DTYPES:
        refuse(
            Kind.UNSUPPORTED_OP,
            f"input {name}: has the type {dtype}, which is not supported",
            hint=f"use one of {', '.join(tensors.DTYPES)}",
        )
    pictured = len(shape) == 4 and shape[1] in {1, 3, 4}
    if pictured and dtype == "uint8":
        words = "a picture, black 0 and white 255"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.PICTURE, high=255.0)
    elif rows > 1 and not dtype.startswith("float"):
        words = f"indices from 0 to {rows - 1}, as the table has {rows} rows"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.INTEGERS, high=rows - 1)
    elif masks and shape and not dtype.startswith("float"):
        words = "a mask: ones, and in some samples zeros at its end"
        made = Input(name=name, shape=shape, dtype=dtype, content=Content.MASK)
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
