from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from kbatch.choices import TraceForm
from kbatch.simulator.errors import InputError
from kbatch.simulator.traces.cluster import UNLIMITED, listed, numbered, one_pod_a_node
from kbatch.simulator.traces.files import load_cluster, load_trace
from kbatch.simulator.traces.jobs import Job, Shape, Trace

MIB = 2**20
SWF = """\
; Version: 2.2
; MaxNodes: 128

1   0 -1  100  4 -1 -1  8  200 -1 1 3 1 -1  2 -1 -1 -1
  2  10.5 -1 60.000001 4 -1 -1 -1 -1 -1 1 3 1 -1 -1 -1 -1 -1 ; no request
3  10 -1   0  4 -1 -1  4  200 -1 5 3 1 -1  1 -1 -1 -1
4  10 -1  -1  4 -1 -1  4  200 -1 5 3 1 -1  1 -1 -1 -1
5  10 -1  60 -1 -1 -1 -1  200 -1 1 3 1 -1  1 -1 -1 -1
6  10 -1  60  4 -1 -1  0  200 -1 1 3 1 -1  1 -1 -1 -1
7  -1 -1  60  4 -1 -1  4  200 -1 1 3 1 -1  1 -1 -1 -1
1   0 -1   50  4 -1 -1  8  200 -1 2 3 1 -1  2 -1 -1 -1
8   5 -1   60  4 -1 -1  1    0 -1 1 3 1 -1  1 -1 -1 -1
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0,12000,16384,1,1000,,LS,Running,0,125.5,5
openb-pod-1,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,
openb-pod-2,32000,65536,0,0,,BE,Pending,10,10,
openb-pod-3,32000,65536,0,0,,BE,Running,20,,20
openb-pod-4,88000,327680,8,1000,,Burstable,Succeeded,15,40,16
"""


def load(tmp_path: Path, form: TraceForm, text: str | bytes) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_trace(str(path), form)


def told(jobs: list[Job]) -> list[tuple[str, int, int, int, int]]:
    return [(job.name, job.submit, job.run, job.estimate, job.tasks) for job in jobs]


def test_the_standard_workload_format(tmp_path: Path) -> None:
    trace = load(tmp_path, TraceForm.SWF, SWF)
    assert told(trace.jobs) == [
        ("1", 0, 100_000_000, 200_000_000, 8),
        ("8", 5_000_000, 60_000_000, 60_000_000, 1),
        ("2", 10_500_000, 60_000_001, 60_000_001, 4),
    ]
    assert [job.queue for job in trace.jobs] == ["2", "1", "default"]
    assert {job.shape for job in trace.jobs} == {Shape(1000, 0, 0)}
    assert trace.dropped == {"run_time": 2, "processors": 2, "too_large": 0, "submission": 1, "parts": 1}


def test_jobs_of_one_instant_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    lines = [f"{name} {submit} -1 9 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1" for name, submit in ((7, 5), (3, 5), (9, 0))]
    trace = load(tmp_path, TraceForm.SWF, "\n".join(lines))
    assert [(job.name, job.number) for job in trace.jobs] == [("9", 0), ("7", 1), ("3", 2)]


def test_packed_files_are_unpacked_and_comments_may_be_in_any_encoding(tmp_path: Path) -> None:
    text = "; Universität\n".encode("latin-1") + SWF.encode()
    assert len(load(tmp_path, TraceForm.SWF, gzip.compress(text)).jobs) == 3


def test_pods_of_openb(tmp_path: Path) -> None:
    trace = load(tmp_path, TraceForm.OPENB, OPENB)
    assert told(trace.jobs) == [
        ("openb-pod-0", 0, 120_500_000, 120_500_000, 1),
        ("openb-pod-4", 15_000_000, 24_000_000, 24_000_000, 1),
        ("openb-pod-1", 427_061_000_000, 12_475_899_000_000, 12_475_899_000_000, 1),
    ]
    assert [job.shape for job in trace.jobs] == [
        Shape(12_000, 16_384 * MIB, 1),
        Shape(88_000, 327_680 * MIB, 8),
        Shape(6000, 12_288 * MIB, 1),  # a part of a GPU counts as one
    ]
    assert trace.dropped["run_time"] == 2


