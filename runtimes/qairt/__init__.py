"""The QAIRT runtime: ONNX to Qualcomm's deep learning container and context binaries."""
