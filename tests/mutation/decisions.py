"""Mutants of how it is decided: actions, the session and its statement, placement, what is remembered."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_ACTIONS: Final = "kbatch/engine/actions"
_ADMISSION: Final = "kbatch/engine/admission"
_CARRYOVER: Final = "kbatch/engine/carryover"
_SESSION: Final = "kbatch/engine/session"
_PLACEMENT: Final = "kbatch/engine/placement"
_STATE: Final = "kbatch/engine/state"
_UNSCHEDULABLE: Final = "kbatch/engine/carryover/unschedulable.py"

MUTANTS: Final = (
    # --- groups that are alike, or rest -------------------------------------------------------------------------------
    Mutant(
        "rests-though-changed", f"{_SESSION}/session.py",
        "rest.generation != job.generation", "rest.generation < 0",
        "a group whose pods have changed is placed by what they asked for before",
    ),
    Mutant(
        "rests-beyond-its-time", "kbatch/engine/reservation/resting.py",
        "if rest.late is not None and session.now >= rest.late:", "if session.now < 0:",
        "a group that is in queue for too long is not sent back",
    ),
    Mutant(
        "rest-wakes-nobody", "kbatch/engine/reservation/resting.py",
        "session.wake.append(late)", "pass",
        "nobody wakes to send a group back that is in queue for too long",
    ),
    Mutant(
        "promised-nothing-at-rest", f"{_ACTIONS}/in_queue.py",
        "            self._sums.promise(job, rest.kept)\n", "",
        "what a group in queue was promised is promised to the next one, too",
    ),
    Mutant(
        "let-in-at-once-for-room-elsewhere", f"{_ADMISSION}/sums.py",
        "        return found if place is None else self.short_there(place, job, least, more)\n",
        "        return found\n",
        "groups that are new come in queue for room on nodes that their pods cannot use",
    ),
    Mutant(
        "promises-count-on-no-place", f"{_ADMISSION}/confined.py",
        "return self.room(name) - self.kept(name, queue, priority, own=own)", "return self.room(name)",
        "more groups come in queue than the nodes hold that their pods may use",
    ),
    Mutant(
        "weaker-promises-keep-a-place", f"{_ADMISSION}/confined.py",
        "not self._preempts or theirs is None or theirs >= priority)", "True)",
        "what was promised to a group that preempt could evict keeps a stronger one out",
    ),
    Mutant(
        "confined-without-a-share", f"{_ADMISSION}/rows.py",
        "if self._sums.reclaims and (confined or np", "if self._sums.reclaims and (np",
        "who waits for some of the nodes waits behind promises to other queues, though their share is not its own",
    ),
    Mutant(
        "equals-are-overtaken", f"{_ADMISSION}/sums.py",
        "if theirs < priority)", "if theirs <= priority)",
        "groups come in queue for room that was promised to one of their own priority before them",
    ),
    Mutant(
        "overtaken-whatever-it-holds", f"{_ADMISSION}/sums.py",
        "if self.preempts and not job.bound:", "if self.preempts:",
        "a gang that has lost a pod loses the room for it to whoever matters more",
    ),
    Mutant(
        "nobody-is-overtaken-in-rows", f"{_ADMISSION}/rows.py",
        "if any(overtaken):", "if not overtaken:",
        "of the groups that wait already none overtakes one in queue that matters less",
    ),
    Mutant(
        "alike-whatever-it-asks-for", f"{_ACTIONS}/alike.py",
        "if not job.possible or likeness(job) != likeness(other):", "if not job.possible:",
        "whoever stands behind one that found no room is told that it finds none either",
    ),
    Mutant(
        "alike-whatever-was-promised", f"{_ACTIONS}/alike.py",
        "if promises.of(job) != promises.of(other):", "if False:",
        "whoever was promised more than one beyond a plugin's limit is told that it is beyond it, too",
    ),
    Mutant(
        "late-like-the-one-before", "kbatch/engine/reservation/planned.py",
        "return all((until is None or until > at) == (before is None or before > at) for at in instants)",
        "return True",
        "who would be gone before a planned start is kept from its room like those that would not",
    ),
    Mutant(
        "told-what-another-lacks", "kbatch/engine/diagnosis/verdicts.py",
        "return job.queue, like, job.key in session.unfit,", "return job.queue, job.key in session.unfit,",
        "a group is told the numbers of another one of its queue",
    ),
    # --- enqueue ------------------------------------------------------------------------------------------------------
    Mutant(
        "row-outlives-change", f"{_CARRYOVER}/awake.py",
        "had = backlog.remove(key)", "had = False",
        "a group that has changed is judged by what it asked for before",
    ),
    Mutant(
        "gone-is-not-told", f"{_CARRYOVER}/awake.py",
        "elif had or key in known:", "elif had and key in known:",
        "a group that is gone counts as one that waits",
    ),
    Mutant(
        "fits-for-ever", f"{_CARRYOVER}/awake.py",
        "if backlog.capacity != snapshot.capacity_generation:", "if backlog.capacity < 0:",
        "a group that would fit since a node came is still told that the cluster is too small",
    ),
    Mutant(
        "gives-for-ever", f"{_CARRYOVER}/giving.py",
        "if self._generation == self.record.generation and (", "if self._generation >= 0 and (",
        "what a queue could give up is what it could once",
    ),
    Mutant(
        "only-the-first-is-told", f"{_CARRYOVER}/backlog.py",
        "changed = standings != self.standing[rows]", "changed = self.standing[rows] == Standing.UNKNOWN",
        "a group goes on saying why it waited when it came",
    ),
    Mutant(
        "room-promised-twice", f"{_ADMISSION}/sums.py",
        "add_to(self.promised, kept)", "add_to({}, kept)",
        "two groups are let in to the same room",
    ),
    Mutant(
        "queue-key-not-undone", f"{_ACTIONS}/enqueue.py",
        "queue.add(promised, -1)", "queue.add(promised, 0)",
        "each look at a queue's order adds what it was promised to what it holds",
    ),
    Mutant(
        "capability-forgets-promises", f"{_ADMISSION}/sums.py",
        "queue.allocated.get(name, 0) + promised.get(name, 0) + amount - hard",
        "queue.allocated.get(name, 0) + amount - hard",
        "groups are let in to more than the cap of their queue",
    ),
    Mutant(
        "many-come-by-age", f"{_ACTIONS}/in_queue.py",
        "        self.places.take(job.job)\n        return True", "        return True",
        "all aged groups come in queue at once, and none gets its room",
    ),
    Mutant(
        "who-comes-later-keeps-out", f"{_ACTIONS}/places.py",
        "limit = self._limit(job.queue)\n", "limit = _LAST if self._taken < self.depth else None\n",
        "who came in queue for room that is gone starts before who waits for longer",
    ),
    Mutant(
        "last-come-first-served", f"{_ACTIONS}/comers.py",
        "line.fresh.sort(key=self._order, reverse=True)", "line.fresh.sort(key=self._order)",
        "the youngest group of a queue is let in first",
    ),
    Mutant(
        "quota-promised-twice", f"{_ACTIONS}/in_queue.py",
        "self._sums.quotas.promise(self._sums.quotas.asked_of(job.job))", "self._sums.quotas.asked_of(job.job)",
        "two groups are let in to the same quota",
    ),
    Mutant(
        "share-forgets-promises", f"{_ADMISSION}/sums.py",
        "queue.deserved.get(name, 0) - queue.allocated.get(name, 0) - promised.get(name, 0)",
        "queue.deserved.get(name, 0) - queue.allocated.get(name, 0)",
        "more groups come in than their queue's share can be reclaimed for",
    ),
    Mutant(
        "back-off-is-passed-over", f"{_ACTIONS}/enqueue.py",
        "if standing is Standing.PASSES and self._stays_out(entry, comer.fresh):",
        "if standing is not Standing.PASSES and self._stays_out(entry, comer.fresh):",
        "a group that was sent back comes in again at once",
    ),
    Mutant(
        "needs-with-what-it-has", "kbatch/engine/admission/demand.py",
        "least, kept = subtract(least, here), subtract(kept, here)", "pass",
        "what a group has placed in this cycle is promised to it once more",
    ),
    # --- allocate, backfill -------------------------------------------------------------------------------------------
    Mutant(
        "before-who-is-put-off", f"{_ACTIONS}/allocate.py",
        "        if modest:\n            before =", "        if False:\n            before =",
        "a job is started that is evicted at once for one of its queue that was put off for its queue's share",
    ),
    Mutant(
        "kept-out-preempt-later", f"{_ACTIONS}/allocate.py",
        "tried = (*self._in_vain, *self._kept_out.values())", "tried = self._in_vain",
        "a job is started that is evicted at once for one that a promise keeps out",
    ),
    Mutant(
        "kept-out-until-the-end", f"{_ACTIONS}/allocate.py",
        "        if self._let_back(job):", "        if False:",
        "a job is started that is evicted at once for one that a promise kept out which has ended meanwhile",
    ),
    Mutant(
        "overused-first", f"{_ACTIONS}/allocate.py",
        "for modest in (True, False):", "for modest in (False, True):",
        "queues above their share take the room of those below",
    ),
    Mutant(
        "equals-are-taken-over", f"{_ACTIONS}/allocate.py",
        "other.queue == job.queue and other.priority < job.priority",
        "other.queue == job.queue and other.priority <= job.priority",
        "jobs of one priority take one another's nominations for ever",
    ),
    Mutant(
        "another-queue-is-taken-over", f"{_ACTIONS}/allocate.py",
        "other.queue == job.queue and other.priority < job.priority",
        "other.nominated and other.priority < job.priority",
        "what a queue has reclaimed is taken by a job of another queue",
    ),
    Mutant(
        "taken-over-beyond-the-share", f"{_ACTIONS}/allocate.py",
        "queue.allocated.get(name, 0) <= amount for name, amount in most.items()", "True for name in most",
        "room that was taken from other queues for one job takes its queue above its share by another",
    ),
    Mutant(
        "gathered-room-stays-lifted", f"{_ACTIONS}/allocate.py",
        "if lifted:\n                ledger.lay()", "if False:\n                ledger.lay()",
        "once a job ahead of the aged group was tried, its room is free for all",
    ),
    Mutant(
        "promises-bind-nobody", f"{_ACTIONS}/allocate.py",
        "if context.ledger.refuses(job, [task]) is not None:", "if False:",
        "pods above a minimum take what groups in queue were promised",
    ),
    Mutant(
        "promises-bind-no-shadow", f"{_ACTIONS}/allocate.py",
        "return ledger.broken(job, _planned(job, tasks))", "return None",
        "pods without a group take what groups in queue were promised",
    ),
    Mutant(
        "backfill-before-the-minimum", f"{_ACTIONS}/backfill.py",
        "if job.idle or not (job.in_queue and job.possible) or job.missing():",
        "if job.idle or not (job.in_queue and job.possible):",
        "pods that ask for nothing are bound of a gang that is not there",
    ),
    # --- reclaim, preempt ---------------------------------------------------------------------------------------------
    Mutant(
        "share-not-filled", f"{_ACTIONS}/reclaim.py",
        "queue.allocated.get(name, 0) + request[name] > deserved:",
        "queue.allocated.get(name, 0) + request[name] >= deserved:",
        "a queue cannot reclaim the last of its share",
    ),
    Mutant(
        "cap-is-no-share", f"{_ACTIONS}/reclaim.py",
        "share[name] = min(most, share.get(name, most))", "share[name] = max(most, share.get(name, most))",
        "a queue reclaims up to its cap and not up to its share",
    ),
    Mutant(
        "set-aside-not-undone", f"{_ACTIONS}/reclaim.py",
        "        for statement, _ in reversed(self._statements):\n            self._roll_back(statement)\n"
        "        session.room_set_aside()",
        "        session.room_set_aside()",
        "room that reclaim only kept for others stays taken, without a decision",
    ),
    Mutant(
        "set-aside-as-held", f"{_ACTIONS}/reclaim.py",
        "        aside = self._of.get(queue.name)\n", "        aside = None\n",
        "pods of a queue go that holds no more than its share, for idle room that it may yet be given",
    ),
    Mutant(
        "reclaim-from-nobody", f"{_ACTIONS}/reclaim.py",
        "if aside.decisions > decisions and not aside.any_gives():", "if aside.decisions > decisions and not job:",
        "who waits while nobody has more than its share is told of its queue's share and not of the room",
    ),
    Mutant(
        "set-aside-as-who-waits", f"{_ACTIONS}/reclaim.py",
        "    if planned is not None and planned.starts:\n        planned.lay(job)\n",
        "    if planned is not None and planned.backfilled:\n        planned.lay(job)\n",
        "pods are evicted for a group that could start at once beside planned starts",
    ),
    Mutant(
        "set-aside-and-laid-for-now", f"{_ACTIONS}/reclaim.py",
        "            return True\n        planned.lay(job, waits=True)\n",
        "            return True\n",
        "who waits for victims counts on room that planned starts need before it is there",
    ),
    Mutant(
        "set-aside-without-end", f"{_ACTIONS}/reclaim.py",
        "planned.ends.expect(statement.starting())", "planned.ends.expect(())",
        "pods are evicted for a group that fits beside one that starts now and is gone before a planned start",
    ),
    Mutant(
        "set-aside-by-scores", f"{_ACTIONS}/reclaim.py",
        "statement.job, wanted.single, rankings_of(context)", "statement.job, wanted.single, context.rankings",
        "pods are evicted for a group that finds room where those behind a planned start take the lowest nodes",
    ),
    Mutant(
        "set-aside-at-once-or-not", f"{_ACTIONS}/reclaim.py",
        "aside, moments_of(context))", "aside, (When.NOW,))",
        "pods are evicted for a group that may wait for what terminates beside a planned start",
    ),
    Mutant(
        "reclaim-plans-no-start", f"{_ACTIONS}/reclaim.py",
        "        if not moved:\n            yield from _plan(context, queue, job, aside)\n", "",
        "a group waits for room that is kept for another one, though others could be evicted for it",
    ),
    Mutant(
        "reclaim-leaves-its-plans", f"{_ACTIONS}/reclaim.py",
        "        planned.only(starts)  # allocate plans anew: it knows who has started\n", "        pass\n",
        "what reclaim has planned stands where those for whom it has set room aside start",
    ),
    Mutant(
        "reclaim-plans-for-whom-has-its-share", f"{_ACTIONS}/reclaim.py",
        "    if queue.record.open and context.session.plugins.overused(queue, job) is None:\n",
        "    if queue.record.open:\n",
        "reclaim keeps room for a group that allocate tries after those that reclaim may help",
    ),
    Mutant(
        "plans-count-on-no-end-of-what-is-set-aside", "kbatch/engine/reservation/ends.py",
        "[*self.come, *self._open.values(), *self.leaving]", "[*self.come, *self.leaving]",
        "reclaim plans as though those that start at once ran for ever",
    ),
    Mutant(
        "singles-before-the-minimum-is-decided", f"{_ACTIONS}/reclaim.py",
        "        return False  # its minimum is not decided yet: nobody is evicted for what stands on it\n",
        "        pass\n",
        "pods are evicted for the surplus of a group whose minimum may not come to be",
    ),
    Mutant(
        "cleared-room-is-not-kept", f"{_ACTIONS}/preempt.py",
        "    for task, row in rows:\n        session.room.pipeline(task.cls, row)\n", "",
        "room that was cleared for pods to come is cleared again, or taken by others in the same cycle",
    ),
    # --- session ------------------------------------------------------------------------------------------------------
    Mutant(
        "bound-not-undone", f"{_SESSION}/statement.py",
        "job.bound -= sign", "job.bound -= max(0, sign)",
        "a group whose pods were only thought away seems to have fewer of them",
    ),
    Mutant(
        "queue-sum-not-undone", f"{_SESSION}/statement.py",
        "queue.add(task.cls.request, change, ends=job.ends)", "queue.add(task.cls.request, abs(change))",
        "what was only tried, or evicted, counts in the queue for the rest of the cycle",
    ),
    Mutant(
        "hooks-not-undone", f"{_SESSION}/statement.py",
        "undos = tell(hooks, task, row)\n            except Exception as error:\n                self._apply(",
        "tell(hooks, task, row)\n            except Exception as error:\n                self._apply(",
        "plugins and budgets remember pods that were only tried",
    ),
    Mutant(
        "bind-not-undone-to-wait", f"{_SESSION}/statement.py",
        "            self._apply(Operation.ALLOCATE, task, row, job, -1)\n", "",
        "a pod of a gang that waits is both bound and nominated in the sums",
    ),
    Mutant(
        "delayed-and-not-told", f"{_SESSION}/statement.py",
        "self.session.plugins.delayers(task.cls) if step.undos else []", "[]",
        "pods of a gang that waits are company for whom is bound at once",
    ),
    Mutant(
        "headroom-is-not-asked", f"{_SESSION}/statement.py",
        "count = len(rows) if most is None else min(most, len(rows))", "count = len(rows)",
        "more pods are placed than the cap or a role's maximum leaves",
    ),
    Mutant(
        "evictions-make-no-room", f"{_SESSION}/statement.py",
        "                session.room_moves += 1\n                session.leaving[key] = undos",
        "                session.leaving[key] = undos",
        "what did not fit before an eviction is not tried after it",
        survives=(
            "room of victims is nominated to whom they went for; no world is known in which what is left "
            "over is asked for in the same cycle"
        ),
    ),
    Mutant(
        "told-again-and-again", f"{_SESSION}/statement.py",
        "if session.told.get(key, task.nominated) == names[row]:", "if False:",
        "a nomination that stands is written in each cycle",
    ),
    Mutant(
        "capability-off-by-one", f"{_SESSION}/limits.py",
        "(hard - queue.allocated.get(name, 0)) // amount)", "(hard - queue.allocated.get(name, 0)) // amount + 1)",
        "one pod is placed above the cap",
    ),
    Mutant(
        "first-dimension-decides", f"{_SESSION}/limits.py",
        "least = more if least is None else min(least, more)", "least = more if least is None else least",
        "a cap in a second dimension is passed",
    ),
    Mutant(
        "at-its-share-is-below", f"{_SESSION}/session.py",
        "state.deserved.get(name, 0) > state.allocated.get(name, 0) - waits.get(name, 0)",
        "state.deserved.get(name, 0) >= state.allocated.get(name, 0) - waits.get(name, 0)",
        "a queue that has its share counts as one that comes first",
    ),
    Mutant(
        "its-own-queue-comes-first", f"{_SESSION}/session.py",
        "return any(below.get(name, set()) - {job.queue} for name in job.asks)",
        "return any(below.get(name, set()) for name in job.asks)",
        "a job is told to wait for others where only its own queue is below its share",
    ),
    Mutant(
        "wrong-group-left-out", f"{_SESSION}/guarding.py",
        "culprit = error.job if isinstance(error, CulpritError) else job", "culprit = job",
        "the group worked on is left out for the failure of another",
    ),
    Mutant(
        "caches-survive-an-error", f"{_SESSION}/guarding.py",
        "    for forget in session.caches:\n        forget()\n", "",
        "rankings that an error left half made decide for others",
        survives=(
            "rankings follow the log of changed rows, rollbacks included: forgetting is for errors in "
            "between that no test knows how to make"
        ),
    ),
    # --- placement ----------------------------------------------------------------------------------------------------
    Mutant(
        "last-name-first", f"{_PLACEMENT}/ranking.py",
        "score += count - 1 - index", "score += index",
        "of equal nodes the last by name is taken",
    ),
    Mutant(
        "promised-room-is-bound", f"{_PLACEMENT}/ranking.py",
        "ok &= (np.minimum(free, room.idle[name][at]) if now else free) >= need",
        "ok &= (room.idle[name][at] if now else free) >= need",
        "a pod is bound where others are nominated",
    ),
    Mutant(
        "ladder-into-promised-room", f"{_PLACEMENT}/capacity.py",
        "free = np.minimum(free, room.idle[name][index])", "free = room.idle[name][index]",
        "of many like pods the later ones are bound where others are nominated",
    ),
    Mutant(
        "rungs-begin-too-low", f"{_PLACEMENT}/ranking.py",
        "extra = np.tile(np.arange(1, depth + 1, dtype=np.int64), len(top))",
        "extra = np.tile(np.arange(depth, dtype=np.int64), len(top))",
        "many like pods are placed otherwise than one by one",
    ),
    Mutant(
        "changed-rows-forgotten", f"{_PLACEMENT}/ranking.py",
        "                self._near[index] = self._evaluate(index)\n", "                pass\n",
        "a node on which something was placed counts as it was before",
    ),
    Mutant(
        "gang-binds-in-part", f"{_PLACEMENT}/gang.py",
        "        statement.pipeline_all()\n    return not job.missing()", "        pass\n    return not job.missing()",
        "a gang binds some pods while the others wait for room",
    ),
    Mutant(
        "easiest-first", f"{_PLACEMENT}/kinds.py",
        "return sorted(kinds, key=hardness)", "return sorted(kinds, key=hardness, reverse=True)",
        "the pods that fit everywhere take the nodes of those that fit on few",
    ),
    Mutant(
        "search-counts-what-it-undid", f"{_PLACEMENT}/arrangement.py",
        "self._used[at] -= 1", "self._used[at] -= 0",
        "the search for an arrangement runs out of pods that it has taken back",
    ),
    Mutant(
        "search-loses-the-first-try", f"{_PLACEMENT}/arrangement.py",
        "            statement.rollback(mark)\n    statement.replay(steps)\n", "            statement.rollback(mark)\n",
        "where no other arrangement is found, what was placed is forgotten, and the reason says that nothing fits",
    ),
    Mutant(
        "exactly-enough-is-hopeless", f"{_PLACEMENT}/feasibility.py",
        "if self._at_most(counts) < wanted:", "if self._at_most(counts) <= wanted:",
        "a gang that fills the cluster is never tried",
    ),
    Mutant(
        "sum-exactly-enough-is-hopeless", f"{_PLACEMENT}/feasibility.py",
        "return any(amount > self._sum(name)", "return any(amount >= self._sum(name)",
        "a gang that takes all of a dimension is never tried",
    ),
    Mutant(
        "trial-is-not-undone", f"{_PLACEMENT}/feasibility.py",
        "        finally:\n            statement.rollback()\n", "        finally:\n            pass\n",
        "a second group seems not to fit the emptied cluster",
    ),
    # --- state --------------------------------------------------------------------------------------------------------
    Mutant(
        "roles-on-top-of-the-minimum", f"{_STATE}/minimum.py",
        "rest = job.minimum - job.pipelined - sum(count for _, count in wanted)", "rest = job.minimum - job.pipelined",
        "a gang waits for its roles' minimums and its own besides",
    ),
    Mutant(
        "growth-in-pods", f"{_STATE}/growth.py",
        "(above << _FINE) // max(1, growth)", "above << _FINE",
        "groups and roles grow by the same number of pods, whatever they may grow by",
    ),
    Mutant(
        "growth-of-what-exists", f"{_STATE}/growth.py",
        "exist if role.max_member is None else role.max_member", "exist",
        "a group of which few pods are made at one time seems to have grown as far as it may",
    ),
    Mutant(
        "role-maximum-off-by-one", f"{_STATE}/jobs.py",
        "return max(0, known.max_member - self.by_role.get(role, 0))",
        "return max(0, known.max_member - self.by_role.get(role, 0) + 1)",
        "a role gets one pod more than its maxMember",
    ),
    Mutant(
        "nominated-is-whole", f"{_STATE}/jobs.py",
        "self.by_role.get(role.name, 0) - waiting.get(role.name, 0) >= role.min_member",
        "self.by_role.get(role.name, 0) >= role.min_member",
        "a group counts as started while a role's pods still wait",
    ),
    Mutant(
        "release-not-undone", f"{_STATE}/node_resources.py",
        "self.releasing[name][row] += sign * amount", "self.releasing[name][row] += amount",
        "room of victims that were only tried seems to come free",
    ),
    Mutant(
        "stuck-room-stays-in-the-sum", f"{_STATE}/node_resources.py",
        "                self._move(name, row, -amount)\n", "",
        "pods are nominated to room that a stuck pod never gives back",
    ),
    # --- what is remembered, and what is said -------------------------------------------------------------------------
    Mutant(
        "in-vain-for-ever", _UNSCHEDULABLE,
        "if self._shrinking.get(mark) == made:", "if mark in self._shrinking:",
        "what did not fit is not tried after room was made",
    ),
    Mutant(
        "no-victims-for-ever", _UNSCHEDULABLE,
        "return self._vain.get(key) == self._session.commits", "return key in self._vain",
        "victims are not sought again after a decision that could help",
        survives=(
            "votes only turn against further victims while decisions fall: no world is known in which one "
            "helps within the cycle"
        ),
    ),
    Mutant(
        "memo-of-another-cluster", _UNSCHEDULABLE,
        "self._before.exact.get(mark) == session.snapshot.standing_generation", "mark in self._before.exact",
        "a gang with anti-affinity is not tried after pods elsewhere have gone",
    ),
    Mutant(
        "memo-after-room-moved", _UNSCHEDULABLE,
        "for mark, moves in self._shrinking.items() if not moves", "for mark, moves in self._shrinking.items()",
        "what failed after a victim was chosen counts as failed with the room as the next cycle finds it",
        survives=(
            "room that moved is written, and what is written changes the generation that the memo is held to"
        ),
    ),
    Mutant(
        "reason-leaves-a-trace", "kbatch/engine/diagnosis/shortages.py",
        "        finally:\n            for cls, row in rows:\n                session.room.pipeline(cls, row)",
        "        finally:\n            pass",
        "after one group was told that room is reserved, the next is told that it is free",
    ),
    Mutant(
        "idle-cycle-of-another-time", "kbatch/engine/cycle.py",
        "(wake is None or snapshot.now < wake)", "(wake is None or snapshot.now <= wake)",
        "at the instant for which the cycle asked to be woken nothing is decided",
    ),
)  # fmt: skip