def test_nodes_of_openb(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nb,32000,262144,0,\na,96000,786432,8,V100M32\n")
    cluster = load_cluster(str(path), 1000, 0)
    assert (cluster.names, cluster.called(0)) == (["b", "a"], "b")
    assert cluster.offers == [Shape(32_000, 262_144 * MIB, 0), Shape(96_000, 786_432 * MIB, 8)]
    assert [cluster.total(at) for at in range(3)] == [128_000, (262_144 + 786_432) * MIB, 8]


def test_tables_of_our_own(tmp_path: Path) -> None:
    text = (
        "arrival, duration,estimate,tasks,cpu,memory,gpu,queue,priority,comment\n"
        '5,10,,,,,,,,"first, of all"\n'
        "1.25,10,30,3,500m,1Gi,1,research,7,\n"
        "\n"
        "2,0,30,3,1,,,,,\n"
        "2,9,30,0,1,,,,,\n"
    )
    trace = load(tmp_path, TraceForm.CSV, text)
    assert told(trace.jobs) == [
        ("2", 1_250_000, 10_000_000, 30_000_000, 3),
        ("1", 5_000_000, 10_000_000, 10_000_000, 1),
    ]
    assert [(job.shape, job.queue, job.priority) for job in trace.jobs] == [
        (Shape(500, 2**30, 1), "research", 7), (Shape(1000, 0, 0), "default", 0)
    ]  # fmt: skip
    assert (trace.dropped["run_time"], trace.dropped["processors"]) == (1, 1)


def test_what_is_missing_in_a_table_may_be_minus_one(tmp_path: Path) -> None:
    trace = load(tmp_path, TraceForm.CSV, "arrival,duration,estimate,cpu,memory,gpu\n0,5,-1,-1,-1,-1\n0,5,,,,\n")
    assert [(job.estimate, job.shape) for job in trace.jobs] == [(5_000_000, Shape(1000, 0, 0))] * 2


def test_a_table_needs_no_more_than_two_columns(tmp_path: Path) -> None:
    assert told(load(tmp_path, TraceForm.CSV, "duration,x,arrival,x\n3,5,4,5\n").jobs) == [
        ("1", 4_000_000, 3_000_000, 3_000_000, 1)
    ]


@pytest.mark.parametrize(
    ("form", "text", "warnings"),
    [
        (TraceForm.CSV, "arrival,duration,cpus\n1,2,3\n", ["column 'cpus' is ignored; is 'cpu' meant?"]),
        (TraceForm.CSV, "arrival,duration,queued\n1,2,x\n", ["column 'queued' is ignored; is 'queue' meant?"]),
        (TraceForm.CSV, "queued,arrival,queue,duration\nx,1,q,2\n", []),
        (TraceForm.CSV, "arrival,duration,comment\n1,2,x\n", []),
        (
            TraceForm.CSV,
            "arrival,duration,task,task,gpus\n1,2,3,4,5\n",
            ["column 'task' is ignored; is 'tasks' meant?", "column 'gpus' is ignored; is 'gpu' meant?"],
        ),
        (
            TraceForm.OPENB,
            OPENB.replace("scheduled_time", "schedule_time"),
            ["column 'schedule_time' is ignored; is 'scheduled_time' meant?"],
        ),
    ],
)
def test_a_column_that_is_ignored_is_told_of_if_a_known_one_may_be_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: TraceForm, text: str, warnings: list[str]
) -> None:
    trace = load(tmp_path, form, text)
    assert trace.jobs[0].shape.cpu == (1000 if form is TraceForm.CSV else 12_000), "by the columns that are known alone"
    assert capsys.readouterr().err == "".join(f"kbatch: {warning}\n" for warning in warnings)


