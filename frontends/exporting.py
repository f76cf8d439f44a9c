"""While torch exports a module, there are other tensors in it: stand-ins, and copies of its buffers.

Held by each export, and by what reads a module's tensors, which would find those if another thread exports it.
"""

import threading

EXPORTING = threading.RLock()
