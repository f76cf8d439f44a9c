"""Four neighbours of an array at once, in 128-bit words; numba has no name for that on the device.

Sources call `load_quad` and `store_quad` with an index, a multiple of four. An array that does not begin at a multiple
of 16 bytes, such as a part of another one, is read and written one by one, which each call decides when it runs. For
shared memory that was declared to be aligned there are `shared_quad` and `put_quad`, and `put` of one element: they
take an index and how much further, a number that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

QUAD = 4
"""How many elements there are in a quad."""
_BYTES = 16
"""The alignment of what is read or written at once."""


@lru_cache(maxsize=1)
def compiled() -> dict[str, Any]:
    """Return the functions as numba compiles them for the device, by name."""
    from numba.cuda import extending

    intrinsic: Any = extending.intrinsic  # type: ignore[attr-defined]
    functions = (_load_quad, _store_quad, _shared_quad, _put_quad, _put)
    return {function.__name__[1:]: intrinsic(function) for function in functions}


def plain() -> dict[str, Any]:
    """Return the same in Python, for the simulator."""

    def load_quad(array: Any, index: int, further: int = 0) -> tuple[Any, ...]:
        return tuple(array[index + further + e] for e in range(QUAD))

    def store_quad(array: Any, index: int, values: tuple[Any, ...]) -> None:
        put_quad(array, index, 0, values)

    def put_quad(array: Any, index: int, further: int, values: tuple[Any, ...]) -> None:
        for e, value in enumerate(values):
            put(array, index, further + e, value)

    def put(array: Any, index: int, further: int, value: Any) -> None:
        array[index + further] = value

    functions = (load_quad, store_quad, put_quad, put)
    return {"shared_quad": load_quad, **{function.__name__: function for function in functions}}


def _load_quad(typingctx: Any, array: Any, index: Any) -> Any:
    from numba import types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _start(context, builder, signature.args[0], args[0])
        first = _moved(builder, start, signature.args[1], args[1])
        at_once, one_by_one, after = (builder.append_basic_block(name) for name in ("quad", "single", "after"))
        builder.cbranch(_is_aligned(builder, start), at_once, one_by_one)
        with builder.goto_block(at_once):
            whole = _elements(builder, _load(builder, first))
            builder.branch(after)
        with builder.goto_block(one_by_one):
            single = [builder.load(builder.gep(first, [_number(e)])) for e in range(QUAD)]
            builder.branch(after)
        builder.position_at_end(after)
        values = [builder.phi(value.type) for value in whole]
        for value, *both in zip(values, whole, single, strict=True):
            for found, block in zip(both, (at_once, one_by_one), strict=True):
                value.add_incoming(found, block)
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(array.dtype, QUAD)(array, index), codegen


def _shared_quad(typingctx: Any, array: Any, index: Any, further: Any) -> Any:
    from numba import types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = _load(builder, _further(context, builder, signature, args))
        return context.make_tuple(builder, signature.return_type, _elements(builder, found))

    return types.UniTuple(array.dtype, QUAD)(array, index, further), codegen


def _store_quad(typingctx: Any, array: Any, index: Any, values: Any) -> Any:
    from numba import types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = _start(context, builder, signature.args[0], args[0])
        first = _moved(builder, start, signature.args[1], args[1])
        with builder.if_else(_is_aligned(builder, start)) as (at_once, one_by_one):
            with at_once:
                _store(builder, first, args[2])
            with one_by_one:
                for e in range(QUAD):
                    builder.store(builder.extract_value(args[2], e), builder.gep(first, [_number(e)]))
        return context.get_dummy_value()

    return types.void(array, index, types.UniTuple(array.dtype, QUAD)), codegen


def _put_quad(typingctx: Any, array: Any, index: Any, further: Any, values: Any) -> Any:
    from numba import types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _store(builder, _further(context, builder, signature, args), args[3])
        return context.get_dummy_value()

    return types.void(array, index, further, types.UniTuple(array.dtype, QUAD)), codegen


def _put(typingctx: Any, array: Any, index: Any, further: Any, value: Any) -> Any:
    from numba import types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[3], _further(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(array, index, further, array.dtype), codegen


def _start(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the pointer to the first element of an array, or of memory that is a pointer already."""
    from numba import types

    if isinstance(array_type, types.CPointer):
        return array
    return context.make_array(array_type)(context, builder, value=array).data


def _moved(builder: Any, start: Any, index_type: Any, index: Any) -> Any:
    from llvmlite import ir

    extend: Callable[..., Any] = builder.sext if index_type.signed else builder.zext
    return builder.gep(start, [extend(index, ir.IntType(64)) if index_type.bitwidth < 64 else index])


def _further(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Return the pointer to an index and so many elements further, of which the machine adds what is constant."""
    first = _moved(builder, _start(context, builder, signature.args[0], args[0]), signature.args[1], args[1])
    return _moved(builder, first, signature.args[2], args[2])


def _load(builder: Any, first: Any) -> Any:
    from llvmlite import ir

    return builder.load(builder.bitcast(first, ir.VectorType(first.type.pointee, QUAD).as_pointer()), align=_BYTES)


def _store(builder: Any, first: Any, values: Any) -> None:
    from llvmlite import ir

    whole: Any = ir.Constant(ir.VectorType(first.type.pointee, QUAD), ir.Undefined)
    for e in range(QUAD):
        whole = builder.insert_element(whole, builder.extract_value(values, e), _number(e))
    builder.store(whole, builder.bitcast(first, whole.type.as_pointer()), align=_BYTES)


def _elements(builder: Any, whole: Any) -> list[Any]:
    return [builder.extract_element(whole, _number(e)) for e in range(QUAD)]


def _is_aligned(builder: Any, start: Any) -> Any:
    from llvmlite import ir

    address = ir.IntType(64)
    rest = builder.and_(builder.ptrtoint(start, address), ir.Constant(address, _BYTES - 1))
    return builder.icmp_unsigned("==", rest, ir.Constant(address, 0))


def _number(e: int) -> Any:
    from llvmlite import ir

    return ir.Constant(ir.IntType(32), e)
