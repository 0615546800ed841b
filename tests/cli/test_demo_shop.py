"""The demo's model of its own writes agrees with simply doing them."""

from __future__ import annotations

from belvedere.cli import demo_screen, demo_shop


def test_operations_depend_on_their_number_alone() -> None:
    assert demo_shop.step(5) == demo_shop.step(5)
    assert demo_shop.step(5).items != demo_shop.step(6).items


def test_the_model_knows_what_the_tables_contain_after_any_number_of_operations() -> None:
    orders: set[int] = set()
    items: dict[int, int] = {}
    model = demo_shop.Model()
    for operation in range(30):
        number, part = divmod(operation, demo_shop.OPERATIONS_PER_STEP)
        writes = demo_shop.step(number)
        if part == 0:
            orders |= set(writes.orders["id"].to_pylist())
        elif part == 1:
            items |= {row["id"]: row["quantity"] for row in writes.items.to_pylist()}
        else:
            for item in writes.deleted:
                items.pop(item, None)
        assert model.advance(operation + 1) == demo_shop.Totals(len(orders), len(items), sum(items.values()))


def test_a_sparkline_scales_to_its_tallest_value() -> None:
    assert demo_screen.sparkline([0, 4, 8], 10) == "▁▅█"
    assert demo_screen.sparkline([], 10) == ""
    assert len(demo_screen.sparkline(range(100), 40)) == 40


def test_percentiles() -> None:
    assert demo_screen.percentile([], 0.5) == 0.0
    assert demo_screen.percentile([3, 1, 2], 0.5) == 2
    assert demo_screen.percentile(range(100), 0.99) == 99