@pytest.mark.parametrize(
    ("form", "text", "sentence"),
    [
        (TraceForm.SWF, "1 0 -1 9\n", "line 1: there are 4 columns, not 18"),
        (
            TraceForm.SWF,
            f"; a\n{'1 x' + ' 1' * 16}\n",
            "line 2: column 2 (submit time): 'x' is no number of seconds",
        ),
        (
            TraceForm.SWF,
            f"1 0 1 9 1 1 1 1.5{' 1' * 10}",
            "line 1: column 8 (requested processors): '1.5' is no whole",
        ),
        (TraceForm.SWF, f"1{' 1' * 17}\n1{' 1' * 17}\n", "line 2: there is a job '1' already"),
        (
            TraceForm.SWF,
            f"1{' 1' * 2} 1e12{' 1' * 14}\n",
            "line 1: column 4 (run time): '1e12' is more than 10",
        ),
        (TraceForm.CSV, "", "line 1: the first line names no column 'arrival'"),
        (TraceForm.CSV, "arival,duration\n", "line 1: the first line names no column 'arrival'; there is 'arival'"),
        (
            TraceForm.CSV,
            "arrival,durations,cpus\n",
            "line 1: the first line names no column 'duration'; there is 'durations'",
        ),
        (TraceForm.CSV, "a,a,arrival,duration,cpu,cpu\n", "line 1: the first line names column 'cpu' twice"),
        (TraceForm.CSV, "arrival,duration\n1,2\n1,2,3\n", "line 3: there are 3 columns, and the first line names 2"),
        (TraceForm.CSV, "arrival,duration\n1,\n", "line 2: duration: '' is no number of seconds"),
        (TraceForm.CSV, "arrival,duration\n-2,1\n", "line 2: arrival: '-2' is before the start"),
        (TraceForm.CSV, "arrival,duration,cpu\n1,2,x\n", "line 2: cpu: quantity 'x'"),
        (TraceForm.CSV, "arrival,duration,memory\n1,2,-3\n", "line 2: memory: '-3' is negative"),
        (
            TraceForm.CSV,
            'arrival,duration,queue\n0,10,"research\n1,5,b\n2,5,c\n',
            "line 2: a quote is still open at the end of the line",
        ),
        (TraceForm.CSV, 'arrival,duration,queue\n0,10,"research\n', "line 2: a quote is still open"),
        (TraceForm.CSV, 'arrival,duration,queue\n0,10,"a\n"\n1,5,b\n', "line 2: a quote is still open"),
        (TraceForm.CSV, 'arrival,duration,queue\n0,10,"a' + "\n1,5,b" * 20_000, "line 2: a quote is still open"),
        (TraceForm.CSV, 'arrival,"duration\n0,10\n', "line 1: a quote is still open"),
        (TraceForm.OPENB, OPENB.replace("V100M16|", '"V100M16'), "line 3: a quote is still open"),
        (TraceForm.OPENB, "name,cpu_milli\n", "line 1: the first line names no column 'memory_mib'"),
        (TraceForm.OPENB, OPENB.replace("12000,", "-12000,", 1), "line 2: cpu_milli: '-12000' is negative"),
        (TraceForm.OPENB, OPENB.replace("openb-pod-1,", " ,"), "line 3: name: is empty"),
    ],
)
def test_what_cannot_be_understood_is_told_with_file_and_line(
    tmp_path: Path, form: TraceForm, text: str, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, form, text)
    assert str(caught.value).startswith(f"{tmp_path}/trace, {sentence}")


def test_a_damaged_or_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the compressed file is damaged"):
        load(tmp_path, TraceForm.SWF, gzip.compress(SWF.encode())[:-20])
    with pytest.raises(InputError, match="none: cannot be read: No such file"):
        load_trace(str(tmp_path / "none"), TraceForm.SWF)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("", "names no node"),
        (" ,1,1,1\n", "line 2: sn: is empty"),
        ("a,1,1,1\na,1,1,1\n", "line 3: sn: there is a node 'a' already"),
    ],
)
def test_a_list_of_nodes_that_cannot_be_used(tmp_path: Path, rows: str, sentence: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(f"sn,cpu_milli,memory_mib,gpu\n{rows}")
    with pytest.raises(InputError, match=sentence):
        listed(str(path))


@pytest.mark.parametrize(
    ("cpu", "shapes", "alone"),
    [
        (1000, [Shape(1000)], True),
        (3000, [Shape(2000), Shape(3000)], True),
        (2000, [Shape(1000)], False),
        (3000, [Shape(2000), Shape(1000)], False),
        (1000, [Shape(1000, 0, 1)], False),  # it fits none
    ],
)
def test_nodes_that_take_one_pod_each(cpu: int, shapes: list[Shape], alone: bool) -> None:
    jobs = [Job(0, "a", 0, 1, 1, 1, shape, "q") for shape in shapes]
    assert one_pod_a_node(numbered(3, cpu, 0), jobs) is alone


def test_what_a_cluster_takes() -> None:
    cluster = numbered(3, 2000, 1)
    assert cluster.takes(Job(0, "a", 0, 1, 1, 6, Shape(1000), "q"))
    assert not cluster.takes(Job(0, "a", 0, 1, 1, 7, Shape(1000), "q"))
    assert not cluster.takes(Job(0, "a", 0, 1, 1, 4, Shape(1000, 0, 1), "q"))
    assert cluster.takes(Job(0, "a", 0, 1, 1, 3, Shape(1000, 2**40, 1), "q"))
    assert cluster.offers[0].memory == UNLIMITED
