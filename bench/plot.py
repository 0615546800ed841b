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
