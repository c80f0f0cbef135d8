"""The wall to foreign code: a model's own code, and what of PyTorch runs it, may raise anything at all."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator

from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, Refused
from runtimes.kit.worker import NO_SPACE

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_UNSAID = "<exception str() failed>"
"""What Python writes for an error that raises another one when it is asked what it says."""

_NO_MEMORY = re.compile(r"can't allocate memory|std::bad_alloc|bad allocation|Failed to allocate memory", re.IGNORECASE)
"""What PyTorch and ONNX Runtime say, in errors of no type of their own, when there is no memory left."""


@contextlib.contextmanager
def wall(
    where: str,
    *,
    kind: Kind | Callable[[BaseException], Kind] = Kind.INVALID_MODEL,
    hint: str = "",
    ends: type[Failed | Refused] = Failed,
) -> Iterator[None]:
    """Tell whatever the code inside raises as the model's failure, not as one of this project.

    A list of exceptions would not do: a package that a model uses may have its own, and `sys.exit` is one too.

    Args:
        where: what is done, for the message.
        kind: what sort of failure it is, or what tells it from the exception.
        hint: what a person can do.
        ends: what is raised.

    Raises:
        Refused: a package is missing.
        Failed: there is no memory left.
        Exception: an `ends` for anything else, but the code's own Refused and Failed, and a full disk, as they are.
    """
    try:
        yield
    except (Refused, Failed):
        raise
    except ModuleNotFoundError as error:
        raise Refused(_missing_package(error, where)) from error
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise
        said = words(error)
        failure = out_of_memory(error, where) or Failure(
            kind=kind(error) if callable(kind) else kind, message=f"{where}: {said}", hint=hint
        )
        # The worker quotes the cause once more: it must be plain text, and must not raise when asked what it says.
        cause: BaseException = error
        if _raw(error) != said or _UNSAID in said:
            cause = RuntimeError(said)
            cause.__cause__ = error
        raise (Failed if failure.kind is Kind.MEMORY else ends)(failure) from cause


def out_of_memory(error: BaseException, where: str) -> Failure | None:
    """Return the failure that `error` is where it says that there is no memory left, else None."""
    if not isinstance(error, MemoryError) and not _NO_MEMORY.search(_raw(error)):
        return None
    return Failure(
        kind=Kind.MEMORY,
        message=f"{where}: {words(error)}",
        hint="it may use more where memory_bytes in runtime.toml says so",
    )


def _missing_package(error: ModuleNotFoundError, where: str) -> Failure:
    package = (error.name or str(error)).partition(".")[0]
    return Failure(
        kind=Kind.MISSING_PACKAGE,
        message=f"{where}: needs the package {package}: {error}",
        hint=f"give the model an environment of its own: a folder in images/ whose requirements.in names {package}, "
        "and that folder's name as the model's environment",
    )


def words(error: BaseException) -> str:
    """Return the type of `error` and what it says, without the terminal colours that some write into it."""
    return _COLOURS.sub("", _raw(error))


def _raw(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
