"""The ONNX Runtime QNN runtime: ONNX to a context binary of Qualcomm's HTP, run by its emulator on the CPU."""
