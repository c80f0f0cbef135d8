"""Which TensorRT an environment holds, and its words while it works.

Two products have one API: TensorRT for RTX (the package `tensorrt_rtx`) and full TensorRT (`tensorrt`). Either may also
lie there as its binding alone, since the packages that carry the names are sources without a wheel.

Full TensorRT is no part of any environment of ours: the user has it in a folder, which `TENSORRT_ROOT` names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtimes.contract import Kind
from runtimes.kit.work import refuse

MODULES = ("tensorrt_rtx", "tensorrt_rtx_bindings", "tensorrt", "tensorrt_bindings")
"""The modules that are TensorRT, in the order in which they are looked for."""
ROOT = "TENSORRT_ROOT"
"""The variable that names a folder with the packages of full TensorRT, as `pip install --target` leaves them."""
FULL = ("tensorrt", "tensorrt_bindings")
"""What is looked for there; nothing else is then taken for it."""
ERRORS = ("INTERNAL_ERROR", "ERROR")
"""Severities of a message that a build or a run may not have and still be believed."""
KEPT = (*ERRORS, "WARNING")
_PARSING = re.compile(r"Parsing node: (?P<node>.*) \[(?P<op>[^\]]+)\]$")


@dataclass(frozen=True, kw_only=True)
class Product:
    """The TensorRT of this environment.

    Attributes:
        module: TensorRT's Python module.
        title: the product's name.
        version: its version.
        logger: keeps what it says in `messages`, and in `nodes` the ONNX nodes that were parsed, each with its
            operator; give it to everything that asks for a logger.
    """

    module: Any
    title: str
    version: str
    logger: Any

    @property
    def ahead_of_time(self) -> bool:
        """Whether it builds for a GPU that is not here; full TensorRT builds for the one that it measures on."""
        return hasattr(self.module, "ComputeCapability")

    def words(self, *severities: str) -> list[str]:
        """Return what it has said so far in `severities`, each message once, in its order."""
        return list(dict.fromkeys(text for severity, text in self.logger.messages if severity in severities))


def load() -> Product:
    """Return the product that the folder of `TENSORRT_ROOT` holds, or else this environment.

    Raises:
        Refused: it holds none, or one that this Python or this machine does not load.
    """
    root = os.environ.get(ROOT, "")
    module = _given(root) if root else _installed()
    found = module.__name__
    title = "TensorRT for RTX" if "rtx" in found else "TensorRT"
    product = Product(module=module, title=title, version=str(module.__version__), logger=_make_logger(module))
    # Operators such as RoiAlign are plugins, which both the parser and the engine look for.
    module.init_libnvinfer_plugins(product.logger, "")
    return product


def _installed() -> Any:
    found = next((name for name in MODULES if importlib.util.find_spec(name)), "")
    if not found:
        refuse(
            Kind.MISSING_PACKAGE,
            f"this environment has none of the packages {', '.join(MODULES)}",
            hint="name an environment with TensorRT in runtimes/tensorrt/runtime.toml",
        )
    return importlib.import_module(found)


def _given(root: str) -> Any:
    """Return the TensorRT in the folder `root`; all else that is imported stays this environment's."""
    hint = f"see docs/runtimes/tensorrt.md for what belongs into it, or unset {ROOT}"
    found = next((name for name in FULL if (Path(root) / name / "__init__.py").is_file()), "")
    if not found:
        refuse(Kind.MISSING_PACKAGE, f"{ROOT}: its folder has none of the packages {', '.join(FULL)}", hint=hint)
    if root not in sys.path:
        sys.path.append(root)
    try:
        return importlib.import_module(found)
    except (ImportError, OSError) as error:
        refuse(Kind.MISSING_PACKAGE, f"{ROOT}: {found} in its folder cannot be loaded: {error}", hint=hint)


def _make_logger(module: Any) -> Any:
    """Return a logger that keeps warnings and errors and prints them, and keeps which nodes the parser came to.

    TensorRT has one logger in a process: the first that it is given.
    """

    class Logger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.messages: list[tuple[str, str]] = []
            self.nodes: dict[str, str] = {}

        def log(self, severity: Any, text: str) -> None:
            if severity.name in KEPT:
                self.messages.append((severity.name, text))
                sys.stderr.write(f"TensorRT {severity.name}: {text}\n")
            elif found := _PARSING.match(text):
                self.nodes[found["node"]] = found["op"]

    return Logger()
