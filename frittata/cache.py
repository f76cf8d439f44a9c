"""The cache folder: what lies in it, and clearing it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from frittata.egraph.errors import FrittataError
from frittata.kernels.cache import KernelCache


def folder_of(given: Path | None) -> Path:
    """Return the folder that the caller names, or the user's.

    Raises: FrittataError if a file has its name. A folder that cannot be written to is no error: nothing is kept there.
    """
    if given is not None:
        folder = Path(given)
        if folder.is_file():
            raise FrittataError(f"the cache folder {folder} is a file", do="give a folder, or a path where nothing is")
        return folder
    import platformdirs

    return Path(platformdirs.user_cache_dir("frittata"))


def kernels_in(folder: Path) -> KernelCache:
    """Return the object code of kernels."""
    return KernelCache(folder / "kernels")


def programs_in(folder: Path) -> KernelCache:
    """Return the programs that were chosen."""
    return KernelCache(folder / "programs", ".program")


def prices_in(folder: Path) -> KernelCache:
    """Return what kernels were found to take."""
    return KernelCache(folder / "prices", ".prices")


def audits_in(folder: Path) -> KernelCache:
    """Return which rules have passed their audit."""
    return KernelCache(folder / "audits", ".audit")


def files(folder: Path) -> dict[str, list[Path]]:
    """List the files that are ours, by what they are."""
    profiles = [*folder.glob("machine-*.json"), *folder.glob("machine-*.tmp")]
    return {
        "kernels": list(_entries(kernels_in(folder))),
        "programs": list(_entries(programs_in(folder))),
        "prices": list(_entries(prices_in(folder))),
        "audits": list(_entries(audits_in(folder))),
        "machine profiles": profiles,
    }


def clear(folder: Path) -> None:
    """Delete the files that are ours, and the folders that are then empty; anything else stays."""
    for path in (path for paths in files(folder).values() for path in paths):
        path.unlink(missing_ok=True)
    for kept in (kernels_in(folder), programs_in(folder), prices_in(folder), audits_in(folder)):
        for part in (*kept.folder.glob("??"), kept.folder):
            if part.is_dir() and not part.is_symlink() and not any(part.iterdir()):
                part.rmdir()


def _entries(kept: KernelCache) -> Iterator[Path]:
    """Visit entries, and what a process that was killed left of one."""
    yield from kept.folder.glob(f"??/*{kept.suffix}")
    yield from kept.folder.glob("??/*.tmp")
