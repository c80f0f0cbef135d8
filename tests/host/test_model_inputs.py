"""What an input may hold: a mask is of any dtype, other contents are not."""

from __future__ import annotations

import pytest

from aipc.model import Content, Input
from runtimes.contract import Misused


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "float32"])
def test_a_mask_is_of_any_dtype(dtype: str) -> None:
    assert Input(name="mask", shape=(1, 8), dtype=dtype, content=Content.MASK).dtype == dtype


@pytest.mark.parametrize("content", [Content.UNIFORM, Content.NORMAL])
def test_whole_numbers_hold_no_fractions(content: Content) -> None:
    with pytest.raises(Misused, match="'int64' does not hold content"):
        Input(name="x", shape=(1, 8), dtype="int64", content=content)
