"""The TensorRT runtime: ONNX to a serialised engine, by TensorRT for RTX or by full TensorRT, run on an NVIDIA GPU."""
