"""Every figure is there, under the name that the reference gives it."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from belvedere.cluster.process import metrics
from belvedere.cluster.process.metrics import METRICS, Metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def made(clock: Time) -> Metrics:
    return Metrics("default", "viewserver", "vs-1", version="0.1.0", protocol=1, clock=clock, monotonic=clock)


def test_the_reference_lists_every_metric_and_nothing_else() -> None:
    rows = re.findall(r"^\| `(belvedere_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    rows = [row for row in rows if not row[0].startswith("belvedere_http_")]  # of gateways
    listed = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    for metric in METRICS:
        shown = metric.name + ("_total" if metric.kind == "counter" else "")
        assert listed.pop(shown, None) == (metric.kind, metric.labels, metric.meaning), f"{shown} in metrics.md"
    assert not listed


def test_every_metric_appears_in_a_scrape_once_it_was_set(made: Metrics) -> None:
    made.queue(10, 2)
    made.oldest_change(None)
    made.input_bytes(5)
    made.followed_log(2, 1.5)
    made.backlog(lambda: 6, 60)
    made.merging(lambda: 8)
    made.held_up(0.5)
    made.scanned(12)
    made.send_backlog(lambda: 7, lambda: ["b"])
    with made.busy():
        pass
    made.epoch_step("plan", 0.01)
    made.committed(1_700_000_000_123)
    made.attempt_repeated("member lost")
    made.stage_rows(0, "z1", 5, 6)
    made.view_rows("spend", 6)
    made.duplicates("rows", 3)
    made.state("z1", 100, 4_000)
    made.cache(8, 2)
    made.spilled(9)
    made.quarantined("spend", 1)
    made.load("orders", 0.5, 12.0)
    made.ring(5_461, 12)
    made.session_suspended()
    made.session_lost()
    text = made.render().decode()
    for metric in METRICS:
        suffix = {"counter": "_total", "gauge": "", "histogram": "_count"}[metric.kind]
        labels = r'pool="default",role="viewserver",server="vs-1"' + "".join(
            f',{name}="[^"]*"' for name in metric.labels
        )
        in_any_order = re.search(rf"^{metric.name}{suffix}{{(.*)}} [0-9.e+]+$", text, re.MULTILINE)
        assert in_any_order, metric.name
        found = set(re.findall(r'(\w+)="', in_any_order[1]))
        assert found == set(re.findall(r'(\w+)="', labels)), metric.name
        assert f"# HELP {metric.name}" in text
    assert "_created" not in text
    assert "process_cpu_seconds_total" in text


def test_names_and_units_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"belvedere_[a-z]+(_[a-z]+)*", metric.name)
        assert not metric.name.endswith(("_total", "_milliseconds", "_ms", "_count", "_sum", "_bucket"))
        assert not set(metric.labels) & set(metrics.COMMON_LABELS)


def test_counters_add_and_levels_are_set(made: Metrics) -> None:
    for _ in range(3):
        made.queue(10, 2)
        made.queue(30, 3, 1)
        made.view_rows("spend", 6)
        made.attempt_repeated("member lost")
        made.ring(100, 7)
        made.committed(1_700_000_000_123)
        made.epoch_step("stage", 0.03, 2)
    assert made.value("belvedere_queue_rows", stage="") == 10
    assert made.value("belvedere_queue_rows", stage="1") == 30
    assert made.value("belvedere_queue_batches", stage="1") == 3
    assert made.value("belvedere_view_rows_total", view="spend") == 18
    assert made.value("belvedere_attempts_repeated_total", reason="member lost") == 3
    assert made.value("belvedere_buckets_owned") == 100
    assert made.value("belvedere_buckets_moved_total") == 21
    assert made.value("belvedere_epochs_committed_total") == 3
    assert made.value("belvedere_committed_epoch_timestamp_seconds") == 1_700_000_000.123
    assert made.value("belvedere_epoch_seconds_count", step="stage", stage="2") == 3
    assert made.value("belvedere_epoch_seconds_sum", step="stage", stage="2") == pytest.approx(0.09)
    assert made.value("belvedere_epoch_seconds_bucket", step="stage", stage="2", le="0.05") == 3
    assert made.value("belvedere_epoch_seconds_bucket", step="stage", stage="2", le="0.02") == 0


def test_the_lag_grows_while_nothing_happens(made: Metrics, clock: Time) -> None:
    assert made.value("belvedere_lag_seconds") == 0
    made.oldest_change(clock.now - 2)
    assert made.value("belvedere_lag_seconds") == 2
    clock.now += 3
    assert made.value("belvedere_lag_seconds") == 5
    made.oldest_change(clock.now + 60)  # received by a clock that is ahead
    assert made.value("belvedere_lag_seconds") == 0
    made.oldest_change(None)
    assert made.value("belvedere_lag_seconds") == 0


def test_the_busy_share_looks_back_over_one_or_two_windows(made: Metrics, clock: Time) -> None:
    def work(busy: float, idle: float) -> None:
        with made.busy():
            clock.now += busy
        clock.now += idle

    for _ in range(100):
        work(0.25, 0.75)
    assert made.value("belvedere_busy_ratio") == pytest.approx(0.25, abs=0.02)
    for _ in range(25):
        work(0.75, 0.25)
    assert made.value("belvedere_busy_ratio") == pytest.approx(0.75, abs=0.02)
    assert made.value("belvedere_busy_seconds_total") == pytest.approx(25 + 18.75)
    clock.now += 1_000
    idle = made.value("belvedere_busy_ratio")
    assert idle is not None and idle < 0.03


def test_work_that_fails_was_work(made: Metrics, clock: Time) -> None:
    def fail() -> None:
        with made.busy():
            clock.now += 2
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert made.value("belvedere_busy_seconds_total") == 2


def test_series_of_a_view_end_with_it(made: Metrics) -> None:
    made.view_rows("spend", 1)
    made.view_rows("other", 1)
    made.quarantined("spend", 4)
    made.forget_view("spend")
    made.forget_view("never there")
    assert 'view="spend"' not in made.render().decode()
    assert made.value("belvedere_view_rows_total", view="other") == 1
    made.view_rows("spend", 2)
    assert made.value("belvedere_view_rows_total", view="spend") == 2


def test_processes_in_one_interpreter_do_not_share_figures(made: Metrics) -> None:
    other = Metrics("default", "distributor", "d-1")
    other.session_lost()
    made.session_lost()
    made.session_lost()
    assert other.value("belvedere_sessions_lost_total") == 1
    assert made.value("belvedere_sessions_lost_total") == 2


def test_threads_do_not_lose_counts(made: Metrics) -> None:
    def count() -> None:
        for _ in range(2_000):
            made.stage_rows(0, "z", 1, 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.value("belvedere_stage_rows_in_total", stage="0", zone="z") == 8_000
    assert made.value("belvedere_stage_rows_out_total", stage="0", zone="z") == 16_000
