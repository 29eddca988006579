"""What an API server's record shows of replicas that write out of turn."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from tests.e2e.auditor import audit_log
from tests.e2e.auditor.auditor import recorded
from tests.e2e.auditor.rules import Eviction

LEASE = "kbatch-scheduler"


class Record:
    """An audit log as it is written."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.log"
        self.path.touch()

    def write(self, at: float, agent: str, verb: str, uri: str, status: int = 200, **more: Any) -> None:
        parts = uri.partition("?")[0].split("/")
        entry = {
            "stage": "ResponseComplete",
            "requestReceivedTimestamp": _stamp(at),
            "stageTimestamp": _stamp(at + 0.01),
            "userAgent": f"kbatch-scheduler/0.1 ({agent})" if agent else "kubectl/v1",
            "verb": verb,
            "requestURI": uri,
            "objectRef": {
                "resource": parts[0], "namespace": "ns", "name": parts[1], "subresource": (parts[2:] or [""])[0],
            },
            "responseStatus": {"code": status},
            **more,
        }  # fmt: skip
        with self.path.open("a") as log:
            log.write(json.dumps(entry) + "\n")

    def lease(self, at: float, holder: str, *, by: str | None = None, seconds: int = 15, status: int = 200) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        agent = holder if by is None else by
        self.write(at, agent, "update", f"leases/{LEASE}", status, responseObject={"spec": spec})

    def bind(self, at: float, agent: str, pod: str = "p", *, status: int = 201, uid: str = "") -> None:
        body = {"metadata": {"uid": uid or pod}, "target": {"name": f"node-of-{agent}"}}
        self.write(at, agent, "create", f"pods/{pod}/binding", status, requestObject=body)

    @property
    def rules(self) -> list[str]:
        return [violation.rule for violation in recorded(audit_log.read(self.path), LEASE)]


