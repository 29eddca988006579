"""One control plane for all fault tests of a session, with an audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.auditor.audit_log import policy
from tests.e2e.chaos.field import NAMESPACE, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import ControlPlane


@pytest.fixture(scope="session")
def field(
    start_control_plane: Callable[..., ControlPlane], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Field]:
    folder = tmp_path_factory.mktemp("chaos")
    plane = start_control_plane(audit_policy=policy(folder, NAMESPACE))
    with plane.api() as api:
        made = Field(plane, folder, api)
        made.install()
        yield made
