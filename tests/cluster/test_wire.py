"""Messages and records survive the wire, whatever they hold; other protocols are met politely."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import random
import types
import typing
from collections import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from belvedere import errors
from belvedere.protocol import messages, wire
from belvedere.protocol.exactly_once import Chunk, ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.protocol.messages import Attempt, Epoch, EpochPlan, Expect, Member, PoolState, Role, Sent
from belvedere.protocol.ring import MemberId

DEFINED = [value for value in vars(messages).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
KINDS = sorted({*DEFINED, InputPiece, Chunk, ChunkId}, key=lambda cls: cls.__name__)
TEXTS = ["", "a", "viewserver-3#17", 'quote " and \\', "line\nfeed", "ünïcode ☃ 🙂", "\x00\x7f", "\ud800", "_", "null"]
INTS = [0, 1, -1, 7, 1_700_000_000_000, 2**53 + 1, 2**63 - 1, -(2**63), 2**100]
FLOATS = [0.0, -0.0, 1.5, 1e300, 5e-324, math.inf, -math.inf]


def some(rng: random.Random, hint: Any) -> Any:
    """A random value of a type."""
    if isinstance(hint, typing.NewType):
        return some(rng, hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        chosen = rng.choice(arguments)
        return None if chosen is type(None) else some(rng, chosen)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(some(rng, arguments[0]) for _ in range(rng.choice((0, 1, 3))))
    if origin is tuple:
        return tuple(some(rng, argument) for argument in arguments)
    if origin in (abc.Mapping, dict):
        return {some(rng, arguments[0]): some(rng, arguments[1]) for _ in range(rng.choice((0, 1, 4)))}
    if issubclass(hint, enum.Enum):
        return rng.choice(list(hint))
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{field.name: some(rng, hints[field.name]) for field in dataclasses.fields(hint)})
    return rng.choice({int: INTS, str: TEXTS, float: FLOATS, bool: [True, False]}[hint])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_survives(kind: type[Any]) -> None:
    rng = random.Random(kind.__name__)
    for _ in range(200):
        message = some(rng, kind)
        data = wire.encode(message)
        for form in (data, bytearray(data), memoryview(data)):
            found = wire.decode(form)
            assert type(found) is kind
            assert found == message
            assert wire.encode(found) == data  # also tells 1 from 1.0 and from True


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fields_of_a_newer_protocol_are_ignored_and_missing_ones_have_their_default(kind: type[Any]) -> None:
    rng = random.Random(kind.__name__)
    message = some(rng, kind)
    plain = json.loads(wire.encode(message))
    assert wire.decode(json.dumps(plain | {"of_a_newer_protocol": {"_": [1]}}).encode()) == message
    for field in dataclasses.fields(kind):
        cut = json.dumps({name: value for name, value in plain.items() if name != field.name}).encode()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            with pytest.raises(errors.Incompatible, match=f"message {kind.__name__}: .*lacks {field.name}"):
                wire.decode(cut)
        else:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            assert wire.decode(cut) == dataclasses.replace(message, **{field.name: default})


def test_equal_records_are_equal_bytes() -> None:
    one = EpochPlan(Epoch(7), (), {SourceId("a"): Seq(1), SourceId("b"): Seq(2)}, 0, "", 1)
    other = EpochPlan(Epoch(7), (), {SourceId("b"): Seq(2), SourceId("a"): Seq(1)}, 0, "", 1)
    assert wire.encode(one) == wire.encode(other)
    assert wire.digest(wire.encode(one)) == wire.digest(wire.encode(other))
    assert wire.digest(b"a") != wire.digest(b"b")


def test_numbers_and_mappings_of_numpy_are_written_like_their_own() -> None:
    counts: Mapping[Any, Any] = types.MappingProxyType({np.int64(3): (np.int64(5), 0)})
    sent = Sent(Epoch(np.int64(7)), Attempt(1), MemberId("a"), 0, counts, np.int32(9))
    assert wire.decode(wire.encode(sent)) == Sent(Epoch(7), Attempt(1), MemberId("a"), 0, {3: (5, 0)}, 9)


def test_nan_survives() -> None:
    done = messages.Done(Epoch(1), Attempt(1), MemberId("a"), {"busy": math.nan})
    found = wire.decode(wire.encode(done))
    assert math.isnan(found.figures["busy"])


def test_a_chunk_of_input_as_it_is_written() -> None:
    chunk = Chunk(ChunkId(WriterId("d-1"), 4), SourceId("orders/0"), Seq(1), Seq(9), rows=3)
    assert wire.encode(chunk) == (
        b'{"_":"Chunk","at":0,"first":1,"id":{"number":4,"writer":"d-1"},"last":9,"rows":3,"size":0,"source":"orders/0"}'
    )


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", errors.Damaged, "not JSON"),
        (b"\xff\xfe", errors.Damaged, "not JSON"),
        (b'{"_": "Expect"', errors.Damaged, "not JSON"),
        (b"[" * 100_000, errors.Damaged, "not JSON"),
        (b"[]", errors.Incompatible, "without a type"),
        (b'{"epoch": 1}', errors.Incompatible, "without a type"),
        (b'{"_": ["Expect"]}', errors.Incompatible, "without a type"),
        (b'{"_": "Teleport"}', errors.Incompatible, "message type Teleport is unknown to protocol 3"),
        (b'{"_": "Expect", "epoch": 1}', errors.Incompatible, "Expect: Expect lacks attempt, batches, stage"),
        (b'{"_": "Released", "member": 7}', errors.Incompatible, "Released: member: a string expected, found '7'"),
        (b'{"_": "Member", "id": "a", "role": "chef"}', errors.Incompatible, "role: 'chef' is none of coordinator"),
        (b'{"_": "PoolState", "cluster": "c", "open": {}}', errors.Incompatible, "open: a list expected"),
        (b'{"_": "PoolState", "cluster": "c", "open": [7]}', errors.Incompatible, "open: an object expected"),
        (b'{"_": "PoolState", "cluster": "c", "term": true}', errors.Incompatible, "term: a number expected"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        wire.decode(data)
    assert text in str(raised.value)
    assert len(str(raised.value)) < 600


def test_damaged_bytes_never_raise_anything_else() -> None:
    rng = random.Random(5)
    samples = [wire.encode(some(rng, kind)) for kind in KINDS for _ in range(20)]
    for _ in range(3_000):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(errors.Damaged, errors.Incompatible):
            wire.decode(data)


def test_only_messages_are_written() -> None:
    with pytest.raises(TypeError, match="int is not a message"):
        wire.encode(7)


def member(name: str, oldest: int, newest: int) -> Member:
    return Member(MemberId(name), Role.VIEWSERVER, oldest_protocol=oldest, newest_protocol=newest)


def test_members_agree_on_the_newest_protocol_that_all_speak() -> None:
    assert wire.agree([]) == messages.PROTOCOL
    assert wire.agree([member("a", 1, 2), member("b", 2, 3)]) == 2
    assert wire.agree([member("a", 2, 3), member("b", 2, 3)]) == 3


def test_members_that_do_not_understand_each_other_are_named() -> None:
    with pytest.raises(errors.Incompatible) as raised:
        wire.agree([member("a", 2, 3), member("old", 1, 1), member("c", 2, 3), member("young", 3, 4)])
    assert "viewserver old speaks protocol 1 at most, viewserver young needs 3 at least" in str(raised.value)


def test_a_record_of_the_pool_as_a_string() -> None:
    assert PoolState("shop") == wire.decode(wire.encode(PoolState("shop")))
    assert Expect(Epoch(1), Attempt(2), 3, 4) == wire.decode(
        b'{"_":"Expect","attempt":2,"batches":4,"epoch":1,"stage":3}'
    )
