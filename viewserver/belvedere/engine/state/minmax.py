"""Least and greatest value per group slot, correct under deletes of any pattern without looking at the group again.

Types whose values fit 64 bits become integers that sort like the values and live in B+-trees (`btree`); strings,
binaries and wide decimals become byte strings that do and live in treaps (`treap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from belvedere.engine.state import btree, treap
from belvedere.engine.state.arena import string_parts
from belvedere.engine.state.btree_nodes import UNIT
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels.rows import sort_segments
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.pages import VALUES, Paging
from belvedere.engine.state.ragged import Ragged, segments
from belvedere.engine.state.wide import kernel
from belvedere.engine.vec import Data, Vec
from belvedere.types import BINARY, Kind, Type

Arrays = dict[str, np.ndarray]


class MinMax(Protocol):
    """A multiset per group slot."""

    parts: int
    """How many parts packed entries have: the values in order, and their weights unless all are 1."""
    paging: Paging

    def ensure(self, slots: int) -> None: ...
    def add(self, slots: np.ndarray, weight: np.ndarray, data: Data) -> None: ...
    def read(self, slots: np.ndarray, low: bool, high: bool) -> tuple[Data | None, Data | None]: ...
    def clear(self, slots: np.ndarray) -> None: ...
    def entries(self, slots: np.ndarray) -> tuple[np.ndarray, Any]: ...
    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None: ...
    def nbytes(self) -> int: ...
    def dump(self, slots: int) -> Arrays: ...
    def load(self, arrays: Arrays) -> None: ...


_NOTHING = np.empty(0, np.int64)


@dataclass(slots=True)
class WordItems:
    """Values as integers that sort like them, with their weights."""

    values: np.ndarray
    weights: np.ndarray

    def hashes(self) -> np.ndarray:
        return mixed(self.values.view(np.uint64))

    def take(self, index: np.ndarray) -> WordItems:
        return WordItems(self.values[index], self.weights[index])

    def pack(self, ends: np.ndarray) -> list[Ragged]:
        return [segments(ends, self.values), weight_part(ends, self.weights)]


@dataclass(slots=True)
class TextItems:
    """Values as byte strings that sort like them, with their weights."""

    texts: Ragged
    weights: np.ndarray

    def hashes(self) -> np.ndarray:
        offsets, data = self.texts.compact()
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
        texts = pa.Array.from_buffers(pa.binary(), len(self.texts), buffers, 0)
        return np.ascontiguousarray(hash_rows([Vec(BINARY, texts)], len(texts))[:, 1])

    def take(self, index: np.ndarray) -> TextItems:
        return TextItems(self.texts.take(index), self.weights[index])

    def pack(self, ends: np.ndarray) -> list[Ragged]:
        offsets, data = self.texts.compact()
        bounds = offsets[np.concatenate([[0], ends])]
        joined = Ragged(bounds[:-1], bounds[1:], data if len(data) else np.zeros(1, np.uint8))
        return [segments(ends, self.texts.lengths.astype(np.uint32)), joined, weight_part(ends, self.weights)]


def mixed(words: np.ndarray) -> np.ndarray:
    """Words whose high bits depend on all of theirs (splitmix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


def make_minmax(type: Type) -> MinMax:
    """The multiset for values of this type."""
    return Texts(type) if type.varlen or type.wide else MinMaxWords(type)


class MinMaxWords:
    """Values that fit one word."""

    parts = 2

    def __init__(self, type: Type) -> None:
        self._type = type
        self._roots = Buffer(np.int64)
        self._mem = Buffer(np.int64)
        self._ctl = np.zeros(16, np.int64)
        self._path = np.zeros((btree.DEPTH, 2), np.int64)
        self._slots = 0
        self.paging = Paging(VALUES)

    def ensure(self, slots: int) -> None:
        self._slots = max(self._slots, slots)
        self._roots.reserve(self._slots * btree.GROUP)

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        if not len(self._mem.array):
            self._room()
        mem = self._mem.array
        return self._roots.array, mem, mem.view(np.int32), self._ctl

    def _room(self) -> None:
        self._mem.reserve((int(self._ctl[0]) + 2 * btree.ROOM) * UNIT)

    def _feed(self, slots: np.ndarray, values: np.ndarray, weight: np.ndarray) -> None:
        done = 0
        while True:
            done = btree.add(slots, values, weight, done, *self._arrays(), self._path)
            if done == len(slots):
                return
            self._room()

    def add(self, slots: np.ndarray, weight: np.ndarray, data: Data) -> None:
        images = self._images(data)
        big = self.paging.pick(slots)
        if big is not None:
            self.paging.note(slots[big], mixed(images[big].view(np.uint64)))
        self._feed(slots, images, weight.astype(np.int32))

    def _images(self, data: np.ndarray) -> np.ndarray:
        """Integers that sort like the values."""
        if self._type.kind is Kind.DOUBLE:
            out = np.empty(len(data), np.int64)
            double_images(plain(data).view(np.int64), out)
            return out
        return plain(data.astype(np.int64, copy=False))

    def _values(self, images: np.ndarray) -> np.ndarray:
        if self._type.kind is Kind.DOUBLE:
            return np.asarray((images ^ ((images >> 63) & 0x7FFFFFFFFFFFFFFF)).view(np.float64))
        return images.astype(self._type.dtype, copy=False)

    def read(self, slots: np.ndarray, low: bool, high: bool) -> tuple[Data | None, Data | None]:
        least, greatest = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
        btree.read(slots, *self._arrays(), least, greatest)
        return self._values(least) if low else None, self._values(greatest) if high else None

    def clear(self, slots: np.ndarray) -> None:
        self.paging.clear(slots)
        btree.clear(slots, *self._arrays())

    def entries(self, slots: np.ndarray) -> tuple[np.ndarray, WordItems]:
        ends = np.empty(len(slots), np.int64)
        none = np.empty(0, np.int64)
        btree.export(slots, *self._arrays(), ends, none, none)
        total = int(ends[-1]) if len(ends) else 0
        values, weights = np.empty(total, np.int64), np.empty(total, np.int64)
        btree.export(slots, *self._arrays(), ends, values, weights)
        sort_segments(ends, values, weights)
        ends, values, weights = _merged(ends, values, weights)
        return ends, WordItems(values, weights)

    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None:
        sizes = parts[0].lengths // 8
        if sizes.any():
            index, weights = _pieces(read_weights(sizes, parts[1]))
            self._feed(np.repeat(slots, sizes)[index], parts[0].words(np.int64)[index], weights)

    def nbytes(self) -> int:
        return self._roots.nbytes(self._slots * btree.GROUP) + self._mem.nbytes((int(self._ctl[0]) + 1) * UNIT)

    def dump(self, slots: int) -> Arrays:
        self.ensure(slots)
        mem = self._arrays()[1]
        used = (int(self._ctl[0]) + 1) * UNIT
        return {"roots": self._roots.array[: slots * btree.GROUP], "mem": mem[:used], "ctl": self._ctl}

    def load(self, arrays: Arrays) -> None:
        roots = arrays["roots"]
        self.ensure(len(roots) // btree.GROUP)
        self._roots.array[: len(roots)] = roots
        self._ctl = arrays["ctl"].copy()
        self._room()
        self._mem.array[: len(arrays["mem"])] = arrays["mem"]


class Texts:
    """Strings, binaries, and wide decimals as 16 bytes, most significant first, with the sign flipped."""

    parts = 3

    def __init__(self, type: Type) -> None:
        self._type = type
        self._roots = Buffer(np.int32)
        self._nodes = Buffer(np.int64)
        self._text = Buffer(np.uint8, slack=64)
        self._ctl = np.zeros(treap.CONTROL, np.int64)
        self._slots = 0
        self.paging = Paging(VALUES)

    def ensure(self, slots: int) -> None:
        self._slots = max(self._slots, slots)
        self._roots.reserve(self._slots * treap.GROUP)

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        nodes = self._nodes.array
        return self._roots.array, nodes, nodes.view(np.int32), self._text.array, self._ctl

    def _room(self, values: int, size: int) -> None:
        self._nodes.reserve((int(self._ctl[0]) + values + 1) * treap.NODE)
        self._text.reserve(int(self._ctl[3]) + 16 * values + 2 * size)

    def add(self, slots: np.ndarray, weight: np.ndarray, data: Data) -> None:
        if isinstance(data, np.ndarray):
            offsets, text = np.arange(len(data) + 1, dtype=np.int32) * 16, _decimal_bytes(data)
        else:
            offsets, text = string_parts(data)
        big = self.paging.pick(slots)
        if big is not None:
            bounds = offsets.astype(np.int64)
            changed = Ragged(bounds[:-1], bounds[1:], text).take(np.flatnonzero(big))
            self.paging.note(slots[big], TextItems(changed, _NOTHING).hashes())
        self._room(len(slots), int(offsets[-1]) - int(offsets[0]))
        treap.add(slots, offsets[:-1], offsets[1:], text, weight.astype(np.int32), *self._arrays())

    def read(self, slots: np.ndarray, low: bool, high: bool) -> tuple[Data | None, Data | None]:
        self._room(0, 0)
        return self._end(slots, False) if low else None, self._end(slots, True) if high else None

    def _end(self, slots: np.ndarray, right: bool) -> Data:
        roots, _, n32, _, _ = self._arrays()
        nodes = np.empty(len(slots), np.int64)
        treap.ends(slots, roots, n32, right, nodes)
        offsets, text = self._fetch(nodes)
        if self._type.wide:
            out = np.zeros((len(slots), 2), np.int64)
            out[nodes != 0] = _decimal_words(text[: int(offsets[-1])])
            return out
        if offsets[-1] > 0x7FFFFFFF:
            raise OverflowError(f"{len(slots)} strings of together {offsets[-1]} bytes do not fit; read fewer at once")
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text)]
        return pa.Array.from_buffers(self._type.arrow, len(slots), buffers, 0)

    def _fetch(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, n64, n32, text, _ = self._arrays()
        offsets = np.empty(len(nodes) + 1, np.int64)
        out = np.empty(int(treap.lengths(nodes, n32, offsets)), np.uint8)
        treap.fetch(nodes, offsets, n64, n32, text, out)
        return offsets, out

    def clear(self, slots: np.ndarray) -> None:
        self._room(0, 0)
        self.paging.clear(slots)
        treap.forget(slots, *self._arrays())

    def entries(self, slots: np.ndarray) -> tuple[np.ndarray, TextItems]:
        self._room(0, 0)
        roots, _, n32, _, _ = self._arrays()
        ends = np.empty(len(slots), np.int64)
        treap.in_order(slots, roots, n32, ends, np.empty(0, np.int64))
        nodes = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
        treap.in_order(slots, roots, n32, ends, nodes)
        offsets, text = self._fetch(nodes)
        weights = self._nodes.array[nodes * treap.NODE + treap.WEIGHT]
        return ends, TextItems(Ragged(offsets[:-1], offsets[1:], text if len(text) else np.zeros(1, np.uint8)), weights)

    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None:
        sizes = parts[0].lengths // 4
        if sizes.any():
            offsets = np.zeros(int(sizes.sum()) + 1, np.int64)
            np.cumsum(parts[0].words(np.uint32), out=offsets[1:])
            if offsets[-1] > 0x7FFFFFFF:
                raise OverflowError(f"{len(slots)} groups hold {offsets[-1]} bytes of strings; load fewer at once")
            text = plain(np.concatenate([parts[1].compact()[1], np.zeros(8, np.uint8)]))
            index, weights = _pieces(read_weights(sizes, parts[2]))
            starts, stops = offsets[:-1].astype(np.int32)[index], offsets[1:].astype(np.int32)[index]
            self._room(len(index), len(text))
            treap.add(np.repeat(slots, sizes)[index], starts, stops, text, weights, *self._arrays())

    def nbytes(self) -> int:
        nodes, text = (int(self._ctl[0]) + 1) * treap.NODE, int(self._ctl[3])
        return self._roots.nbytes(self._slots * treap.GROUP) + self._nodes.nbytes(nodes) + self._text.nbytes(text)

    def dump(self, slots: int) -> Arrays:
        self.ensure(slots)
        self._room(0, 0)
        return {
            "roots": self._roots.array[: slots * treap.GROUP],
            "nodes": self._nodes.array[: (int(self._ctl[0]) + 1) * treap.NODE],
            "text": self._text.array[: int(self._ctl[3])],
            "ctl": self._ctl,
        }

    def load(self, arrays: Arrays) -> None:
        self._ctl = arrays["ctl"].copy()
        self.ensure(len(arrays["roots"]) // treap.GROUP)
        self._room(0, 0)
        for buffer, name in ((self._roots, "roots"), (self._nodes, "nodes"), (self._text, "text")):
            buffer.array[: len(arrays[name])] = arrays[name]


def _merged(ends: np.ndarray, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted segments with each value once: a tree may hold several entries of a value whose weight is great."""
    if not len(values):
        return ends, values, weights
    first = np.ones(len(values), np.bool_)
    first[1:] = values[1:] != values[:-1]
    first[ends[ends < len(values)]] = True
    if first.all() and weights.all():
        return ends, values, weights
    sums = np.add.reduceat(weights, np.flatnonzero(first))
    kept = sums != 0
    upto = np.concatenate([[0], np.cumsum(kept)])
    heads = np.concatenate([[0], np.cumsum(first)])
    return upto[heads[ends]], values[first][kept], sums[kept]


def weight_part(ends: np.ndarray, weights: np.ndarray) -> Ragged:
    """The weights of each segment, nothing where all of them are 1."""
    rows = segments(ends, np.ascontiguousarray(weights, np.int64))
    odd = np.concatenate([[0], np.cumsum(weights != 1)])
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    rows.stops = np.where(odd[ends] > odd[begins], rows.stops, rows.starts)
    return rows


def read_weights(sizes: np.ndarray, part: Ragged) -> np.ndarray:
    """The inverse, for segments of these sizes."""
    weights = np.ones(int(sizes.sum()), np.int64)
    given = np.repeat(part.lengths > 0, sizes)
    if given.any():
        weights[given] = part.words(np.int64)
    return weights


def _pieces(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights cut into pieces of less than 31 bits: (which weight each piece belongs to, int32 pieces)."""
    limit = 1 << 30
    counts = -(-np.abs(weights) // limit)
    index = np.repeat(np.arange(len(weights)), counts)
    out = np.full(len(index), limit, np.int64)
    last = np.cumsum(counts) - 1
    out[last] = np.abs(weights) - limit * (counts - 1)
    return index, (out * np.sign(weights)[index]).astype(np.int32)


def _decimal_bytes(words: np.ndarray) -> np.ndarray:
    """Wide decimals (low, high) as bytes that sort like them."""
    out = np.empty((len(words), 2), ">u8")
    out[:, 0] = words[:, 1].view(np.uint64) ^ np.uint64(1 << 63)
    out[:, 1] = words[:, 0].view(np.uint64)
    return out.view(np.uint8).reshape(-1) if len(words) else np.zeros(1, np.uint8)


def _decimal_words(text: np.ndarray) -> np.ndarray:
    pairs = text.view(">u8").astype(np.uint64).reshape(-1, 2)
    out = np.empty((len(pairs), 2), np.uint64)
    out[:, 1] = pairs[:, 0] ^ np.uint64(1 << 63)
    out[:, 0] = pairs[:, 1]
    return out.view(np.int64)


@kernel("i8[:] i8[:]")
def double_images(bits: Any, out: Any) -> None:
    """-inf < ... < 0 < ... < +inf < NaN; -0.0 becomes 0.0, and every NaN the same one."""
    top = np.int64(0x7FFFFFFFFFFFFFFF)
    for j in range(bits.shape[0]):
        b = bits[j]
        if b & top == 0:
            b = np.int64(0)
        if b & top > np.int64(0x7FF << 52):
            b = np.int64(0xFFF << 51)
        out[j] = b ^ ((b >> 63) & top)
