"""The NVIDIA GPU of this machine, by the CUDA driver: whether there is one, and its memory as numpy arrays.

Looking needs nothing but the driver's library. Using it needs the package cuda-bindings, which only the
environment of a GPU host has; a machine without a GPU never imports it.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.contract import Kind
from runtimes.kit.tensors import Array
from runtimes.kit.work import fail, refuse

LIBRARY = "libcuda.so.1"
NODES = "nvidia*"
"""The device files below /dev that the driver works through."""
UNWRITTEN = 0xFF
"""What fills an output before it is calculated: NaN in every float."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU that is here.

    Attributes:
        name: the vendor's name of it.
        capability: its compute capability, such as `SM89`.
        driver: the newest CUDA version that its driver knows, such as `13.0`.
    """

    name: str
    capability: str
    driver: str


def absent() -> str:
    """Return why there is no GPU here, with what was looked at; "" where there is one."""
    nodes = sorted(path.name for path in Path("/dev").glob(NODES))
    seen = f"/dev has {', '.join(nodes) or 'no ' + NODES}"
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return f"the CUDA driver cannot be loaded ({error}), and {seen}"
    count = ctypes.c_int(0)
    for name, code in (
        ("cuInit", driver.cuInit(0)),
        ("cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.byref(count))),
    ):
        if code:
            return f"{name} of {LIBRARY} ended with CUDA error {code}, and {seen}"
    return "" if count.value else f"the CUDA driver sees no GPU, and {seen}"


def find() -> Gpu:
    """Return the first GPU.

    Raises:
        Refused: there is none.
        Failed: the environment cannot use it.
    """
    if why := absent():
        refuse(
            Kind.NO_DEVICE,
            f"no NVIDIA GPU here: {why}",
            hint="the engine is built; run it where the GPU and its driver are (docs/runtimes/tensorrt.md)",
        )
    cuda = _cuda()
    call(cuda.cuInit, 0)
    number = call(cuda.cuDeviceGet, 0)
    kinds = cuda.CUdevice_attribute
    major = call(cuda.cuDeviceGetAttribute, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number)
    minor = call(cuda.cuDeviceGetAttribute, kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number)
    name = call(cuda.cuDeviceGetName, 256, number).split(b"\0", 1)[0].decode("utf-8", "replace")
    version = call(cuda.cuDriverGetVersion)
    # TensorRT works in the primary context, and so must what we allocate.
    call(cuda.cuCtxSetCurrent, call(cuda.cuDevicePrimaryCtxRetain, number))
    return Gpu(name=name, capability=f"SM{major}{minor}", driver=f"{version // 1000}.{version % 1000 // 10}")


def check_target(gpu: Gpu, target: str, capabilities: Sequence[str]) -> None:
    """Refuse a GPU that is none of those that `target` is for."""
    if gpu.capability not in capabilities:
        refuse(
            Kind.NO_DEVICE,
            f"target {target}: the GPU here is {gpu.name}, {gpu.capability}, not {' or '.join(capabilities)}",
            hint=f"ask for the target {gpu.capability.lower()}, or run it on the GPU that it is for",
        )


def _cuda() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        fail(
            Kind.MISSING_PACKAGE,
            f"there is a GPU, but this environment cannot use it: {error}",
            hint="this host shows no /dev/nvidia*, by which aipc takes the environment with cuda-bindings instead",
        )


def call(function: Any, *arguments: Any) -> Any:
    """Return what a function of the CUDA driver gives, without its error code.

    Raises:
        Failed: the code is an error.
    """
    code, *values = function(*arguments)
    if int(code):
        fail(Kind.TOOLCHAIN, f"{function.__name__} of the CUDA driver failed: {getattr(code, 'name', code)}")
    return values[0] if values else None


class Buffers:
    """Memory of the GPU for one inference, and the stream that it happens in; close it to give the memory back."""

    def __init__(self) -> None:
        self._cuda = _cuda()
        self._places: list[Any] = []
        self._stream = call(self._cuda.cuStreamCreate, 0)

    @property
    def stream(self) -> int:
        """The stream's handle."""
        return int(self._stream)

    def upload(self, array: Array) -> int:
        """Return the address of a copy of `array` on the GPU."""
        whole = np.ascontiguousarray(array)
        place = self._allocate(whole.nbytes)
        call(self._cuda.cuMemcpyHtoD, place, whole.ctypes.data, whole.nbytes)
        return int(place)

    def reserve(self, size_bytes: int) -> int:
        """Return the address of memory on the GPU, filled with what no calculation leaves there."""
        place = self._allocate(size_bytes)
        call(self._cuda.cuMemsetD8, place, UNWRITTEN, max(size_bytes, 1))
        return int(place)

    def download(self, address: int, shape: Sequence[int], dtype: str) -> Array:
        """Return the tensor at `address`."""
        array = np.empty(tuple(shape), dtype=dtype)
        call(self._cuda.cuMemcpyDtoH, array.ctypes.data, address, array.nbytes)
        return array

    def wait(self) -> None:
        """Wait until the stream has done everything."""
        call(self._cuda.cuStreamSynchronize, self._stream)

    def close(self) -> None:
        """Give everything back."""
        for place in self._places:
            call(self._cuda.cuMemFree, place)
        call(self._cuda.cuStreamDestroy, self._stream)

    def _allocate(self, size_bytes: int) -> Any:
        self._places.append(call(self._cuda.cuMemAlloc, max(size_bytes, 1)))
        return self._places[-1]
