"""The OpenVINO runtime: ONNX to OpenVINO IR, run by the plugin of a device."""
