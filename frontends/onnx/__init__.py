"""Import of ONNX models: a table of rows by operator, the importer, and a backend for ONNX's own tests."""
