"""What was promised moves only as far as it must: pods come and end late, binds take their time, by little or much.

Of pods of one queue and one priority, one to a job. A promise that moved later is at the earliest instant that there is
beside what runs and the promises before it, as the plain search of `tests.reference.traces` finds it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
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
from tests.reference.traces import Promise, Stay, Work, earliest, expected_end, free
from tests.unit.engine.worlds import EPOCH, decide, node, pod, queue, stamp, world

pytestmark = pytest.mark.many

_MOST_CYCLES = 300


@dataclass
class Job:
    """A pod of so many CPUs that comes at an instant and says how long it runs (in seconds); `confirmed`: how long its
    bind takes, `late`: how much longer than said it runs (in thousandths of a second).
    """

    cpu: int
    comes: int
    says: int
    confirmed: int
    late: int

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
    )


class Day:
    """One run, instant by instant; times in microseconds since its beginning.

    Attributes:
        begun: of those that run since when, by what the scheduler or then the API server says.
    """

    def __init__(self, nodes: list[int], work: list[Job]) -> None:
        self.offers = [(cpu,) for cpu in nodes]
        self.rows = {f"n{number}": number for number in range(len(nodes))}
        self.work = {f"j{number:02}": job for number, job in enumerate(work)}
        self.model = world(queue("default"), *[node(f"n{number}", str(cpu)) for number, cpu in enumerate(nodes)])
        self.state = CycleState()
        self.begun: dict[str, tuple[int, str]] = {}
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
            self.cycle(ended=any(what == "ends" for _, what, _ in due))
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

    def ends(self, name: str) -> None:
        self.model.apply(Delete(Pod, "ns", name))
        del self.begun[name]

    def cycle(self, *, ended: bool) -> None:
        before = {promise.job: promise.at for promise in self.state.planned}
        found = decide(take_snapshot(self.model, EPOCH + self.now, self.state), CONSERVATIVE, Memo())
        assert found.outcome is not None
        self.state = found.outcome.state
        self.wake = found.outcome.next_wake - EPOCH if found.outcome.next_wake is not None else None
        for name, on in found.binds.items():
            self.begun[name] = self.now, on
            self.model.assume(f"ns/{name}", self.model.tasks[f"ns/{name}"].uid, on)
            self.to_come.append((self.now + self.work[name].confirmed * 1_000, "confirms", name))
        self.check({} if ended else before)  # where anything ended, each may have been improved beside all others

    def check(self, before: dict[str, int | None]) -> None:
        """All can be kept together, and who was promised a later instant than before starts as early as those before
        it let it.
        """
        stays = []
        for name, (since, on) in self.begun.items():
            running = self.plain(name)
            running.start = since
            stays.append(
                Stay(Fraction(self.now), expected_end(running, Fraction(self.now)), (self.rows[on],), running.shape)
            )
        for promise in self.state.planned:
            assert promise.at is not None
            name = promise.places[0][0].removeprefix("ns/")
            job, known = self.plain(name), before.get(promise.job)
            if known is not None and promise.at > known:
                least = earliest(self.offers, job, Fraction(self.now), stays)
                assert promise.at - EPOCH == least.start, (name, self.now, known - EPOCH, least)
            rows = tuple(self.rows[on] for _, on in promise.places)
            stays.append(Promise(Fraction(promise.at - EPOCH), rows).stay(job))
        for stay in stays:
            left = [free(self.offers, row, stay.begin, stays)[0] for row in stay.nodes]
            assert min(left) >= 0, (self.now, stays)

    def plain(self, name: str) -> Work:
        job = self.work[name]
        return Work(0, job.comes, 0, job.says * SECOND, 1, (job.cpu,))


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_promise_moves_no_further_than_those_before_it_make_it(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    Day(nodes, data.draw(st.lists(jobs(max(nodes)), min_size=3, max_size=9))).go()
