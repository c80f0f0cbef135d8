"""Which results of jobs the store keeps: those that would come out the same the next time."""

from __future__ import annotations

import pytest

from aipc import jobs
from runtimes.contract import Failure, Kind, Result, Status


@pytest.mark.parametrize(
    ("status", "kind", "kept"),
    [
        (Status.FAILED, Kind.REWRITE, True),
        (Status.REFUSED, Kind.UNSUPPORTED_OP, True),
        (Status.REFUSED, Kind.NO_DEVICE, False),
        (Status.FAILED, Kind.TOOLCHAIN, False),
        (Status.FAILED, Kind.CRASH, False),
        (Status.CRASHED, Kind.CRASH, False),
    ],
)
def test_a_failure_is_kept_where_it_would_come_out_the_same(status: Status, kind: Kind, kept: bool) -> None:
    assert jobs._is_kept(Result(status=status, failure=Failure(kind=kind, message="no"))) is kept


def test_what_is_done_is_kept() -> None:
    assert jobs._is_kept(Result(status=Status.DONE))
