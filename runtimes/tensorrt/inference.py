"""Running a serialised engine on a GPU, by TensorRT's API of named tensors (the same in 10, 11 and for RTX)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from runtimes.contract import Kind
from runtimes.kit.ports import Port
from runtimes.kit.tensors import Array
from runtimes.kit.work import fail
from runtimes.tensorrt.device import Buffers
from runtimes.tensorrt.network import DTYPES
from runtimes.tensorrt.product import ERRORS, Product


class Engine:
    """An engine in the GPU's memory.

    Attributes:
        inputs: what it takes; a size of −1 is dynamic.
        outputs: what it gives.
    """

    def __init__(self, product: Product, plan: bytes) -> None:
        self._product = product
        self._runtime = product.module.Runtime(product.logger)
        self._engine = self._runtime.deserialize_cuda_engine(plan) or self._give_up("does not take the engine")
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        modes = product.module.TensorIOMode
        self.inputs = [self._port(name) for name in names if self._engine.get_tensor_mode(name) == modes.INPUT]
        self.outputs = [self._port(name) for name in names if self._engine.get_tensor_mode(name) == modes.OUTPUT]

    @property
    def layers(self) -> int:
        """How many layers it has after TensorRT has fused them."""
        return int(self._engine.num_layers)

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name; a context of its own sees to it that nothing is left from another sample.

        Raises:
            Failed: TensorRT or the driver reports an error, or a shape stays unknown.
        """
        context = self._engine.create_execution_context() or self._give_up("makes no execution context")
        with contextlib.closing(Buffers()) as buffers:
            for port in self.inputs:
                array = feeds[port.name]
                if -1 in port.shape and not context.set_input_shape(port.name, array.shape):
                    self._give_up(f"does not take the shape {list(array.shape)} of {port.name!r}")
                self._bind(context, port.name, buffers.upload(array))
            if missing := context.infer_shapes():
                self._give_up(f"does not know the shapes of {', '.join(missing)}")
            places = {}
            for port in self.outputs:
                shape = tuple(context.get_tensor_shape(port.name))
                if -1 in shape:
                    self._give_up(f"gives {port.name!r} a shape that depends on the data, {list(shape)}")
                places[port.name] = (buffers.reserve(math.prod(shape) * np.dtype(port.dtype).itemsize), shape)
                self._bind(context, port.name, places[port.name][0])
            if not context.execute_async_v3(buffers.stream):
                self._give_up("did not start")
            buffers.wait()
            if self._product.words(*ERRORS):
                self._give_up("ran, and reported errors")
            return {port.name: buffers.download(*places[port.name], port.dtype) for port in self.outputs}

    def _bind(self, context: Any, name: str, address: int) -> None:
        if not context.set_tensor_address(name, address):
            self._give_up(f"does not take the memory of {name!r}")

    def _port(self, name: str) -> Port:
        kind = self._engine.get_tensor_dtype(name).name
        if self._engine.get_tensor_location(name) != self._product.module.TensorLocation.DEVICE:
            self._give_up(f"wants {name!r} in the CPU's memory")
        return Port(name=name, shape=tuple(self._engine.get_tensor_shape(name)), dtype=DTYPES.get(kind, kind.lower()))

    def _give_up(self, what: str) -> NoReturn:
        words = "\n".join(["", *self._product.words(*ERRORS)])
        fail(Kind.TOOLCHAIN, f"{self._product.title} {self._product.version} {what}{words}")
