"""What OpenVINO tells of a compiled model."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from runtimes.contract import Json

NOT_LAYERS = ("Input", "Const", "Output")


def told(core: Any, compiled: Any, device: str) -> dict[str, Json]:
    """Return what is good to know of a run, by OpenVINO's own names; what a device does not tell is left out."""
    questions: Mapping[str, Callable[[], Json]] = {
        "FULL_DEVICE_NAME": lambda: str(core.get_property(device, "FULL_DEVICE_NAME")),
        "PERFORMANCE_HINT": lambda: str(compiled.get_property("PERFORMANCE_HINT")),
        "kernels": lambda: _kernels(compiled.get_runtime_model()),
    }
    found = {}
    for name, ask in questions.items():
        with contextlib.suppress(RuntimeError):
            found[name] = ask()
    return found


def _kernels(layers: Any) -> dict[str, int]:
    """Return how many layers of a compiled model each kernel calculates; it does not say on which device."""
    counts: Counter[str] = Counter()
    for node in layers.get_ordered_ops():
        facts = node.get_rt_info()
        layer, kernel = (str(facts[key].astype(str)) if key in facts else "" for key in ("layerType", "primitiveType"))
        counts[kernel] += layer not in NOT_LAYERS
    return {kernel: count for kernel, count in sorted(counts.items()) if count}
