"""Object code of kernels, and chosen programs, in a folder: a file an entry, named by content, verified when read."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class KernelCache:
    """A folder of bytes by content key, in files that end in `suffix`; made when first written to.

    An entry that cannot be read or verified counts as missing, and one that cannot be written is left out: a cache
    never makes a compilation fail.
    """

    folder: Path
    suffix: str = ".kernel"

    def load(self, key: str) -> bytes | None:
        """Return the bytes stored under `key`, or None."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != checksum:
            log.warning("cache: entry %s is damaged and will be made again", key)
            return None
        return payload

    def store(self, key: str, payload: bytes) -> None:
        """Keep `payload` under `key`; other processes see all of it or nothing."""
        path = self._path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError as error:
            log.warning("cache: entry %s cannot be written: %s", key, error)
            if temporary:
                Path(temporary).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{self.suffix}"
