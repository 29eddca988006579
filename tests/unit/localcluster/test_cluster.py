from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster import ports
from kbatch.localcluster.cluster import COMPONENTS, Cluster, Options, Record, State, all_records
from kbatch.localcluster.errors import (
    InvalidNameError,
    LocalClusterError,
    NoSuchClusterError,
    PortTakenError,
    StartError,
)
from kbatch.localcluster.folders import cache_root, exclusive, state_root
from kbatch.localcluster.processes import alive, wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.up import down, status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process called etcd that works in the folder of the cluster `old`."""
    (tmp_path / "etcd").symlink_to(sys.executable)
    data = Cluster("old").folder / "data"
    waiting = "import signal; print(flush=True); signal.pause()"
    process = subprocess.Popen([tmp_path / "etcd", "-c", waiting, f"--data-dir={data}"], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def write_record(cluster: Cluster) -> None:
    cluster.folder.mkdir(parents=True)
    record = Record(cluster.name, "https://127.0.0.1:1", "/nowhere", [1, 2], 1)
    (cluster.folder / "cluster.json").write_text(json.dumps(asdict(record)))


@pytest.mark.parametrize("name", ["", "A", "a/b", "..", "1a", "a" * 41, "-a", "a-", "a b"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="40 lower-case letters"):
        Cluster(name)


def test_nothing_is_absent() -> None:
    assert Cluster("new").state() is State.ABSENT
    assert not down("new")
    with pytest.raises(NoSuchClusterError, match="kbatch up --name new"):
        status("new")


def test_who_names_none_is_told_which_there_are() -> None:
    write_record(Cluster("mine"))
    write_record(Cluster("a-demo"))
    Cluster("cut-off").folder.mkdir()
    with pytest.raises(NoSuchClusterError, match=r"There are others: a-demo, mine \(name one by --name\)"):
        status("kbatch")


def test_a_start_that_was_cut_off_is_a_left_over() -> None:
    cluster = Cluster("old")
    cluster.folder.mkdir(parents=True)
    assert cluster.state() is State.BROKEN
    assert down("old")
    assert cluster.state() is State.ABSENT


def test_processes_without_a_folder_are_a_left_over_and_are_ended(impostor: subprocess.Popen[bytes]) -> None:
    cluster = Cluster("old")
    assert cluster.state() is State.BROKEN
    assert Cluster("other").state() is State.ABSENT
    assert down("old")
    assert not alive(impostor.pid)


def test_a_record_without_processes_is_a_left_over() -> None:
    cluster = Cluster("old")
    write_record(cluster)
    assert cluster.state() is State.BROKEN
    assert [record.name for record in all_records()] == ["old"]


def test_a_pid_file_that_names_a_stranger_counts_for_nothing(impostor: subprocess.Popen[bytes]) -> None:
    cluster = Cluster("old")
    write_record(cluster)
    cluster.pids.mkdir(parents=True)
    for component in COMPONENTS:
        (cluster.pids / f"{component}.pid").write_text(str(os.getpid()))
    assert [cluster.pid(component) for component in COMPONENTS] == [None] * len(COMPONENTS)
    (cluster.pids / "etcd.pid").write_text(str(impostor.pid))
    assert cluster.pid("etcd") == impostor.pid
    assert not cluster.complete()


def test_ports_are_free_distinct_and_not_reserved() -> None:
    chosen = ports.free_ports(50)
    assert len(set(chosen)) == 50
    assert all(ports.is_free(port) for port in chosen)
    assert set(ports.free_ports(50, reserved=range(20_000, 31_000))) <= set(range(31_000, 32_000))
    with pytest.raises(LocalClusterError, match="no 2 free ports"):
        ports.free_ports(2, reserved=range(20_000, 31_999))


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"Port {port}, wanted for the API server, is taken"):
            ports.require_free_port(port, "the API server")
    assert ports.require_free_port(port, "the API server") == port


def _ending_with(monkeypatch: pytest.MonkeyPatch, *reasons: str) -> list[list[int]]:
    """kwokctl of each attempt ends for the next reason, or starts everything; the ports of each attempt."""
    tried: list[list[int]] = []

    def create(cluster: Cluster, programs: Programs, _options: Options) -> Record:
        tried.append(ports.free_ports(5))
        if len(tried) <= len(reasons):
            raise StartError("kwok-controller", reasons[len(tried) - 1])
        return Record(cluster.name, "https://127.0.0.1:1", str(programs.bin), tried[-1], tried[-1][0])

    monkeypatch.setattr(Cluster, "_create", create)
    monkeypatch.setattr(Cluster, "_wait_ready", lambda _cluster: None)
    return tried


def test_a_port_that_somebody_takes_before_the_server_listens_is_left_to_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken = "it ended at once (listen tcp 127.0.0.1:30496: bind: address already in use)"
    tried = _ending_with(monkeypatch, taken, taken)
    record = Cluster("new").start(Programs(bin=tmp_path))
    assert len(tried) == 3
    assert record.ports == tried[2]
    assert Cluster("new").record() == record


@pytest.mark.parametrize(("reason", "attempts"), [("bind: address already in use", 3), ("no disk", 1)])
def test_what_other_ports_do_not_mend_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, attempts: int
) -> None:
    tried = _ending_with(monkeypatch, *[reason] * 5)
    with pytest.raises(StartError, match=reason):
        Cluster("new").start(Programs(bin=tmp_path))
    assert len(tried) == attempts
    assert Cluster("new").state() is State.ABSENT


def test_a_lock_keeps_others_out_and_leaves_no_file(tmp_path: Path) -> None:
    lock = tmp_path / "x" / "lock"
    script = (
        "import sys, pathlib; from kbatch.localcluster.folders import exclusive\n"
        f"with exclusive(pathlib.Path({str(lock)!r}), waiting=lambda: print('waits', flush=True)): print('has it')"
    )
    with exclusive(lock):
        other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert other.stdout
        assert other.stdout.readline() == "waits\n"
    assert other.communicate(timeout=20)[0] == "has it\n"
    assert wait_until(lambda: not lock.exists(), 5)


def test_folders_follow_the_xdg_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_root() == tmp_path / "kbatch"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache_root()) == "/home/someone/.cache/kbatch"


@pytest.mark.parametrize("chosen", [False, True])
def test_requests_are_shared_out_by_the_api_server_where_that_is_chosen(
    chosen: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Cluster, "_kwokctl", lambda _cluster, _programs, *arguments: said.extend(arguments))
    cluster = Cluster("fair")
    cluster.folder.mkdir(parents=True)
    cluster._create(Programs(bin=tmp_path), Options(priority_and_fairness=chosen))
    assert ("kube-apiserver=enable-priority-and-fairness=true" in said) == chosen
    # None at all is what kwokctl chooses, and with shares the API server does not start so.
    assert ("kube-apiserver=max-mutating-requests-inflight=200" in said) == chosen
