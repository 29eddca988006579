"""What the page says of the schedulers of traces, sentence by sentence. Seconds throughout."""

from __future__ import annotations

import pytest

from kbatch.choices import Backfill, PodShape, TracePolicy
from kbatch.simulator.traces.cluster import Cluster, numbered
from kbatch.simulator.traces.easy import ListScheduler
from kbatch.simulator.traces.jobs import ONE_CPU, Job, Shape, Trace
from kbatch.simulator.traces.options import Options
from kbatch.simulator.traces.result import TraceResult
from kbatch.simulator.traces.run import simulate
from kbatch.simulator.traces.running import expected_end
from kbatch.times import SECOND

EASY = Options(backfill=Backfill.EASY)
CONSERVATIVE = Options(backfill=Backfill.CONSERVATIVE)
SJF = Options(policy=TracePolicy.SJF)


def job(submit: float, run: float, estimate: float, tasks: int, shape: Shape = ONE_CPU) -> Job:
    return Job(0, "", round(submit * SECOND), round(run * SECOND), round(estimate * SECOND), tasks, shape, "q")


def ran(jobs: list[Job], options: Options, nodes: int = 4, cluster: Cluster | None = None) -> TraceResult:
    trace = Trace(sorted(jobs, key=lambda each: each.submit))
    for place, each in enumerate(jobs):
        each.name = str(place)
    return simulate(trace, cluster or numbered(nodes, 1000, 0), options)


def starts(jobs: list[Job], options: Options, nodes: int = 4) -> list[float | None]:
    ran(jobs, options, nodes)
    return [None if each.start is None else each.start / SECOND for each in jobs]


def nodes_of(each: Job) -> list[int]:
    runs = each.nodes
    return [
        node
        for at in range(0, len(runs), 3)
        for node in range(runs[at], runs[at] + runs[at + 1])
        for _ in range(runs[at + 2])
    ]


def test_the_first_that_does_not_fit_stops_all_behind_it() -> None:
    assert starts([job(0, 10, 10, 3), job(1, 5, 5, 2), job(2, 5, 5, 1)], Options()) == [0, 10, 10]


def test_ties_go_by_the_place_in_the_file() -> None:
    assert starts([job(0, 10, 10, 3), job(0, 5, 5, 3)], Options()) == [0, 10]


def test_shortest_first_takes_the_queue_anew_at_each_decision() -> None:
    jobs = [job(0, 10, 10, 4), job(1, 9, 9, 4), job(2, 3, 3, 4), job(2, 3, 3, 4), job(11, 1, 1, 4)]
    assert starts(jobs, SJF) == [0, 17, 10, 14, 13]


def test_shortest_first_stops_all_behind_the_first_that_does_not_fit() -> None:
    assert starts([job(0, 10, 10, 3), job(1, 2, 2, 2), job(2, 5, 5, 1)], SJF) == [0, 10, 10]


def test_a_job_takes_the_lowest_nodes() -> None:
    jobs = [job(0, 2, 2, 1), job(0, 9, 9, 1), job(0, 2, 2, 1), job(3, 1, 1, 3)]
    ran(jobs, Options())
    assert [nodes_of(each) for each in jobs] == [[0], [1], [2], [0, 2, 3]]


def test_processors_fill_nodes_of_several() -> None:
    jobs = [job(0, 9, 9, 3), job(0, 9, 9, 3)]
    ran(jobs, Options(), cluster=numbered(3, 2000, 0))
    assert [nodes_of(each) for each in jobs] == [[0, 0, 1], [1, 2, 2]]


def test_a_rigid_job_is_one_pod() -> None:
    jobs = [job(0, 9, 9, 1), job(0, 9, 9, 2), job(0, 9, 9, 3)]
    result = ran(jobs, Options(shape=PodShape.RIGID), cluster=numbered(2, 2000, 0))
    assert [nodes_of(each) for each in jobs] == [[0], [1], []]
    assert [each.name for each in result.jobs] == ["0", "1"]
    assert result.dropped["too_large"] == 1


