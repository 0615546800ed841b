"""Pictures in the documentation are what the tool draws. To draw them again: `python -m tests.docs.test_images`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import belvedere
from belvedere.cli.script import split

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "docs" / "images" / "city_revenue.svg"


def drawn(directory: Path) -> str:
    """The plan of the shop's view as a reading process draws it: estimates per row, no sizes of the moment."""
    with belvedere.open(directory) as db:
        for piece in split((ROOT / "examples" / "shop.sql").read_text()):
            db.execute(piece.sql)
    with belvedere.open(directory, read_only=True) as db:
        text = db.execute("EXPLAIN FORMAT SVG city_revenue")
    assert isinstance(text, str)
    return text


def test_the_picture_in_the_readme_is_drawn_by_the_tool(tmp_path: Path) -> None:
    assert IMAGE.read_text().rstrip() == drawn(tmp_path).rstrip()
    assert "docs/images/city_revenue.svg" in (ROOT / "README.md").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        IMAGE.write_text(drawn(Path(directory)))
