"""What is another while torch exports a module: locks that each export holds, and what would find it so in a thread."""

import threading

MODULES = threading.RLock()
"""Held by what reads a module's tensors: there are stand-ins, and copies of its buffers."""

BUILTINS = threading.RLock()
"""Held while numba compiles: `max`, `min` and `math.pow` are torch's own, in the whole process."""
