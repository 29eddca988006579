"""From a process's flags to its Lease, and what readiness means for one that stands by."""

from __future__ import annotations

from typing import Final, TypeVar

from kbatch.kube.client import Api
from kbatch.kube.lease import Elector, Fenced
from kbatch.metrics import LeaderMetrics
from kbatch.process.health import Check, Health
from kbatch.process.run import ProcessError, Runtime
from kbatch.process.settings import LeaderSettings

SettingsT = TypeVar("SettingsT", bound=LeaderSettings)

LEASE_CONNECTIONS: Final = 2
"""For the client that renews the Lease: one, and one more while the first hangs."""

LEADER: Final = "leader"
STANDBY: Final = "standby"
"""What /readyz says of a process of which at most one acts."""


def elector_of(runtime: Runtime[SettingsT], api: Api) -> Elector | None:
    """The elector that the flags ask for, with its metric and its liveness; None where they ask for none.

    `api` should be nobody else's: behind thousands of binds on the same connections, a renewal would come too late.

    Raises:
        ProcessError: the durations do not fit together.
    """
    settings = runtime.settings
    leader = LeaderMetrics(runtime.registry).leader
    if not settings.leader_elect:
        leader.set(1)
        runtime.health.say("role", lambda: LEADER)
        return None
    try:
        elector = Elector(
            api,
            namespace=settings.resolved_lease_namespace(),
            name=settings.lease_name or f"kbatch-{runtime.name}",
            identity=settings.resolved_identity(),
            lease_duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
        )
    except ValueError as error:
        raise ProcessError(f"leader election: {error}") from None
    runtime.health.live("lease", elector.stuck)
    leader.set_function(lambda: float(elector.is_leader))
    runtime.health.say("role", lambda: LEADER if elector.is_leader else STANDBY)
    return elector


def fenced(api: Api, elector: Elector | None) -> Api:
    """The API server for writes: they are refused here while this process does not lead."""
    return api if elector is None else Fenced(api, elector)


def while_active(health: Health, elector: Elector | None, name: str, check: Check) -> None:
    """Add a readiness check that holds only while this process acts: one that stands by for another is ready to."""

    def checked() -> str | None:
        if elector is None or elector.is_leader:
            return check()
        return None if elector.holder else "nobody holds the Lease yet"

    health.ready(name, checked)
