"""What was tried in vain, in this cycle and in earlier ones: it is not tried again until something could help it.

Where all pods of a group are alike and no other pod matters to them, each node takes as many as it has room for, in
whatever order they are placed: while room only shrinks, what did not fit does not fit. Nothing of the kind holds for
pods of several classes, or pods that look at other pods: there one choice spoils another, and with less room other
choices are made. Such an attempt fails again for certain only if the nodes are exactly as they were.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kbatch.api.reasons import Protection
from kbatch.engine.carryover.memo import Memo
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task, TaskClass


class UnschedulableCache:
    """One session's attempts that failed. A mark is `state.minimum.signature`: equal marks ask for the same."""

    def __init__(self, session: Session, rankings: NodeRankings, before: Memo) -> None:
        self._session = session
        self._rankings = rankings
        self._vain: dict[object, int] = {}
        self._protected: dict[object, tuple[Protection, ...]] = {}
        self._before = before
        self._shrinking: dict[object, int] = {}
        self._exact: dict[object, int] = {}
        self._as_found = -1

    def begin(self) -> None:
        """From now on decisions fall; until now the session has only restored what the last one left."""
        self._as_found = self._session.commits

    def restored(self, since: int) -> None:
        """All that was set aside when `session.commits` was `since`, or later, was given back; nothing was decided."""
        if self._as_found == since:
            now = self._as_found = self._session.commits
            self._exact.update((mark, now) for mark, commits in list(self._exact.items()) if commits == since)

    @property
    def as_found(self) -> bool:
        """Whether the nodes are now as the snapshot has them."""
        return self._as_found == self._session.commits and not self._session.set_aside

    @property
    def empty(self) -> bool:
        """Whether no attempt is known to have failed."""
        return not (self._shrinking or self._exact or self._before.shrinking or self._before.exact)

    def known(self, job: JobState, mark: object, tasks: Sequence[Task]) -> bool:
        """Whether the attempt to place a minimum from these tasks is sure to fail again."""
        session = self._session
        classes = classes_of(tasks)
        if self._independent(job, classes):
            mark = self._compared(job, mark)
            made = self._room_made
            if self._shrinking.get(mark) == made:
                return True
            if made == 0 and self._before.shrinking.get((mark, self._beside)) == session.snapshot.room_generation:
                self._shrinking[mark] = 0
                return True
            return False
        if session.set_aside or job.together is not None:
            return False
        mark = mark, self.beyond(job, classes)
        if self._exact.get(mark) == session.commits:
            return True
        if self.as_found and self._before.exact.get(mark) == session.snapshot.standing_generation:
            self._exact[mark] = session.commits
            return True
        return False

    def note(self, job: JobState, mark: object, tasks: Sequence[Task], *, beside_kept: bool = False) -> None:
        """The attempt has just failed, with nothing kept aside for others; with `beside_kept` some is, and placing one
        pod after the other has failed without it too.
        """
        session = self._session
        classes = classes_of(tasks)
        if self._independent(job, classes):
            if not beside_kept or (job.together is None and self._rankings.one_by_one(classes[0])):
                self._shrinking[self._compared(job, mark)] = self._room_made
        elif job.together is None and not beside_kept:
            self._exact[mark, self.beyond(job, classes)] = session.commits

    def beyond(self, job: JobState, classes: Sequence[TaskClass]) -> Hashable:
        """What matters to the job's pods of these classes besides what stands on the nodes."""
        depends = [plugin.depends(cls) for cls in classes for plugin in self._rankings.far(cls)]
        return self._beside, self._rankings.preference(job), tuple(depends)

    def hopeless(self, key: object) -> bool:
        """Whether victims for the like of this were sought in vain since the last decision."""
        return self._vain.get(key) == self._session.commits

    def note_hopeless(self, key: object, protected: tuple[Protection, ...] = ()) -> None:
        """No victims help it, as things are; `protected`: what keeps those that could."""
        self._vain[key] = self._session.commits
        if protected:
            self._protected[key] = protected
        else:
            self._protected.pop(key, None)

    def protected(self, key: object) -> tuple[Protection, ...]:
        """What keeps the victims from being evicted that were sought for the like of this in vain."""
        return self._protected.get(key, ())

    def keep(self, memo: Memo) -> None:
        """Put into the next cycle's memo what may hold then."""
        snapshot = self._session.snapshot
        room, standing = snapshot.room_generation, snapshot.standing_generation
        beside = self._beside
        memo.shrinking = {(mark, beside): room for mark, moves in self._shrinking.items() if not moves}
        memo.exact = {mark: standing for mark, commits in self._exact.items() if commits == self._as_found}

    @property
    def _room_made(self) -> int:
        """How often this session made room. What was kept for somebody and is given back counts for nothing: whatever
        is noted was tried in vain without that.
        """
        return self._session.room_moves - self._session.given_back

    @property
    def _beside(self) -> Hashable:
        """What matters to any pods besides what stands on the nodes."""
        return self._session.stuck, self._session.whole_nodes.mark, tuple(sorted(self._session.kept_rooms.items()))

    def _compared(self, job: JobState, mark: object) -> object:
        """With what the emptied nodes offer, where that decides how far apart the job's pods may stand."""
        if job.together is None or not any(plugin.compares(job) for plugin in self._session.plugins.gathering):
            return mark
        return mark, self._session.snapshot.capacity_generation

    def _independent(self, job: JobState, classes: Sequence[TaskClass]) -> bool:
        """Whether with less room the job's minimum never fits where it did not."""
        if len(classes) != 1 or self._rankings.coupled(classes[0]):
            return False
        if job.together is None:
            return True
        return not job.job.roles and all(plugin.shrinks for plugin in self._session.plugins.gathering)


def classes_of(tasks: Sequence[Task]) -> list[TaskClass]:
    """The classes of the tasks, each once."""
    return list({task.cls.id: task.cls for task in tasks}.values())
