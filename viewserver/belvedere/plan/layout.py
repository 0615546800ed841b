"""Where the parts of a plan's picture go: zones in columns from left to right, inside a zone nodes in rows from the
top.

Pure geometry. Every column or row is ordered by where its inputs stand and then spread just enough that nothing
overlaps, so edges stay short.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from belvedere.plan import nodes as n
from belvedere.plan.explain import Described
from belvedere.plan.zones import Zone

CARD_WIDTH = 248
LINE_HEIGHT = 16
TITLE_HEIGHT = 30
STATE_HEIGHT = 34
NODE_GAP_X, NODE_GAP_Y = 22, 28
ZONE_PAD, ZONE_HEAD = 18, 38
ZONE_GAP_X, ZONE_GAP_Y = 76, 34
MARGIN, HEADER, FOOTER = 32, 84, 56
DETAIL_CHARS, DETAIL_LINES = 33, 5

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def center(self) -> float:
        return self.x + self.width / 2

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Card:
    """A node: its box and its wrapped detail."""

    described: Described
    box: Box
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    width: float
    height: float
    cards: tuple[Card, ...]
    zones: tuple[tuple[Zone, Box], ...]


def lay_out(described: Sequence[Described], zones: Sequence[Zone]) -> Picture:
    """Boxes for all zones and nodes."""
    by_node = {d.node: d for d in described}
    lines = {d.node: _wrapped(_detail(d)) for d in described}
    heights = {d.node: _card_height(d, lines[d.node]) for d in described}
    inner = {zone.number: _inside(zone, heights) for zone in zones}
    sizes = {number: _extent(boxes) for number, boxes in inner.items()}
    columns = _zone_columns(zones)
    widths = [max(sizes[z][0] for z in column) for column in columns]
    ports = _zone_ports(zones, inner)
    tops = _centered(columns, {z: sizes[z][1] for z in inner}, ports)
    cards: list[Card] = []
    boxes: list[tuple[Zone, Box]] = []
    x = float(MARGIN)
    place: dict[int, tuple[float, float]] = {}
    for column, width in zip(columns, widths, strict=True):
        for number in column:
            place[number] = (x + width - sizes[number][0], HEADER + tops[number])
        x += width + ZONE_GAP_X
    for zone in zones:
        left, top = place[zone.number]
        boxes.append((zone, Box(left, top, *sizes[zone.number])))
        for node, box in inner[zone.number].items():
            moved = Box(left + box.x, top + box.y, box.width, box.height)
            cards.append(Card(by_node[node], moved, lines[node]))
    width = max((box.right for _, box in boxes), default=300) + MARGIN
    height = max((box.bottom for _, box in boxes), default=HEADER) + FOOTER
    return Picture(max(width, 640), height, tuple(cards), tuple(boxes))


def _detail(described: Described) -> str:
    node = described.node
    return described.detail.removeprefix(node.name).strip() if isinstance(node, n.ViewNode) else described.detail


def _wrapped(detail: str) -> tuple[str, ...]:
    lines = textwrap.wrap(detail, DETAIL_CHARS, break_long_words=True)
    if len(lines) > DETAIL_LINES:
        lines = [*lines[: DETAIL_LINES - 1], lines[DETAIL_LINES - 1][: DETAIL_CHARS - 2].rstrip() + " …"]
    return tuple(lines)


def _card_height(described: Described, lines: Sequence[str]) -> float:
    return TITLE_HEIGHT + LINE_HEIGHT * len(lines) + 10 + (STATE_HEIGHT if described.state is not None else 0)


def _inside(zone: Zone, heights: Mapping[n.Node, float]) -> dict[n.Node, Box]:
    """Boxes of a zone's nodes relative to the zone's corner."""
    members = set(zone.nodes)
    depth: dict[n.Node, int] = {}
    for node in zone.nodes:  # inputs first
        depth[node] = 1 + max((depth[i] for i in n.inputs(node) if i in members), default=-1)
    for node in reversed(zone.nodes):  # sources move towards what they feed
        if not any(i in members for i in n.inputs(node)):
            fed = [depth[other] for other in zone.nodes if node in n.inputs(other)]
            depth[node] = min(fed) - 1 if fed else depth[node]
    rows: list[list[n.Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in zone.nodes:
        rows[depth[node]].append(node)
    above = {node: [(i, CARD_WIDTH / 2) for i in n.inputs(node) if i in members] for node in zone.nodes}
    # What receives rows from other zones stands left, where their edges arrive.
    receiving = {node for node in zone.nodes if any(i not in members for i in n.inputs(node))}
    lefts = _stacked(rows, dict.fromkeys(zone.nodes, float(CARD_WIDTH)), above, NODE_GAP_X, receiving)
    boxes: dict[n.Node, Box] = {}
    top = float(ZONE_HEAD)
    for row in rows:
        for node in row:
            boxes[node] = Box(ZONE_PAD + lefts[node], top, CARD_WIDTH, heights[node])
        top += max(heights[node] for node in row) + NODE_GAP_Y
    return boxes


def _extent(boxes: Mapping[n.Node, Box]) -> tuple[float, float]:
    return max(b.right for b in boxes.values()) + ZONE_PAD, max(b.bottom for b in boxes.values()) + ZONE_PAD


def _zone_columns(zones: Sequence[Zone]) -> list[list[int]]:
    depth: dict[int, int] = {}
    for zone in zones:
        depth[zone.number] = 1 + max((depth[i] for i in zone.inputs), default=-1)
    for zone in reversed(zones):
        fed = [depth[other.number] for other in zones if zone.number in other.inputs]
        if fed and not zone.inputs:
            depth[zone.number] = min(fed) - 1
    columns: list[list[int]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for zone in zones:
        columns[depth[zone.number]].append(zone.number)
    return [column for column in columns if column]


def _zone_ports(zones: Sequence[Zone], inner: Mapping[int, dict[n.Node, Box]]) -> dict[int, list[tuple[int, float]]]:
    """For each zone, where its incoming edges begin: (zone, height inside it)."""
    home = {node: zone.number for zone in zones for node in zone.nodes}
    ports: dict[int, list[tuple[int, float]]] = {zone.number: [] for zone in zones}
    for zone in zones:
        for node in zone.nodes:
            for below in n.inputs(node):
                if home[below] != zone.number:
                    ports[zone.number].append((home[below], inner[home[below]][below].middle))
    return ports


def _centered(
    columns: Sequence[Sequence[int]], heights: Mapping[int, float], ports: Mapping[int, Sequence[tuple[int, float]]]
) -> dict[int, float]:
    """Tops of zones: columns ordered as `_stacked` would, each centred on the tallest, so the picture stays low."""
    wished = _stacked(columns, heights, ports, ZONE_GAP_Y)
    lengths = [_length(column, heights, ZONE_GAP_Y) for column in columns]
    tops: dict[int, float] = {}
    for column, length in zip(columns, lengths, strict=True):
        top = (max(lengths) - length) / 2
        for number in sorted(column, key=lambda z: wished[z]):
            tops[number] = top
            top += heights[number] + ZONE_GAP_Y
    return tops


def _stacked(
    columns: Sequence[Sequence[_K]],
    heights: Mapping[_K, float],
    ports: Mapping[_K, Sequence[tuple[_K, float]]],
    gap: float,
    first: Collection[_K] = (),
) -> dict[_K, float]:
    """Tops of the items of every column: each as near as possible to the middle of where its edges come from, or go to;
    those in `first` before the others."""
    tops: dict[_K, float] = {}
    consumers: dict[_K, list[_K]] = {}
    for item, sources in ports.items():
        for source, _ in sources:
            consumers.setdefault(source, []).append(item)

    def from_inputs(item: _K) -> float | None:
        known = [tops[source] + offset for source, offset in ports.get(item, ()) if source in tops]
        return sum(known) / len(known) - heights[item] / 2 if known else None

    def to_outputs(item: _K) -> float | None:
        known = [tops[c] + heights[c] / 2 for c in consumers.get(item, ()) if c in tops]
        return sum(known) / len(known) - heights[item] / 2 if known else None

    for column in columns:
        _spread(column, heights, tops, from_inputs, gap, first)
    for column in reversed(columns):
        _spread(column, heights, tops, to_outputs, gap, first)
    for column in columns:
        _spread(column, heights, tops, from_inputs, gap, first)
    lowest = min(tops.values(), default=0.0)
    return {item: top - lowest for item, top in tops.items()}


def _spread(
    column: Sequence[_K],
    heights: Mapping[_K, float],
    tops: dict[_K, float],
    desired: Callable[[_K], float | None],
    gap: float,
    first: Collection[_K],
) -> None:
    wish = {item: desired(item) for item in column}
    current = {item: (w if w is not None else tops.get(item, 0.0)) for item, w in wish.items()}
    order = sorted(column, key=lambda item: (item not in first, current[item] + heights[item] / 2))
    # Pack items that would overlap into blocks, each block around the mean of what its items wish.
    blocks: list[tuple[list[_K], float]] = []
    for item in order:
        members, top = [item], current[item]
        while blocks and blocks[-1][1] + _length(blocks[-1][0], heights, gap) + gap > top:
            members = blocks.pop()[0] + members
            offset, wished = 0.0, 0.0
            for member in members:
                wished += current[member] - offset
                offset += heights[member] + gap
            top = wished / len(members)
        blocks.append((members, top))
    for members, top in blocks:
        for member in members:
            tops[member] = top
            top += heights[member] + gap


def _length(members: Sequence[_K], heights: Mapping[_K, float], gap: float) -> float:
    return sum(heights[m] for m in members) + gap * (len(members) - 1)
