"""Models: their files (`catalogue`, `fetch`), and the embedders, rerankers and language models that use them."""

import os

# Newer versions of onnxruntime have telemetry and store a device id, unless this is set before the import.
for variable in ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED"):
    os.environ.setdefault(variable, "1")