def test_easy_lets_in_what_is_gone_in_time_on_reserved_nodes() -> None:
    # The second is to start at 10 on nodes 0 to 3; the fourth is gone by then, the third is not.
    jobs = [job(0, 10, 10, 2), job(1, 5, 5, 4), job(2, 9, 9, 2), job(2, 8, 8, 2)]
    assert starts(jobs, EASY) == [0, 10, 15, 2]


def test_easy_lets_others_in_on_nodes_that_are_not_reserved() -> None:
    # The second is to start at 10 on nodes 0 to 2: node 3 is free for the third, though node 2 is free now as well.
    jobs = [job(0, 10, 10, 2), job(1, 5, 5, 3), job(2, 30, 30, 1), job(3, 3, 3, 1)]
    assert starts(jobs, EASY) == [0, 10, 2, 3]
    assert [nodes_of(each) for each in jobs] == [[0, 1], [0, 1, 2], [3], [2]]


def test_the_depth_is_how_many_get_reservations() -> None:
    # With one reservation the last takes node 3 and puts off the third; with two it may not.
    jobs = [(0, 10, 10, 3), (1, 5, 5, 3), (2, 5, 5, 4), (3, 20, 20, 1)]
    assert starts([job(*each) for each in jobs], EASY) == [0, 10, 23, 3]
    deeper = Options(backfill=Backfill.EASY, depth=2)
    assert starts([job(*each) for each in jobs], deeper) == [0, 10, 15, 20]


def test_easy_makes_reservations_anew_when_a_job_ends_early() -> None:
    # Until 4 the second is to start at 20, and the third would not be gone by then; the one below would be.
    jobs = [job(0, 4, 20, 3), job(1, 5, 5, 4), job(2, 18, 19, 1)]
    assert starts(jobs, EASY) == [0, 4, 9]
    jobs = [job(0, 4, 20, 3), job(1, 5, 5, 4), job(2, 17, 18, 1)]
    assert starts(jobs, EASY) == [0, 19, 2]


@pytest.mark.parametrize(
    ("now", "end"),
    [(0, 100), (99, 100), (100, 110), (105, 110), (110, 120), (199, 200), (200, 210), (1000, 1010)],
)
def test_an_estimate_that_did_not_hold_is_put_off_by_tenths(now: int, end: int) -> None:
    assert expected_end(0, 100 * SECOND, now * SECOND) == end * SECOND


def test_an_expected_end_is_rounded_up_to_a_microsecond() -> None:
    assert expected_end(7, 3, 10) == 7 + 4
    assert expected_end(7, 1, 8) == 7 + 2
    assert expected_end(7, 1, 9) == 7 + 3


def test_the_instant_at_which_a_job_turns_out_to_be_overdue_is_looked_at() -> None:
    # The first was to end at 10; that it does not is seen at 10, and then again at 11: the third is gone by then.
    jobs = [job(0, 30, 10, 3), job(1, 5, 5, 4), job(2, 0.9, 0.9, 1), job(9.5, 0.9, 0.9, 1)]
    assert starts(jobs, EASY) == [0, 30, 2, 10]


def test_nobody_is_killed_at_its_estimate() -> None:
    jobs = [job(0, 30, 10, 4), job(1, 1, 1, 4)]
    for options in (Options(), EASY, CONSERVATIVE):
        assert starts(jobs, options) == [0, 30]
        for each in jobs:
            each.start = each.finish = None


def test_conservative_promises_everybody_an_instant() -> None:
    # As with a depth of two above: the last delays nobody, and takes the first hole that is long enough.
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 3), job(2, 5, 5, 4), job(3, 20, 20, 1), job(4, 11, 11, 1), job(5, 5, 5, 1)]
    assert starts(jobs, CONSERVATIVE) == [0, 10, 15, 20, 4, 20]


