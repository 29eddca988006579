from pathlib import Path

import pytest

import kbatch
from kbatch.localcluster.errors import NotACheckoutError
from kbatch.localcluster.folders import checkout


@pytest.mark.parametrize("place", ["kbatch", ".compiled/kbatch"])
def test_the_checkout_is_found_from_its_sources_and_from_what_was_compiled_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "localcluster").mkdir()
    (tmp_path / "localcluster" / "go.mod").touch()
    monkeypatch.setattr(kbatch, "__file__", str(tmp_path / place / "__init__.py"))
    assert checkout() == tmp_path


def test_an_installed_wheel_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kbatch, "__file__", str(tmp_path / "site-packages" / "kbatch" / "__init__.py"))
    with pytest.raises(NotACheckoutError):
        checkout()
