"""The plan as a picture: zones are rounded boxes, nodes cards, state tables cylinders with their sizes, views stand
out.

One self-contained SVG without scripts or outside fonts; the full text of every card is its tooltip.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from belvedere.plan import layout
from belvedere.plan import nodes as n
from belvedere.plan.explain import Described, Sizes, State, describe, human_bytes, state_tables
from belvedere.plan.layout import Box, Card, Picture

_ACCENTS = {
    "delta": "#0f9d8a",
    "selection": "#d9822b",
    "projection": "#8a94a6",
    "index": "#b0679b",
    "pre-aggregation": "#7a5af8",
    "aggregate": "#9b8afb",
    "reverse-join": "#1570ef",
    "join": "#53a3fb",
    "distinct": "#c4479a",
    "union": "#66824f",
    "view": "#1d2f6f",
}
_STYLE = """
text { font-family: Inter, "Segoe UI", "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; fill: #1f2937; }
.title { font-size: 21px; font-weight: 600; }
.subtitle, .legend { font-size: 12.5px; fill: #667085; }
.zone { fill: #f3f6fb; stroke: #c9d4e5; stroke-width: 1.2; }
.zone-name { font-size: 13px; font-weight: 600; fill: #475467; }
.zone-key { font-size: 12.5px; fill: #667085; }
.card { fill: #ffffff; stroke: #d5dbe5; stroke-width: 1; }
.shadow { fill: #101828; fill-opacity: 0.07; }
.kind { font-size: 13px; font-weight: 600; }
.number { font-size: 11px; fill: #98a2b3; }
.detail { font-size: 11.5px; fill: #475467; }
.state { font-size: 11px; fill: #344054; }
.view .card { fill: #22357d; stroke: #16245a; }
.view text { fill: #ffffff; }
.view .detail, .view .state, .view .number { fill: #cdd7f5; }
.edge { fill: none; stroke: #98a7bd; stroke-width: 1.5; }
.moves { stroke: #5b7db1; stroke-width: 2; stroke-dasharray: 6 4; }
"""


def draw(plan: n.Plan, sizes: Sizes | None = None) -> str:
    """The SVG document."""
    described, zones = describe(plan, sizes)
    picture = layout.lay_out(described, zones)
    width, height = round(picture.width), round(picture.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="maintenance plan">',
        f"<style>{_STYLE}</style>",
        _markers(),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_header(plan, described, len(zones)),
        *(_zone(zone.number, zone.key, box) for zone, box in picture.zones),
        *_edges(picture),
        *(_card(card) for card in picture.cards),
        _legend(picture),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _markers() -> str:
    arrows = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.6 L7.4 4 L0 7.4 Z" fill="{color}"/></marker>'
        for name, color in (("arrow", "#98a7bd"), ("arrow-moves", "#5b7db1"))
    )
    return f"<defs>{arrows}</defs>"


def _header(plan: n.Plan, described: list[Described], zone_count: int) -> list[str]:
    names = ", ".join(view.name for view in plan.views)
    shown = names if len(names) < 90 else f"{len(plan.views)} views"
    tables = state_tables(described)
    known = [state.size.bytes for state, *_ in tables if state.size is not None]
    total = f", {human_bytes(sum(known))} of state" if known else ""
    summary = f"{_count(len(described), 'node')} in {_count(zone_count, 'zone')}, {_count(len(tables), 'state table')}"
    return [
        _text(layout.MARGIN, 42, "title", f"Maintenance plan of {shown}"),
        _text(layout.MARGIN, 64, "subtitle", summary + total),
    ]


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _zone(number: int, key: tuple[str, ...], box: Box) -> str:
    name = f"zone {number}"
    spread = "by " + ", ".join(key) if key else "on one server"
    room = int((box.width - 110) / 6.4)
    spread = spread if len(spread) <= room else spread[: room - 1] + "…"
    return (
        f"<g>{_rounded('zone', box, 16)}"
        + _text(box.x + layout.ZONE_PAD, box.y + 25, "zone-name", name)
        + _text(box.x + layout.ZONE_PAD + 8 * len(name) + 8, box.y + 25, "zone-key", spread)
        + "</g>"
    )


def _edges(picture: Picture) -> list[str]:
    cards = {card.described.node: card for card in picture.cards}
    homes = {zone.number: box for zone, box in picture.zones}
    drawn: list[str] = []
    for card in picture.cards:
        sources = [cards[node] for node in n.inputs(card.described.node)]
        below = sorted(sources, key=lambda c: (c.box.center, c.box.middle))
        for i, source in enumerate(below):
            share = (i + 1) / (len(below) + 1)
            moves = source.described.zone != card.described.zone
            if moves:
                home = homes[card.described.zone]
                # Zones of a column end at one line; edges are level again before the first of them begins.
                begin = min(box.x for box in homes.values() if abs(box.right - home.right) < 1)
                beside = sum(c.box.y == card.box.y and home.x < c.box.x < card.box.x for c in picture.cards)
                gap = (homes[source.described.zone].right, begin)
                drawn.append(_moving_edge(source.box, card.box, share - 0.16 * min(beside, 2), gap))
            else:
                drawn.append(_inner_edge(source.box, card.box, share))
    return drawn


def _inner_edge(source: Box, target: Box, share: float) -> str:
    """From the bottom of one card to the top of another, below it in the same zone."""
    x1, y1, x2, y2 = source.center, source.bottom, target.x + target.width * share, target.y - 1
    bend = max(12.0, (y2 - y1) / 2)
    return (
        f'<path class="edge" marker-end="url(#arrow)" d="M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f}'
        f' {y2 - bend:.1f} {x2:.1f} {y2:.1f}"/>'
    )


def _moving_edge(source: Box, target: Box, share: float, gap: tuple[float, float]) -> str:
    """From the right of a card to the left of one in a later zone: level inside both zones, bent only in the `gap`."""
    y1, y2 = source.middle, target.y + target.height * share
    start, end = gap
    bend = max(24.0, min(120.0, abs(end - start) / 2))
    return (
        f'<path class="edge moves" marker-end="url(#arrow-moves)" d="M{source.right:.1f} {y1:.1f} H{start:.1f}'
        f' C{start + bend:.1f} {y1:.1f} {end - bend:.1f} {y2:.1f} {end:.1f} {y2:.1f} H{target.x - 1:.1f}"/>'
    )


def _card(card: Card) -> str:
    box, d = card.box, card.described
    accent = _ACCENTS[d.kind]
    view = isinstance(d.node, n.ViewNode)
    x, y = box.x + 18, box.y
    parts = [
        f'<g class="{d.kind}"><title>#{d.number} {escape(d.kind)} {escape(d.detail)}</title>',
        _rounded("shadow", Box(box.x, y + 2, box.width, box.height)),
        _rounded("card", box),
    ]
    if not view:
        bar = f'x="{box.x + 6:.1f}" y="{y + 9:.1f}" width="4" height="{box.height - 18:.1f}" rx="2"'
        parts.append(f'<rect {bar} fill="{accent}"/>')
    parts.append(_text(x, y + 22, "kind", f"view {d.node.name}" if isinstance(d.node, n.ViewNode) else d.kind))
    parts.append(_text(box.right - 10, y + 21, "number", f"#{d.number}", anchor="end"))
    for i, line in enumerate(card.lines):
        parts.append(_text(x, y + layout.TITLE_HEIGHT + 12 + i * layout.LINE_HEIGHT, "detail", line))
    if d.state is not None:
        parts.append(_cylinder(x, box.y + box.height - layout.STATE_HEIGHT, d.state, "#8ea2e6" if view else accent))
    return "".join(parts) + "</g>"


def _rounded(style: str, box: Box, radius: int = 9) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{style}" {place} rx="{radius}"/>'


def _cylinder(x: float, y: float, state: State, color: str) -> str:
    """A state table with its size."""
    width, top, bottom = 17, y + 6, y + 23
    return (
        f'<path d="M{x:.1f} {top:.1f} v{bottom - top:.1f} a{width / 2} 3.6 0 0 0 {width} 0 v{top - bottom:.1f}"'
        f' fill="{color}" fill-opacity="0.28" stroke="{color}" stroke-width="1.2"/>'
        f'<ellipse cx="{x + width / 2:.1f}" cy="{top:.1f}" rx="{width / 2}" ry="3.6" fill="#ffffff" stroke="{color}"'
        f' stroke-width="1.2"/>' + _text(x + width + 9, y + 19, "state", state.cost)
    )


def _legend(picture: Picture) -> str:
    y = picture.height - 22
    x = float(layout.MARGIN)
    return (
        f'<path class="edge" marker-end="url(#arrow)" d="M{x} {y - 4} h34"/>'
        + _text(x + 44, y, "legend", "stays on its server")
        + f'<path class="edge moves" marker-end="url(#arrow-moves)" d="M{x + 190} {y - 4} h34"/>'
        + _text(x + 234, y, "legend", "redistributed by key")
        + _text(x + 390, y, "legend", "~ estimated from column types")
    )


def _text(x: float, y: float, style: str, content: str, anchor: str = "start") -> str:
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{end}>{escape(content)}</text>'
