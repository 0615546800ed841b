"""A picture of the results: rates of Belvedere and the naive engine side by side, with the ratio wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(results: dict[str, Any], target: Path) -> None:
    """Write an SVG; nothing if the queries were not run."""
    rows = results.get("queries")
    if not rows:
        return
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    labels = [f"{r['query']}\n{r['groups'] // 1000}k {r['distribution']}" for r in rows]
    places = range(len(rows))
    figure, (rates, ratios) = pyplot.subplots(2, 1, figsize=(1.2 * len(rows) + 2, 8), sharex=True)
    rates.bar(
        [p - 0.2 for p in places], [r["belvedere_per_cpu_s"] / 1e6 for r in rows], 0.4, label="Belvedere, durable"
    )
    rates.bar([p + 0.2 for p in places], [r["naive_per_cpu_s"] / 1e6 for r in rows], 0.4, label="naive, in memory")
    rates.set_ylabel("million operations per CPU second")
    rates.legend()
    ratios.bar(places, [r["ratio"] for r in rows], 0.6, color="tab:green", label="ratio")
    ratios.plot(places, [r["target"] for r in rows], "_", markersize=40, color="black", label="wanted")
    ratios.set_ylabel("Belvedere / naive")
    ratios.set_xticks(list(places), labels, fontsize=8)
    ratios.legend()
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)


def draw_paper(results: dict[str, Any], published: dict[str, float], place: Path) -> None:
    """SVGs of the experiments over HBase that were done, with the paper's figures where it has published any."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "belvedere"
    place.mkdir(parents=True, exist_ok=True)
    if "base" in results:
        _draw_base(results["base"], place / "hbase_base_table.svg")
    if "reads" in results:
        _draw_reads(results["reads"], published["read_ms"], place / "hbase_reads.svg")
    if "types" in results:
        _draw_types(results["types"], published["operations_per_server"], place / "hbase_view_types.svg")


def _draw_base(base: dict[str, Any], target: Path) -> None:
    from matplotlib import pyplot

    names, places = list(base), range(len(base))
    figure, (rates, latencies) = pyplot.subplots(1, 2, figsize=(11, 4))
    rates.bar(places, [base[name]["rows_per_s"] / 1000 for name in names], 0.6)
    rates.set_title("base table: thousand puts per second, one writer")
    latencies.bar([p - 0.2 for p in places], [base[name]["put_ms"]["p50"] for name in names], 0.4, label="p50")
    latencies.bar([p + 0.2 for p in places], [base[name]["put_ms"]["p99"] for name in names], 0.4, label="p99")
    latencies.set(title="ms for a batch of 100 puts", yscale="log")
    latencies.legend()
    for axes in (rates, latencies):
        axes.set_xticks(
            list(places), [name.replace(", ", ",\n").replace(" again", "\nagain") for name in names], fontsize=7
        )
    _save(figure, target)


def _draw_reads(reads: list[dict[str, Any]], published_ms: float, target: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    sizes = [one["rows"] for one in reads]
    for way in [name for name in reads[0] if name != "rows"]:
        axes.plot(sizes, [one[way]["p50"] for one in reads], "o-", label=way)
    axes.axhline(
        published_ms, ls=":", color="firebrick", label=f"VMS reads of views: < {published_ms:g} ms (published)"
    )
    axes.set(
        xscale="log", yscale="log", xlabel="rows of the base table", ylabel="ms, median", title="the sum of a group"
    )
    axes.legend(fontsize=8)
    _save(figure, target)


def _draw_types(types: dict[str, Any], published: float, target: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    names, places = list(types), range(len(types))
    servers = [types[name]["rows"] / types[name]["cpu"]["viewserver"] for name in names]
    whole = [types[name]["rows"] / sum(types[name]["cpu"].values()) for name in names]
    axes.bar([p - 0.2 for p in places], servers, 0.4, label="per CPU second of the view server")
    axes.bar([p + 0.2 for p in places], whole, 0.4, label="per CPU second of everything: HBase, pool, writer")
    axes.axhline(published, ls=":", color="firebrick", label=f"VMS: about {published:,.0f} per second and server")
    axes.set(yscale="log", ylabel="operations of the base table", title="what a view costs, by its type")
    axes.set_xticks(list(places), [name.replace(" ", "\n", 1) for name in names], fontsize=8)
    axes.legend(fontsize=8)
    _save(figure, target)


def _save(figure: Any, target: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)