def _stamp(at: float) -> str:
    return dt.datetime.fromtimestamp(1_000_000 + at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_leader_may_write(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(1, "a", "p")
    record.lease(2, "a")
    record.bind(16, "a", "q")
    record.write(16, "", "create", "pods/x/binding")
    assert record.rules == []


def test_a_standby_may_not_even_where_the_server_refuses_it(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(1, "b", status=409)
    record.write(2, "b", "create", "pods/p/eviction", 201)
    assert record.rules == ["not the leader"] * 2


def test_a_leader_whose_lease_has_run_out_may_not(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(14, "a", "p")
    assert record.rules == []
    record.bind(16, "a", "q")
    assert record.rules == ["not the leader"]


def test_a_leader_that_gave_its_lease_back_may_not(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(30, "a")
    record.lease(31, "", by="a", seconds=1)
    record.bind(32, "a", "q")
    assert record.rules == ["not the leader"]


def test_a_leader_that_was_robbed_may_not_once_it_has_asked(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.lease(5, "thief", by="")
    record.bind(6, "a", "p")
    record.lease(7, "a", status=409)
    assert record.rules == []
    record.bind(8, "a", "q")
    assert record.rules == ["not the leader"]


def test_a_leader_whose_lease_was_taken_in_time_may_not(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.lease(15, "b")
    record.bind(15.1, "a", "q")
    assert record.rules == ["not the leader"]


def test_a_lease_that_was_not_written_makes_no_leader(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.lease(1, "b", status=409)
    record.bind(2, "b")
    assert record.rules == ["not the leader"]


def test_a_lease_taken_before_its_time(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.lease(15.1, "b")
    assert record.rules == []
    record.lease(20, "a")
    assert record.rules == ["two leaders"]


def test_a_pod_bound_by_two_requests(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(1, "a", "p")
    record.bind(2, "a", "p", status=409)
    record.bind(3, "a", "p", uid="another pod of that name")
    assert record.rules == []
    record.bind(4, "a", "p")
    assert record.rules == ["bound twice"]


def test_only_what_came_after_a_moment_is_judged_by_all_that_came_before(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(1, "b", "p")
    record.bind(3, "a", "q")
    writes = audit_log.read(record.path)
    assert len(recorded(writes, LEASE, since=0.0)) == 1
    assert recorded(writes, LEASE, since=1_000_002) == []


def test_a_line_cut_short_and_a_dry_run_do_not_count(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.write(1, "a", "create", "pods/p/eviction?dryRun=All")
    with record.path.open("a") as log:
        log.write('{"stage": "Respon')
    [write] = [one for one in audit_log.read(record.path) if one.resource == "pods/eviction"]
    assert write.dry_run
    assert record.rules == []


def test_a_log_is_followed_while_it_is_written_and_renamed(tmp_path: Path) -> None:
    record = Record(tmp_path)
    log = audit_log.AuditLog(record.path)
    record.lease(0, "a")
    assert [write.name for write in log.writes()] == [LEASE]
    record.bind(1, "a", "p")
    assert len(log.writes()) == 2
    record.bind(2, "a", "q")
    record.path.rename(tmp_path / "audit-2026-01-01T00-00-00.000.log")
    record.bind(3, "a", "r")
    assert [write.name for write in log.writes()] == [LEASE, "p", "q", "r"]
    assert audit_log.read(record.path) == log.writes()


def test_a_line_behind_half_a_line_counts(tmp_path: Path) -> None:
    record = Record(tmp_path)
    beginning = '{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
    record.bind(1, "a", "p")
    whole = record.path.read_text().replace("{", beginning, 1)
    record.path.write_text(whole[: len(whole) // 2] + whole)
    assert [write.name for write in audit_log.read(record.path)] == ["p"]


def test_an_eviction_is_one_that_was_carried_out_and_names_its_cause(tmp_path: Path) -> None:
    record = Record(tmp_path)
    why = {"kbatch.dev/evicted-by": "reclaim", "kbatch.dev/evicted-for": "ns/g"}
    body = {"metadata": {"annotations": why}, "deleteOptions": {"preconditions": {"uid": "u"}}}
    tried = {**body, "deleteOptions": {**body["deleteOptions"], "dryRun": ["All"]}}
    record.write(1, "a", "create", "pods/p/eviction", 201, requestObject=body)
    record.write(2, "a", "create", "pods/q/eviction", 201, requestObject=tried)
    record.write(3, "a", "create", "pods/q/eviction", 429, requestObject=body)
    record.write(4, "", "create", "pods/r/eviction", 201, requestObject=body)
    record.bind(5, "a", "p")
    log = audit_log.AuditLog(record.path)
    assert [audit_log.eviction_of(write) for write in log.recorded(0)] == [
        Eviction("ns/p", "u", "a", "reclaim", "ns/g"),
        None,
        None,
        Eviction("ns/r", "u", "", "", ""),
        None,
    ]


def test_what_was_recorded_later_comes_later_even_where_it_was_received_sooner(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.bind(2, "a", "p")
    log = audit_log.AuditLog(record.path)
    assert len(log.recorded(0)) == 1
    record.bind(1, "a", "q")
    assert [write.name for write in log.recorded(1)] == ["q"]
    assert [write.name for write in log.writes()] == ["q", "p"]
    assert log.recorded(2) == []


def test_a_pod_that_was_bound_is_not_tried_again(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")
    record.bind(1, "a")
    record.bind(1.5, "a", status=409)  # on its way when the first one was answered
    assert record.rules == []
    record.bind(3, "a", status=409)
    assert record.rules == ["bound again"]
    record.bind(4, "a", "q", status=409)  # another one's pod: it cannot know
    record.bind(4, "", status=409)  # nobody of ours
    record.bind(5, "a", uid="anew")
    assert record.rules == ["bound again"]


def test_a_pod_is_evicted_once(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a")

    def evict(at: float, uid: str, *, status: int = 201, dry: bool = False) -> None:
        options = {"preconditions": {"uid": uid}, **({"dryRun": ["All"]} if dry else {})}
        body = {"metadata": {"name": "p"}, "deleteOptions": options}
        record.write(at, "a", "create", "pods/p/eviction", status, requestObject=body)

    evict(1, "u", dry=True)
    evict(2, "u", status=429)
    evict(3, "u")
    evict(4, "v")
    assert record.rules == []
    evict(5, "u")
    assert record.rules == ["evicted twice"]


def test_a_status_is_not_written_all_the_time(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.lease(0, "a", seconds=60)
    for number in range(60):
        record.write(1 + number / 2, "a", "patch", "podgroups/g/status")  # 20 in ten seconds
    assert record.rules == []
    for number in range(3):
        record.write(31 + number / 100, "a", "patch", "podgroups/g/status")
    assert record.rules == ["written often"]
