"""How kernels are compiled, and the few machine operations that numba lacks.

Every kernel releases the GIL, is cached on disk (`kernel_cache`), and does not check bounds: callers reserve room
before they call. Kernels are generic by item size and never by SQL type, and take only writable contiguous arrays (see
`plain`). Numba compiles a variant for every combination of types it meets, and that takes seconds; so each kernel
declares the types of its arguments. What is declared is all that ever runs, and is compiled before the first row.
"""

from __future__ import annotations

# Code generation works on llvmlite values, of which numba says little that a type checker could use.
# mypy: disable-error-code="misc,untyped-decorator,no-untyped-call,call-arg,operator,call-overload"
import logging
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic as _intrinsic

from belvedere.engine.state.kernel_cache import KernelCache
from belvedere.waiting import uninterrupted

_log = logging.getLogger(__name__)
_JIT: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
BLOCK = 32
"""Rows per prefetched block: enough misses in flight to hide memory latency, few enough to stay in the first cache."""
STRICT = "BELVEDERE_STRICT_KERNELS"
"""Environment variable: refuse what is not declared instead of compiling it. Tests set it."""
_ITEMS = {
    "b1": types.boolean,
    "f8": types.float64,
    "i1": types.int8,
    "i4": types.int32,
    "i8": types.int64,
    "u1": types.uint8,
    "u8": types.uint64,
}

Decorator = Callable[[Callable[..., Any]], Any]
part: Decorator = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_JIT)
"""Decorates functions that only kernels call: they are compiled into their callers, and cached with them."""
inlined: Decorator = njit(inline="always", **_JIT)
"""The same for the smallest, which become part of the caller before it is optimised."""
intrinsic: Any = _intrinsic


class Kernel(CPUDispatcher):
    """A compiled function that Python calls, with the types that it may be called with.

    Code is loaded in a thread that no interrupt reaches: one between two calls of LLVM leaves objects that two owners
    free, and that ends the process.
    """

    def __init__(self, function: Any, declared: tuple[str, ...]) -> None:
        super().__init__(function, targetoptions={"nopython": True, **_JIT})
        self.declared = [tuple(_type(word) for word in signature.split()) for signature in declared]
        self._cache = KernelCache(function)

    def kept(self, declared: tuple[Any, ...]) -> bool:
        """Whether the code for these types is on disk."""
        return self._cache.kept(declared)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Numba comes here for types that this process has not met: code from the cache, or from the compiler."""
        return uninterrupted(lambda: self._load_for(args, kws))

    def load(self, declared: tuple[Any, ...]) -> None:
        """Have the code for these types in this process, from the cache or from the compiler."""
        uninterrupted(lambda: self.compile(declared))

    def _load_for(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        given = tuple(self.typeof_pyval(arg) for arg in args)
        if given in self.declared:
            return super()._compile_for_args(*args, **kws)
        name = f"{self.py_func.__module__}.{self.py_func.__name__}"
        if os.environ.get(STRICT):
            raise TypeError(f"kernel {name} is called with {given}; it declares {self.declared}")
        writable = tuple(_writable(type) for type in given)
        if writable in self.declared:  # a caller forgot `plain`: the same code runs, and only finding it takes longer
            return self.compile(writable)
        _log.warning("kernel %s is compiled for types that it does not declare: %s", name, given)
        return super()._compile_for_args(*args, **kws)


def kernel(*declared: str) -> Decorator:
    """Decorates functions that Python calls. Each string has the types of the arguments: i4 is a number, i4[:] an array
    of them, i4[:,:] one of two dimensions."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, declared)

    return decorate


def _writable(type: Any) -> Any:
    return type if not isinstance(type, types.Array) or type.mutable else type.copy(readonly=False)


def _type(word: str) -> Any:
    item, _, dimensions = word.partition("[")
    return types.Array(_ITEMS[item], dimensions.count(":"), "C") if dimensions else _ITEMS[item]