def test_promises_improve_when_something_ends_and_each_is_made_again_alone_in_order() -> None:
    # Promised: the second 20 on 0 to 3, the third 25 on 0, the fourth 25 on 1. At 8 the first ends.
    jobs = [job(0, 8, 20, 4), job(1, 5, 5, 4), job(2, 3, 3, 1), job(3, 4, 4, 1)]
    assert starts(jobs, CONSERVATIVE) == [0, 8, 13, 13]
    assert [nodes_of(each) for each in jobs[2:]] == [[0], [1]]


def test_a_promise_is_made_again_beside_all_others_those_behind_it_too() -> None:
    # The third is promised both nodes from 100 on, the fourth 110, the last node 0 from 10 to 100. When the first ends
    # at 5 there would be room for the fourth from then on, were it not for the last, which starts.
    jobs = [job(0, 5, 10, 1), job(0, 100, 100, 1), job(1, 10, 10, 2), job(2, 95, 95, 1), job(3, 90, 90, 1)]
    assert starts(jobs, CONSERVATIVE, nodes=2) == [0, 0, 100, 110, 5]


def test_arrivals_of_an_instant_get_their_promises_after_the_others_have_improved() -> None:
    jobs = [job(0, 5, 10, 2), job(1, 5, 5, 2), job(5, 5, 5, 2)]
    assert starts(jobs, CONSERVATIVE, nodes=2) == [0, 5, 10]


def test_promises_make_way_for_an_overdue_job_in_order() -> None:
    jobs = [job(0, 13, 10, 2), job(1, 5, 5, 2), job(2, 5, 5, 2)]
    assert starts(jobs, CONSERVATIVE, nodes=2) == [0, 13, 18]


def test_without_room_for_more_promises_jobs_start_only_where_they_delay_none() -> None:
    jobs = [job(0, 10, 10, 3), job(1, 5, 5, 4), job(2, 5, 5, 4), job(3, 8, 8, 1), job(4, 6, 6, 1)]
    one = Options(backfill=Backfill.CONSERVATIVE, depth=1)
    assert starts(jobs, one) == [0, 10, 15, 20, 4]


def test_fractions_of_seconds_count() -> None:
    jobs = [job(0.000001, 0.000002, 0.000002, 4), job(0.000002, 1, 1, 4)]
    assert starts(jobs, Options()) == [0.000001, 0.000003]


def test_what_has_not_started_when_the_clock_stops_has_no_times() -> None:
    jobs = [job(0, 10, 10, 4), job(1, 5, 5, 4)]
    result = ran(jobs, Options(until=8 * SECOND))
    assert [(each.start, each.finish) for each in jobs] == [(0, None), (None, None)]
    assert result.cut


@pytest.mark.parametrize("options", [EASY, CONSERVATIVE])
def test_the_check_finds_nothing_where_nobody_is_delayed(options: Options) -> None:
    jobs = [job(0, 10, 10, 2), job(1, 5, 5, 4), job(2, 8, 8, 2), job(2, 9, 9, 2)]
    checked = Options(backfill=options.backfill, check=True)
    result = ran(jobs, checked)
    assert (result.backfilled, result.delays) == (1, ())


def test_the_check_finds_a_job_that_delays_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_away(scheduler: ListScheduler) -> None:
        scheduler._most.clear()
        scheduler._fitting.clear()
        scheduler._limits, scheduler._rooms = [], [scheduler.timeline.room(0)]

    monkeypatch.setattr(ListScheduler, "_look", look_away)
    jobs = [job(0, 10, 10, 2), job(1, 5, 5, 4), job(2, 9, 9, 2)]
    result = ran(jobs, Options(backfill=Backfill.EASY, check=True))
    assert [str(delay) for delay in result.delays] == [
        "at 2 s job 2 was backfilled before job 1, which therefore cannot start at 10 s"
    ]
