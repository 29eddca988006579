"""What may be written later waits while it is held, and not for ever."""

from __future__ import annotations

from operators.scheduler.deferred import LATE_SECONDS, DeferredStatusQueue, Rank

GANG, CONTRADICTED, SINGLE = Rank.GANG, Rank.CONTRADICTED, Rank.SINGLE


def four() -> DeferredStatusQueue[str]:
    queue: DeferredStatusQueue[str] = DeferredStatusQueue()
    queue.put("a", "of a", 0.0, SINGLE)
    queue.put("b", "of b", 1.0, SINGLE)
    queue.put("c", "of c", 2.0, CONTRADICTED)
    queue.put("d", "of d", 3.0, GANG)
    return queue


def test_nothing_waits_that_is_not_held() -> None:
    queue = four()
    found = [queue.due(3.0, hold=False, busy=()) for _ in range(5)]
    assert found == [("d", "of d", 3.0), ("c", "of c", 2.0), ("a", "of a", 0.0), ("b", "of b", 1.0), None]
    assert len(queue) == 0


def test_gangs_come_first_and_an_untruth_ends_sooner_than_a_silence() -> None:
    queue = four()
    assert queue.due(3.0 + GANG.value - 0.1, hold=True, busy=()) is None
    assert queue.due(3.0 + GANG.value, hold=True, busy=()) == ("d", "of d", 3.0)
    assert queue.due(2.0 + CONTRADICTED.value, hold=True, busy=()) == ("c", "of c", 2.0)
    assert queue.due(SINGLE.value - 0.1, hold=True, busy=()) is None
    assert queue.due(SINGLE.value, hold=True, busy=()) == ("a", "of a", 0.0)
    assert queue.due(SINGLE.value, hold=True, busy=()) is None


def test_a_gang_is_late_a_moment_after_its_time() -> None:
    queue = four()
    time = 3.0 + GANG.value
    assert not queue.late(time)
    assert queue.late(time + LATE_SECONDS)
    assert queue.due_gang(time + LATE_SECONDS, ()) == ("d", "of d", 3.0)
    assert queue.due_gang(time + 60, ()) is None, "the others are no gangs"
    assert not queue.late(time + 60)


def test_of_a_group_that_is_being_written_nothing_is_said() -> None:
    assert four().due(3.0, hold=False, busy={"a", "c", "d"}) == ("b", "of b", 1.0)


def test_what_is_no_longer_so_is_not_said() -> None:
    queue = four()
    for key in "acd":
        queue.discard(key)
    assert ("a" in queue, "b" in queue, "d" in queue) == (False, True, False)
    assert queue.take_all() == {"b": "of b"}
    assert len(queue) == 0
