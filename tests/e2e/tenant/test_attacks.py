"""The list of attacks, each tried by one tenant while the gangs of its neighbour come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster.errors import ApiError
from tests.e2e.tenant.attack import Attack, Refused
from tests.e2e.tenant.catalogue import ATTACKS
from tests.e2e.tenant.stream import LINES
from tests.e2e.tenant.tenant import ATTACKER, GROUPS, NEIGHBOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.tenant.stream import LINES, Measured
from tests.e2e.tenant.tenant import Tenant

pytestmark = pytest.mark.tenant


@pytest.fixture(scope="module")
def meanwhile(tenant: Tenant) -> Iterator[Measured]:
    """The neighbour's stream, from the first attack to the last."""
    with tenant.stream.running() as measured:
        yield measured
    refused = sum(isinstance(attack.outcome, Refused) for attack in ATTACKS)
    LINES.append(f"{refused} attacks to be refused, {len(ATTACKS) - refused} to be harmless; {NEIGHBOUR}: {measured}")
    assert measured.lost == []


@pytest.fixture
def processes(tenant: Tenant) -> Iterator[None]:
    """All of kbatch's processes live on."""
    before = tenant.processes()
    yield
    tenant.wait("all processes are ready", tenant.ready)
    assert tenant.processes() == before, "one was started anew"


def test_the_api_server_shares_its_time_out(tenant: Tenant) -> None:
    tenant.api.get(GROUPS.format(ATTACKER))
    counted = str(tenant.admin.request("GET", "/metrics", timeout=60.0))
    assert 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts"' in counted


@pytest.mark.usefixtures("processes", "meanwhile")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_refused_or_harmless(tenant: Tenant, attack: Attack) -> None:
    try:
        if isinstance(attack.outcome, Refused):
            with pytest.raises(ApiError) as caught:
                attack.act(tenant)
            assert caught.value.status == attack.outcome.status, caught.value
            assert attack.outcome.says in caught.value.message, caught.value
        else:
            attack.act(tenant)
            tenant.neighbour_is_whole()
    finally:
        tenant.clean()


def test_nothing_of_the_neighbours_is_lost(tenant: Tenant, meanwhile: Measured) -> None:
    tenant.neighbours_gang()
    assert meanwhile.lost == []
    assert len(meanwhile.seconds) >= len(ATTACKS) / 4, "the stream ran all the time"
    tenant.neighbour_is_whole()
