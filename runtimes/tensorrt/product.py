"""Which TensorRT an environment holds, and its words while it works.

Two products have one API: TensorRT for RTX (the package `tensorrt_rtx`) and full TensorRT (`tensorrt`). Either may also
lie there as its binding alone, since the packages that carry the names are sources without a wheel.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from typing import Any

from runtimes.contract import Kind
from runtimes.kit.work import refuse

MODULES = ("tensorrt_rtx", "tensorrt_rtx_bindings", "tensorrt", "tensorrt_bindings")
"""The modules that are TensorRT, in the order in which they are looked for."""
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
    """Return the product that this environment holds.

    Raises:
        Refused: it holds none.
    """
    found = next((name for name in MODULES if importlib.util.find_spec(name)), "")
    if not found:
        refuse(
            Kind.MISSING_PACKAGE,
            f"this environment has none of the packages {', '.join(MODULES)}",
            hint="name an environment with TensorRT in runtimes/tensorrt/runtime.toml",
        )
    module = importlib.import_module(found)
    title = "TensorRT for RTX" if "rtx" in found else "TensorRT"
    product = Product(module=module, title=title, version=str(module.__version__), logger=_make_logger(module))
    # Operators such as RoiAlign are plugins, which both the parser and the engine look for.
    module.init_libnvinfer_plugins(product.logger, "")
    return product


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
