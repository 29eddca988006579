"""What was promised moves only as far as it must: pods come and end late, binds take their time, by little or much;
some pods are deleted, and gone before their grace is over, or after it.

Of pods of one queue and one priority, one to a job. A promise that moved later is at the earliest instant that there is
beside what runs and the promises before it, as the plain search of `tests.reference.traces` finds it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import Pod, PodStatus
from kbatch.engine import CycleState, Memo, take_snapshot
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.examples import examples
from tests.property.test_backfill import CONSERVATIVE
from tests.reference.traces import FOR_EVER, Promise, Stay, Work, earliest, expected_end, free
from tests.unit.engine.worlds import EPOCH, decide, node, pod, queue, stamp, world

pytestmark = pytest.mark.many

_MOST_CYCLES = 300


@dataclass
class Job:
    """A pod of so many CPUs that comes at an instant and says how long it runs (in seconds); `confirmed`: how long its
    bind takes, `late`: how much longer than said it runs (in thousandths of a second). `deleted`: so many seconds after
    that its pod is deleted, if it runs still, with a `grace`; and `goes` so long after the end of that (thousandths),
    before it is stuck.
    """

    cpu: int
    comes: int
    says: int
    confirmed: int
    late: int
    deleted: int | None = None
    grace: int = 0
    goes: int = 0

    def pod(self, name: str) -> Pod:
        found = pod(name, str(self.cpu), at=self.comes)
        found.metadata.annotations = {"kbatch.dev/expected-seconds": str(self.says)}
        return found


@st.composite
def jobs(draw: st.DrawFn, most: int) -> Job:
    return Job(
        draw(st.integers(1, most)),
        draw(st.sampled_from([0, 0, 3, 12])),
        draw(st.sampled_from([10, 20, 100])),
        draw(st.sampled_from([0, 3, 50, 1_700])),
        draw(st.sampled_from([0, 0, 1, 50, 1_000, 4_000])),
        draw(st.sampled_from([None, None, 1, 5, 9])),
        draw(st.sampled_from([1, 7, 45])),
        draw(st.sampled_from([-40_000, -3_000, 0, 500, 3_000, 10_000, 29_000])),
    )


class Day:
    """One run, instant by instant; times in microseconds since its beginning.

    Attributes:
        begun: of those that run since when, by what the scheduler or then the API server says. deadlines: when those
            that are deleted are to be gone. nominated: who waits for which node.
    """

    def __init__(self, nodes: list[int], work: list[Job]) -> None:
        self.offers = [(cpu,) for cpu in nodes]
        self.rows = {f"n{number}": number for number in range(len(nodes))}
        self.work = {f"j{number:02}": job for number, job in enumerate(work)}
        self.model = world(queue("default"), *[node(f"n{number}", str(cpu)) for number, cpu in enumerate(nodes)])
        self.state = CycleState()
        self.begun: dict[str, tuple[int, str]] = {}
        self.deadlines: dict[str, int] = {}
        self.nominated: dict[str, str] = {}
        self.now = 0
        self.wake: int | None = None
        self.to_come = [(job.comes * SECOND, "comes", name) for name, job in self.work.items()]

    def go(self) -> None:
        for _ in range(_MOST_CYCLES):
            instants = [at for at, _, _ in self.to_come] + ([self.wake] if self.wake is not None else [])
            if not instants:
                return
            self.now = min(instants)
            due = sorted(each for each in self.to_come if each[0] == self.now)
            self.to_come = [each for each in self.to_come if each[0] != self.now]
            for _, what, name in due:
                getattr(self, what)(name)
            self.cycle(ended=any(what in {"ends", "deletes"} for _, what, _ in due))
        raise AssertionError("it never comes to an end")

    def comes(self, name: str) -> None:
        self.model.apply(Upsert(self.work[name].pod(name)))

    def confirms(self, name: str) -> None:
        """The API server's times are whole seconds."""
        found, on = copy.deepcopy(self.model.tasks[f"ns/{name}"].pod), self.begun[name][1]
        found.spec.node_name, found.status = on, PodStatus(phase="Running", start_time=stamp(self.now // SECOND))
        self.model.apply(Upsert(found))
        self.begun[name] = self.now // SECOND * SECOND, on
        job = self.work[name]
        self.to_come.append((max(self.now, self.begun[name][0] + job.says * SECOND + job.late * 1_000), "ends", name))
        if job.deleted is not None:
            self.to_come.append((self.now + job.deleted * SECOND, "deletes", name))

    def deletes(self, name: str) -> None:
        if name not in self.begun:
            return
        found, job = copy.deepcopy(self.model.tasks[f"ns/{name}"].pod), self.work[name]
        deadline = self.now // SECOND + job.grace
        found.metadata.deletion_timestamp = stamp(deadline)
        self.model.apply(Upsert(found))
        self.deadlines[name] = deadline * SECOND
        gone = max(self.now + 1, deadline * SECOND + job.goes * 1_000)
        self.to_come = [
            (min(at, gone) if (what, other) == ("ends", name) else at, what, other) for at, what, other in self.to_come
        ]

    def ends(self, name: str) -> None:
        self.model.apply(Delete(Pod, "ns", name))
        del self.begun[name]
        self.deadlines.pop(name, None)

    def cycle(self, *, ended: bool) -> None:
        before = {promise.job: promise.at for promise in self.state.planned}
        found = decide(take_snapshot(self.model, EPOCH + self.now, self.state), CONSERVATIVE, Memo())
        assert found.outcome is not None
        self.state = found.outcome.state
        self.wake = found.outcome.next_wake - EPOCH if found.outcome.next_wake is not None else None
        for name, there in found.nominated.items():
            waits = copy.deepcopy(self.model.tasks[f"ns/{name}"].pod)
            waits.status.nominated_node_name = self.nominated[name] = there or ""
            self.model.apply(Upsert(waits))
        for name, on in found.binds.items():
            self.nominated.pop(name, None)
            self.begun[name] = self.now, on
            self.model.assume(f"ns/{name}", self.model.tasks[f"ns/{name}"].uid, on)
            self.to_come.append((self.now + self.work[name].confirmed * 1_000, "confirms", name))
        self.check({} if ended else before)  # where anything ended, each may have been improved beside all others

    def check(self, before: dict[str, int | None]) -> None:
        """All can be kept together, and who was promised a later instant than before starts as early as those before
        it let it; but for who waits for pods to terminate, and those are gone for him.
        """
        now = Fraction(self.now)
        stays, clear = [], [now] * len(self.offers)
        for name, (since, on) in self.begun.items():
            running, row = self.plain(name), self.rows[on]
            running.start = since
            end = self.gone_by(name, expected_end(running, now))
            stays.append(Stay(now, end, (row,), running.shape))
            if name in self.deadlines:
                clear[row] = max(clear[row], end)
        together = list(stays)
        for name, on in self.nominated.items():
            if on:
                stays.append(Stay(now, FOR_EVER, (self.rows[on],), self.plain(name).shape))
                together.append(Stay(clear[self.rows[on]], FOR_EVER, (self.rows[on],), self.plain(name).shape))
        for promise in self.state.planned:
            name = promise.places[0][0].removeprefix("ns/")
            job, known = self.plain(name), before.get(promise.job)
            rows = tuple(self.rows[on] for _, on in promise.places)
            if promise.at is None:  # of those that are nominated it is not known when they end
                assert any(self.nominated.values())
                stays.append(Stay(now, FOR_EVER, rows, job.shape))
                continue
            at = Fraction(promise.at - EPOCH)
            if known is not None and promise.at > known and at > now:
                least = earliest(self.offers, job, Fraction(self.now), stays)
                assert promise.at - EPOCH == least.start, (name, self.now, known - EPOCH, least)
            stay = Promise(at, rows).stay(job)
            stays.append(stay)
            together.append(stay if at > now else replace(stay, begin=max(clear[row] for row in rows)))
        for stay in together:
            left = [free(self.offers, row, stay.begin, together)[0] for row in stay.nodes]
            assert min(left) >= 0, (self.now, together)

    def gone_by(self, name: str, end: Fraction) -> Fraction:
        """When a pod is to be gone of which that end is expected."""
        deadline = self.deadlines.get(name)
        if deadline is None:
            return end
        return min(
            end, *[Fraction(at) for at in range(deadline, deadline + 31 * SECOND, 3 * SECOND) if at > self.now][:1]
        )

    def plain(self, name: str) -> Work:
        job = self.work[name]
        return Work(0, job.comes, 0, job.says * SECOND, 1, (job.cpu,))


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_promise_moves_no_further_than_those_before_it_make_it(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    Day(nodes, data.draw(st.lists(jobs(max(nodes)), min_size=3, max_size=9))).go()
