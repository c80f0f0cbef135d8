"""Weights without code: what spandrel recognises by its keys, in PyTorch's, safetensors' or ncnn's format."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251 - only the name of the error; nothing is unpickled here
from typing import Any

from runtimes.contract import Failure, Kind, suggest
from runtimes.kit.work import Failed, Refused, refuse
from runtimes.reference import foreign, ncnn

SUFFIXES = (".pth", ".pt", ".ckpt", ".safetensors")

_SPANDREL: Mapping[str, str] = {"esrgan": "ESRGAN", "compact": "Compact"}
"""ncnn's architectures, by spandrel's name."""

_MISFIT = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What spandrel raises for weights that look like an architecture and are not."""

_ANEW = "get the file anew; a state dict saved by torch.save, or safetensors, is what can be read"

_OTHER = "write a function that builds the model and loads these weights, and name it module:function"

_schemas: list[Any] = []
"""Keeps alive what `_import_spandrel` declared; PyTorch forgets a library that is collected."""


def from_ncnn(param: Path, weights: Path, architecture: str) -> tuple[Any, int]:
    """Return the module of ncnn files and how many channels it takes.

    Args:
        param: the `.param` file.
        weights: the `.bin` file.
        architecture: a key of `ncnn.ARCHITECTURES`.

    Raises:
        Refused: the files do not fit each other, or the architecture.
    """
    import torch

    if architecture not in _SPANDREL:
        refuse(Kind.OPTION, f"architecture {architecture!r}: is not known{suggest(architecture, _SPANDREL)}")
    try:
        arrays = ncnn.read(param, weights, architecture)
    except ncnn.BadWeights as error:
        raise Refused(Failure(kind=Kind.INVALID_WEIGHTS, message=str(error))) from error
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with _spandrel_unopened():
        architectures = importlib.import_module(f"spandrel.architectures.{_SPANDREL[architecture]}")
        known = getattr(architectures, f"{_SPANDREL[architecture]}Arch")()
    if not known.detect(state):
        refuse(Kind.INVALID_WEIGHTS, f"{weights.name}: spandrel does not take these weights for {known.name}")
    return _describe(known.load, state, weights.name)


def from_file(path: Path, *, trusted: bool) -> tuple[Any, int, tuple[str, ...]]:
    """Return the module of a checkpoint, how many channels it takes (0: it does not tell), and notes.

    Args:
        path: a file with one of `SUFFIXES`.
        trusted: whether it may run code while it is read; only then may it hold a whole module.

    Raises:
        Refused: it is cut short, wants to run code, or spandrel does not know it.
        Failed: there is no memory left.
    """
    import torch

    held = _read(path, trusted=trusted)
    if isinstance(held, torch.nn.Module):
        return held, 0, (f"{path.name} holds a whole module, and ran its code while it was read, as you allowed",)
    spandrel = _import_spandrel()
    try:
        found = _describe(spandrel.ModelLoader("cpu").load_from_state_dict, _state(held, path), path.name)
    except spandrel.UnsupportedModelError as error:
        message = f"{path.name}: spandrel knows no architecture with these weights: {error or 'none of its keys fit'}"
        raise Refused(Failure(kind=Kind.INVALID_MODEL, message=message, hint=_OTHER)) from error
    return *found, ()


def recognise(path: Path) -> tuple[dict[str, Any], str]:
    """Return the tensors in a checkpoint by name, and spandrel's name for their architecture, "" where it knows none.

    Raises:
        Refused: it is cut short, or wants to run code.
    """
    import torch

    spandrel = _import_spandrel()
    state = spandrel.canonicalize_state_dict(_state(_read(path, trusted=False), path))
    known = [each.architecture for each in spandrel.MAIN_REGISTRY.architectures("detection") if each.detect(state)]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    return tensors, known[0].name if known else ""


def _state(held: Any, path: Path) -> dict[str, Any]:
    if not isinstance(held, Mapping):
        refuse(Kind.INVALID_WEIGHTS, f"{path.name}: holds a {type(held).__name__}, not weights by name", hint=_OTHER)
    return dict(held)


def _describe(make: Any, state: dict[str, Any], name: str) -> tuple[Any, int]:
    try:
        made = make(state)
    except _MISFIT as error:
        failure = foreign.out_of_memory(error, f"{name}: building the model")
        if failure:
            raise Failed(failure) from error
        message = f"{name}: these weights do not fit: {type(error).__name__}: {error}"
        raise Refused(Failure(kind=Kind.INVALID_WEIGHTS, message=message)) from error
    return made.model, int(made.input_channels)


def _read(path: Path, *, trusted: bool) -> Any:
    return _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_torch(path, trusted=trusted)


def _read_torch(path: Path, *, trusted: bool) -> Any:
    import torch

    if _holds_compiled_code(path):
        refuse(
            Kind.INVALID_WEIGHTS,
            f"{path.name}: is a TorchScript archive (torch.jit.save): compiled code, not weights by name",
            hint="save the weights of the Python module it was made of (torch.save(model.state_dict(), …)), "
            "or the module itself with torch.export.save",
        )
    if trusted:
        with foreign.wall(_unreadable(path), kind=Kind.INVALID_WEIGHTS, hint=_ANEW, ends=Refused):
            return torch.load(path, map_location="cpu", weights_only=False)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        plain = UnpicklingError(foreign.words(error).partition(": ")[2]).with_traceback(error.__traceback__)
        if "Unsupported global" not in str(plain) and "Unsupported class" not in str(plain):
            raise _unread(path, plain) from plain
        raise Refused(
            Failure(
                kind=Kind.UNTRUSTED_WEIGHTS,
                message=f"{path.name}: would run code while it is read: {plain}",
                hint="save the state dict alone (torch.save(model.state_dict(), …)) or as safetensors; "
                "or set trusted = true if you made this file yourself",
            )
        ) from plain
    except (AttributeError, EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise _unread(path, error) from error


def _holds_compiled_code(path: Path) -> bool:
    """Tell whether a file is what `torch.jit.save` writes."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.count("/") == 1 and name.endswith("/constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False  # damaged, which PyTorch says better


def _read_safetensors(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _unread(path, error) from error


def _unread(path: Path, error: BaseException) -> Refused | Failed:
    """Return what to raise for a file that could not be read."""
    failure = foreign.out_of_memory(error, _unreadable(path))
    if failure:
        return Failed(failure)
    words = foreign.words(error) if str(error) else f"{type(error).__name__}: it ends too early"
    return Refused(Failure(kind=Kind.INVALID_WEIGHTS, message=f"{_unreadable(path)}: {words}", hint=_ANEW))


def _unreadable(path: Path) -> str:
    return f"{path.name} ({path.stat().st_size} bytes): cannot be read"


@contextlib.contextmanager
def _spandrel_unopened() -> Iterator[None]:
    """Let one architecture of spandrel be imported without all the others.

    Its `__init__` imports every architecture; two of them need torchvision, which takes longer to import than PyTorch.
    Here the package stands on the path without having run its `__init__`, and is put away afterwards.
    """
    if "spandrel" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("spandrel")
    if spec is None:
        raise ModuleNotFoundError("No module named 'spandrel'", name="spandrel")
    sys.modules["spandrel"] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules["spandrel"]


def _import_spandrel() -> Any:
    """Return spandrel with every architecture.

    It imports torchvision, whose usual build does not import beside a CPU build of PyTorch
    until two operators are declared.
    """
    import torch

    if "torchvision" not in sys.modules and not _schemas:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _schemas.append(library)
    return importlib.import_module("spandrel")
