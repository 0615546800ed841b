"""Every page is found: from the start page of the documentation, and in the navigation of the site, in one order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


def leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(item)


SITE = list(leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
START = re.findall(r"\]\(([^)#:]+\.md)\)", (DOCS / "index.md").read_text())


def test_the_start_page_links_every_page_once() -> None:
    assert sorted(START) == sorted(PAGES)


def test_the_site_has_the_pages_of_the_start_page_in_its_order() -> None:
    assert ["index.md", *START] == SITE


def test_the_readme_leads_to_the_start_page() -> None:
    assert "](docs/index.md)" in (ROOT / "README.md").read_text()
