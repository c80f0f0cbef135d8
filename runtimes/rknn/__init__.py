"""The RKNN runtime: ONNX to Rockchip's `.rknn`, tried on the simulator of rknn-toolkit2."""
