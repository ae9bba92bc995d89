"""Ways to use the library: the command line, the live page, a Gymnasium environment, an ONNX file."""
