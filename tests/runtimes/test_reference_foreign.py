"""The wall to foreign code: whatever is raised inside becomes the model's failure, in plain words."""

from __future__ import annotations

import errno

import pytest

from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, Refused, fail, refuse
from runtimes.reference import foreign


class Odd(Exception):
    """An error of no type that anybody could list."""


class Silent(Exception):
    """An error that raises another one when it is asked what it says."""

    def __str__(self) -> str:
        raise Odd


def failure(error: BaseException, ends: type[Failed | Refused] = Failed) -> Failure:
    with pytest.raises((Failed, Refused)) as caught, foreign.wall("the model", hint="mend it", ends=ends):
        raise error
    assert type(caught.value) is ends
    assert "\x1b" not in str(caught.value.__cause__)
    return caught.value.failure


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Odd("it broke"), "Odd: it broke"),
        (Odd(), "Odd"),
        (KeyError("layer"), "KeyError: 'layer'"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("many", [Odd("one")]), "ExceptionGroup: many (1 sub-exception)"),
        (RuntimeError("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m"), "RuntimeError: red and bold"),
        (Silent(), "Silent: <exception str() failed>"),
    ],
)
def test_whatever_is_raised_is_told_in_plain_words(error: BaseException, words: str) -> None:
    found = failure(error)
    assert (found.kind, found.hint) == (Kind.INVALID_MODEL, "mend it")
    assert found.message.startswith("the model: ")
    assert found.message.endswith(words)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes. Error code 12"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("Failed to allocate memory for requested buffer of size 4398046511104"),
    ],
)
@pytest.mark.parametrize("ends", [Failed, Refused])
def test_no_memory_left_is_a_failure_of_its_own_kind(error: Exception, ends: type[Failed | Refused]) -> None:
    with pytest.raises(Failed) as caught, foreign.wall("the model", ends=ends):
        raise error
    assert caught.value.failure.kind is Kind.MEMORY
    assert "memory_bytes in runtime.toml" in caught.value.failure.hint


def test_what_our_own_code_says_inside_stands() -> None:
    with pytest.raises(Refused, match="^not a tensor$"), foreign.wall("the model"):
        refuse(Kind.OPTION, "not a tensor")
    with pytest.raises(Failed, match="^no agreement$"), foreign.wall("the model", ends=Refused):
        fail(Kind.TOOLCHAIN, "no agreement")


def test_a_full_disk_and_a_user_who_interrupts_are_not_the_models_fault() -> None:
    for error in (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises(type(error)), foreign.wall("the model"):
            raise error
    assert "No such file" in failure(FileNotFoundError(errno.ENOENT, "No such file")).message


def test_a_package_that_is_missing_is_named() -> None:
    found = failure(ModuleNotFoundError("No module named 'mmcv.ops'", name="mmcv.ops"), Refused)
    assert (found.kind, found.message) == (
        Kind.MISSING_PACKAGE,
        "the model: needs the package mmcv: No module named 'mmcv.ops'",
    )
    assert "requirements.in names mmcv" in found.hint


def test_the_kind_and_the_end_are_the_callers_choice() -> None:
    with pytest.raises(Refused) as caught, foreign.wall("x", kind=lambda error: Kind(str(error)), ends=Refused):
        raise Odd("timeout")
    assert caught.value.failure.kind is Kind.TIMEOUT