_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_I128 = ir.IntType(128)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer (i8*) to element `index` of a contiguous array, counted along its first axis."""
    struct = context.make_array(array_type)(context, builder, array)
    base = builder.bitcast(struct.data, _I8.as_pointer())
    stride = cgutils.unpack_tuple(builder, struct.strides, array_type.ndim)[0]
    return builder.gep(base, [builder.mul(index, stride)])


def _prefetch(builder: Any, pointer: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array[index] (first axis) without waiting for it."""
    signature = types.void(array, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _prefetch(builder, _address(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def prefetch_at(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _prefetch(builder, builder.inttoptr(args[0], _I8.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def mul_wide(typingctx: Any, a: Any, b: Any) -> Any:
    """Unsigned 64 x 64 -> 128 bits, folded: low word xor high word."""
    signature = types.uint64(types.uint64, types.uint64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        high = builder.trunc(builder.lshr(product, _I128(64)), _I64)
        return builder.xor(builder.trunc(product, _I64), high)

    return signature, codegen


def _loader(bits: int) -> Any:
    kind = ir.IntType(bits)

    @intrinsic
    def load(typingctx: Any, array: Any, index: Any) -> Any:
        signature = types.uint64(array, types.intp)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = _address(context, builder, sig.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1)
            return value if bits == 64 else builder.zext(value, _I64)

        return signature, codegen

    return load


load64 = _loader(64)
"""load64(bytes, position): eight bytes, at any alignment, little-endian."""
load32 = _loader(32)


@intrinsic
def copy_bytes(typingctx: Any, target: Any, to: Any, source: Any, start: Any, count: Any) -> Any:
    """target[to : to + count] = source[start : start + count] for byte arrays that do not overlap."""
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        out = _address(context, builder, sig.args[0], args[0], args[1])
        into = _address(context, builder, sig.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, out, into, args[4], 1)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy32(typingctx: Any, target: Any, to: Any, source: Any, start: Any) -> Any:
    """Copy exactly 32 bytes: both sides must have that much room. Much cheaper than a call for short strings."""
    signature = types.void(target, types.intp, source, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(_I64, 4).as_pointer()
        out = builder.bitcast(_address(context, builder, sig.args[0], args[0], args[1]), kind)
        into = builder.bitcast(_address(context, builder, sig.args[2], args[2], args[3]), kind)
        builder.store(builder.load(into, align=1), out, align=1)
        return context.get_dummy_value()

    return signature, codegen


def _at(builder: Any, address: Any, index: Any, step: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, builder.mul(index, step)), kind.as_pointer())


def _mover(bits: int) -> tuple[Any, Any]:
    kind = ir.IntType(bits)
    value_type = {8: types.uint8, 32: types.int32, 64: types.int64}[bits]

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any, step: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.load(_at(builder, *args, kind), align=1)

        return value_type(types.int64, types.int64, types.int64), codegen

    @intrinsic
    def store(typingctx: Any, address: Any, index: Any, step: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            builder.store(args[3], _at(builder, *args[:3], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, value_type), codegen

    return load, store


# item at address + index * step: lets one kernel serve any number of columns, wherever they live
load_1, store_1 = _mover(8)
load_4, store_4 = _mover(32)
load_8, store_8 = _mover(64)


class _Alias:
    """Lends the memory of a read-only array as if it were writable; holds on to the array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def plain(array: np.ndarray) -> np.ndarray:
    """The array as kernels take it: contiguous, aligned, typed as writable (kernels never write to their inputs)."""
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = array.copy()
    if not array.flags.writeable and array.size:
        array = np.asarray(_Alias(array))
    return array if array.flags.writeable else array.copy()


def address(array: np.ndarray) -> int:
    """Where the array's memory begins; the caller keeps the array alive while a kernel uses it."""
    return int(array.__array_interface__["data"][0])
