"""A GPU that is none, for tests of how an engine is run: a stand-in for the CUDA driver and for TensorRT's runtime.

It is put in front of a job inside the environment tensorrtgpu, whose CUDA bindings and TensorRT stay real but for what
needs a device: memory is the host's, and the "engine" is `y = relu(x)` on float32. It checks what it is told as the
vendors' documents say, and answers wrong use as they do: with False, None, or an error code. `FAULTS` makes it fail.
"""

# ruff: noqa: N802 - the names are the driver's

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np

FAULTS: set[str] = set()
SHAPE = (1, 3, 16, 20)
DYNAMIC = False
MAJOR, MINOR = 8, 9


def install_library() -> None:
    """Put the driver's library in place: there is a GPU to be seen."""
    really_load = ctypes.CDLL

    def load(name: str, *rest: Any) -> Any:
        return Library() if name == "libcuda.so.1" else really_load(name, *rest)

    put(ctypes, CDLL=load)


def install() -> None:
    """Put the stand-in in place of the driver and of TensorRT's runtime."""
    install_library()
    trt, driver = (importlib.import_module(name) for name in ("tensorrt_rtx_bindings", "cuda.bindings.driver"))
    memory = Memory(driver)
    put(driver, **{name: getattr(memory, name) for name in dir(Memory) if name.startswith("cu")})
    put(trt, Runtime=lambda logger: Runtime(trt, logger, memory))


def put(module: Any, **things: Any) -> None:
    """Put things in a module in place of its own."""
    for name, thing in things.items():
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, thing)


class Library:
    """The driver's library as `ctypes` opens it."""

    def cuInit(self, _flags: int) -> int:
        return 100 if "no device" in FAULTS else 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 0 if "no count" in FAULTS else 1
        return 0


class Memory:
    """The driver's functions as cuda-bindings has them: each returns an error code, and then its values."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.blocks: dict[int, Any] = {}
        self.done: list[str] = []

    def _code(self, name: str) -> Any:
        self.done.append(name)
        codes = self.driver.CUresult
        return codes.CUDA_ERROR_OUT_OF_MEMORY if name in FAULTS else codes.CUDA_SUCCESS

    def cuInit(self, flags: int) -> tuple[Any]:
        assert flags == 0
        return (self._code("cuInit"),)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, Any]:
        return self._code("cuDeviceGet"), self.driver.CUdevice(ordinal)

    def cuDeviceGetAttribute(self, kind: Any, _device: Any) -> tuple[Any, int]:
        major = kind == self.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        return self._code("cuDeviceGetAttribute"), MAJOR if major else MINOR

    def cuDeviceGetName(self, length: int, _device: Any) -> tuple[Any, bytes]:
        return self._code("cuDeviceGetName"), b"Stand-in".ljust(length, b"\0")

    def cuDriverGetVersion(self) -> tuple[Any, int]:
        return self._code("cuDriverGetVersion"), 13020

    def cuDevicePrimaryCtxRetain(self, _device: Any) -> tuple[Any, Any]:
        return self._code("cuDevicePrimaryCtxRetain"), self.driver.CUcontext(1)

    def cuCtxSetCurrent(self, _context: Any) -> tuple[Any]:
        return (self._code("cuCtxSetCurrent"),)

    def cuStreamCreate(self, flags: int) -> tuple[Any, Any]:
        assert flags == 0
        return self._code("cuStreamCreate"), self.driver.CUstream(7)

    def cuStreamSynchronize(self, _stream: Any) -> tuple[Any]:
        return (self._code("cuStreamSynchronize"),)

    def cuStreamDestroy(self, _stream: Any) -> tuple[Any]:
        return (self._code("cuStreamDestroy"),)

    def cuMemAlloc(self, size_bytes: int) -> tuple[Any, Any]:
        assert size_bytes > 0
        block = (ctypes.c_uint8 * size_bytes)()
        self.blocks[ctypes.addressof(block)] = block
        return self._code("cuMemAlloc"), self.driver.CUdeviceptr(ctypes.addressof(block))

    def cuMemFree(self, place: Any) -> tuple[Any]:
        del self.blocks[int(place)]
        return (self._code("cuMemFree"),)

    def cuMemsetD8(self, place: Any, value: int, count: int) -> tuple[Any]:
        ctypes.memset(int(place), value, self._within(place, count))
        return (self._code("cuMemsetD8"),)

    def cuMemcpyHtoD(self, place: Any, host: int, count: int) -> tuple[Any]:
        ctypes.memmove(int(place), host, self._within(place, count))
        return (self._code("cuMemcpyHtoD"),)

    def cuMemcpyDtoH(self, host: int, place: Any, count: int) -> tuple[Any]:
        assert "cuStreamSynchronize" in self.done, "the outputs are taken before they are there"
        ctypes.memmove(host, int(place), self._within(place, count))
        return (self._code("cuMemcpyDtoH"),)

    def _within(self, place: Any, count: int) -> int:
        assert count <= len(self.blocks[int(place)])
        return count


class Runtime:
    """TensorRT's runtime, and the engine and the context that come of it."""

    def __init__(self, trt: Any, logger: Any, memory: Memory) -> None:
        self.trt, self.logger, self.memory = trt, logger, memory
        self.num_io_tensors = 2
        self.num_layers = 1
        self.addresses: dict[str, int] = {}
        self.given: tuple[int, ...] = ()

    def deserialize_cuda_engine(self, plan: bytes) -> Runtime | None:
        assert plan
        if "engine" in FAULTS:
            self.logger.log(self.trt.ILogger.Severity.ERROR, "IRuntime::deserializeCudaEngine: Error Code 6: too old")
            return None
        return self

    def create_execution_context(self) -> Runtime | None:
        self.addresses, self.given = {}, ()
        return None if "context" in FAULTS else self

    def get_tensor_name(self, index: int) -> str:
        return ("x", "y")[index]

    def get_tensor_mode(self, name: str) -> Any:
        return self.trt.TensorIOMode.INPUT if name == "x" else self.trt.TensorIOMode.OUTPUT

    def get_tensor_dtype(self, _name: str) -> Any:
        return self.trt.DataType.FLOAT

    def get_tensor_location(self, _name: str) -> Any:
        return self.trt.TensorLocation.HOST if "location" in FAULTS else self.trt.TensorLocation.DEVICE

    def get_tensor_shape(self, name: str) -> Any:
        if "shape" in FAULTS and name == "y":
            return self.trt.Dims((-1, *SHAPE[1:]))
        return self.trt.Dims(self.given or ((-1, *SHAPE[1:]) if DYNAMIC else SHAPE))

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name == "x"
        self.given = tuple(shape)
        return shape == SHAPE

    def infer_shapes(self) -> list[str]:
        return [] if "x" in self.addresses and (self.given or not DYNAMIC) else ["x"]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return "address" not in FAULTS and address in self.memory.blocks

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == 7
        if "start" in FAULTS or set(self.addresses) != {"x", "y"}:
            return False
        if "late error" in FAULTS:
            self.logger.log(self.trt.ILogger.Severity.ERROR, "IExecutionContext::enqueueV3: Error Code 1: Cuda Runtime")
        if "silent" not in FAULTS:
            given, made = (self._tensor(name) for name in ("x", "y"))
            np.maximum(given, 0, out=made)
        return True

    def _tensor(self, name: str) -> Any:
        return np.frombuffer(self.memory.blocks[self.addresses[name]], np.float32).reshape(SHAPE)
