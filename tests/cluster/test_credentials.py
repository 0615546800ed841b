"""The credentials of a pool in ZooKeeper come from a file, and a file that has none says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.roles.run import credentials
from belvedere.errors import DataError
from belvedere.protocol.messages import Role


def options(file: Path | None) -> ProcessOptions:
    return ProcessOptions(Role.VIEWSERVER, "127.0.0.1:2181", zookeeper_credentials=file)


def test_user_and_password_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("belvedere:a:b\n")
    found = credentials(options(file))
    assert found is not None and (found.user, found.password) == ("belvedere", "a:b")
    assert credentials(options(None)) is None


@pytest.mark.parametrize("text", ["", "belvedere", ":secret", "belvedere:"])
def test_a_file_without_them_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with pytest.raises(DataError, match="one line USER:PASSWORD is needed") as error:
        credentials(options(file))
    assert "secret'" in str(error.value) and ":secret" not in str(error.value)
