"""Compiling generated source to serial kernels, and taking kernels back from their object code."""

from __future__ import annotations

import hashlib
import json
import linecache
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite import binding
from numba.core import config as numba_config
from numba.core import registry, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.runtime.nrt import rtsys

from frittata.egraph.errors import CompileError
from frittata.kernels.cache import KernelCache
from frittata.kernels.intrinsics import TABLE_TYPE, Intrinsic
from frittata.kernels.outer_loops import emit_function
from frittata.kernels.processor import features

_numba: Any = numba
_config: Any = numba_config
_registry: Any = registry
_rtsys: Any = rtsys
_JITCodeLibrary: Any = JITCodeLibrary

KERNEL_SIGNATURE: Any = types.void(TABLE_TYPE, types.int64)
"""`void kernel(int64* table, int64 chunk)`."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel in memory: its address may be called for as long as this object lives."""

    name: str
    digest: str
    address: int
    object_code: bytes = field(repr=False)
    library: Any = field(repr=False, compare=False)


_KERNELS: dict[str, CompiledKernel] = {}
"""Those of this process by digest: numba never frees code, so each is there once, and stays."""


def compile_kernel(
    source: str,
    name: str,
    namespace: Mapping[str, Any],
    *,
    key: str = "",
    cache: KernelCache | None = None,
) -> CompiledKernel:
    """Compile the function `name(table, chunk)` of `source`, or load it from `cache`, unless this process has it.

    `namespace` holds what the source calls. What the namespace's intrinsics emit is not visible in the source, so
    `key` must tell apart whatever they depend on.

    Raises: CompileError if numba or LLVM refuses the source.
    """
    digest = kernel_digest(source, key)
    kernel = find_kernel(name, digest, cache)
    if kernel is None:
        kernel = _KERNELS[digest] = _compile(source, name, digest, namespace)
        if cache:
            cache.store(digest, kernel.object_code)
    return kernel


def find_kernel(name: str, digest: str, cache: KernelCache | None) -> CompiledKernel | None:
    """Return a kernel that this process or `cache` has; afterwards both have it."""
    kernel = _KERNELS.get(digest)
    stored = cache.load(digest) if cache else None
    if kernel is None and stored is not None:
        kernel = load_kernel(name, digest, stored)
        if kernel is not None:
            _KERNELS[digest] = kernel
    elif kernel is not None and cache and stored is None:
        cache.store(digest, kernel.object_code)
    return kernel


def kernel_digest(source: str, key: str) -> str:
    """Return the sha256 of all that a kernel's object code depends on."""
    return hashlib.sha256(json.dumps([source, key, toolchain()]).encode()).hexdigest()


@cache
def toolchain() -> list[str]:
    """Describe what turns source into object code: our own files, the compilers and the processor."""
    own = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        own.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    processor = [binding.get_host_cpu_name(), str(_config.CPU_NAME), features()]
    return [own.hexdigest(), numba.__version__, llvmlite.__version__, *processor, str(_config.OPT)]


def _compile(source: str, name: str, digest: str, namespace: Mapping[str, Any]) -> CompiledKernel:
    symbol = f"{name}_{digest[:32]}"  # symbols are global to the process, and kernels come from the cache, too
    try:
        library, entry = _library(source, name, symbol, namespace)
    except (NumbaError, RuntimeError, SyntaxError, NameError) as error:
        raise CompileError(f"kernel {name} does not compile: {error}", where=symbol) from error
    code = _pack(entry, library.serialize_using_object_code())
    return CompiledKernel(name, digest, library.get_pointer_to_function(entry), code, library)


def _library(source: str, name: str, symbol: str, namespace: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a library of machine code, and the symbol in it."""
    if all(isinstance(one, Intrinsic) for one in namespace.values()):
        return _outer_loops(source, symbol, namespace), symbol
    filename = f"<{symbol}>"
    # numba quotes the source in its errors
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope = {label: one.declare() if isinstance(one, Intrinsic) else one for label, one in namespace.items()}
    exec(compile(source, filename, "exec"), scope)
    function = scope[name]
    function.__qualname__ = symbol
    compiled = _numba.cfunc(KERNEL_SIGNATURE, error_model="numpy", boundscheck=False)(function)
    return compiled._library, compiled._wrapper_name


class _OneFunction(_JITCodeLibrary):
    """A library of one function: numba runs LLVM's passes over functions first, then over all that was linked."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout


@global_compiler_lock
def _outer_loops(source: str, symbol: str, intrinsics: Mapping[str, Intrinsic]) -> Any:
    """Hand numba's code generator the LLVM IR of source that calls intrinsics alone."""
    library = _OneFunction(_registry.cpu_target.target_context.codegen(), symbol)
    library.enable_object_caching()
    module = library.create_ir_module(symbol)
    emit_function(module, symbol, source, intrinsics)
    library.add_ir_module(module)
    library.finalize()
    return library


def load_kernel(name: str, digest: str, object_code: bytes) -> CompiledKernel | None:
    """Take a kernel back from its object code; None if the code is not one that `compile_kernel` made."""
    try:
        symbol, state = _unpack(object_code)
        context = _registry.cpu_target.target_context
        _rtsys.initialize(context)  # code that is not optimized refers to numba's memory management
        library = context.codegen().unserialize_library(state)
        address = library.get_pointer_to_function(symbol)
    except (ValueError, KeyError, TypeError, RuntimeError):
        return None
    return CompiledKernel(name, digest, address, object_code, library) if address else None


def _pack(symbol: str, state: Any) -> bytes:
    library, kind, (code, bitcode) = state
    head = json.dumps({"symbol": symbol, "library": library, "kind": kind, "code": len(code), "bitcode": len(bitcode)})
    return head.encode() + b"\n" + code + bitcode


def _unpack(object_code: bytes) -> tuple[str, Any]:
    line, _, body = object_code.partition(b"\n")
    head = json.loads(line)
    if len(body) != head["code"] + head["bitcode"]:
        raise ValueError("object code of another length than announced")
    data = body[: head["code"]], body[head["code"] :]
    return head["symbol"], (head["library"], head["kind"], data)
