"""Mutants of what is kept for groups: the engine's ledger, nominations, clocks, gangs bound in part, ageing."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_ROOM: Final = "kbatch/engine/reservation"
_LEDGER: Final = f"{_ROOM}/ledger.py"
_CLOCKS: Final = f"{_ROOM}/clocks.py"
_PARTIAL: Final = f"{_ROOM}/partial.py"
_BELOW: Final = f"{_ROOM}/below_minimum.py"
_NOMINATIONS: Final = f"{_ROOM}/nominations.py"
_AGEING: Final = f"{_ROOM}/ageing.py"
_AGED: Final = f"{_ROOM}/aged_starts.py"
_CYCLE_STATE: Final = "kbatch/engine/state/cycle_state.py"
_PLANNED: Final = "kbatch/engine/reservation/planned.py"
_STARTS_KEPT: Final = "kbatch/engine/reservation/kept.py"
_TIMELINE: Final = "kbatch/engine/state/timeline.py"

MUTANTS: Final = (
    # --- nominations of pods above the minimum ------------------------------------------------------------------------
    Mutant(
        "surplus-waits-no-more", _NOMINATIONS,
        "            _wait_on(rankings, statement, task, (row, *(other for _, other in promised)))", "            pass",
        "when a group's minimum is bound its other pods lose the nodes from which others were evicted for them",
    ),
    Mutant(
        "surplus-waits-nowhere-else", _NOMINATIONS,
        "(row, *(other for _, other in promised))", "(row,)",
        "a pod whose place its group's minimum takes loses the room that this leaves",
    ),
    # --- the ledger ---------------------------------------------------------------------------------------------------
    Mutant(
        "lift-any-queue", _LEDGER,
        "if holder is None or job.queue != holder.queue:", "if holder is None:",
        "a job of another queue takes the room that gathers for an aged group",
    ),
    Mutant(
        "lift-reversed", _LEDGER,
        "self.session.plugins.job_key(job) > self.session.plugins.job_key(holder)",
        "self.session.plugins.job_key(job) < self.session.plugins.job_key(holder)",
        "those behind the aged group take its room, those ahead of it do not",
    ),
    Mutant(
        "lift-not-undone", _LEDGER,
        "            self._apply(-1)\n            self._holder = None", "            self._holder = None",
        "gathered room stays taken for the rest of the cycle",
    ),
    Mutant(
        "reason-not-undone", _LEDGER,
        "        finally:\n            self._apply(1)", "        finally:\n            pass",
        "after a job was told why it waits, the gathered room is free for all",
    ),
    Mutant(
        "loser-goes-last", f"{_ROOM}/promises.py",
        "every[every.index(first) :]\n", "every[every.index(first) :][:1]\n",
        "who loses its room to a higher priority starts after all that were promised theirs later",
    ),
    Mutant(
        "promise-without-own", _LEDGER,
        "promised.get(name, 0) - (own[1].get(name, 0) if own is not None else 0)", "promised.get(name, 0)",
        "a group is kept from the room that it was promised itself",
    ),
    Mutant(
        "promise-off-by-one", _LEDGER,
        "request[name] > max(0, free.get(name, 0) - kept)", "request[name] >= max(0, free.get(name, 0) - kept)",
        "a pod that fits exactly beside what was promised is kept out",
    ),
    Mutant(
        "promise-not-reduced", _LEDGER,
        "left[name] = max(0, amount - max(0, allocated.get(name, 0) - bound.get(name, 0)))", "left[name] = amount",
        "what the group has placed in this cycle is kept for it once more",
    ),
    Mutant(
        "promise-sum-not-undone", _LEDGER,
        "subtract_from(each, before)", "pass",
        "each step of a group with a promise adds its promise to the sum again",
    ),
    Mutant(
        "promise-ends-at-the-first-try", _LEDGER,
        "job.key not in self._tried and job.bound + len(job.job.waiting) >= job.minimum:",
        "job.key not in self._tried:",
        "a group whose pods are still being made loses its promise",
    ),
    Mutant(
        "promise-expires-by-the-earlier", _CLOCKS,
        "until = max(enqueued_since(session, job) or 0, lost or 0)",
        "until = min(enqueued_since(session, job) or 0, lost or 0)",
        "a group that lost a pod long after it came in queue has no time to replace it",
    ),
    # --- the time of groups in queue ----------------------------------------------------------------------------------
    Mutant(
        "clock-forgets-pauses", _CLOCKS,
        "if clock.paused or clock.stopped is not None:", "if clock.stopped is not None:",
        "once the victims are gone the time for which the clock stood still counts after all",
    ),
    Mutant(
        "time-runs-while-nominated", _CLOCKS,
        "        if job.nominated:\n            return", "        if False:\n            return",
        "a group is sent back while the pods that it waits for are ending",
    ),
    Mutant(
        "timeout-off-by-one", _CLOCKS,
        "if elapsed >= limit:", "if elapsed > limit:",
        "at the instant for which the cycle asked to be woken the group is not sent back, and it is woken no more",
    ),
    Mutant(
        "back-off-off-by-one", _CLOCKS,
        "if session.now < since + delay:", "if session.now <= since + delay:",
        "at the end of the back-off the group is kept out, and the cycle is woken no more",
    ),
    Mutant(
        "attempts-not-counted", _CLOCKS,
        "job.attempts += 1", "job.attempts += 0",
        "the back-off never grows",
    ),
    Mutant(
        "future-is-believed", _CLOCKS,
        "since > session.now + _FUTURE", "since > session.now + 1_000_000 * _FUTURE",
        "a group waits for years because a clock was wrong once",
    ),
    Mutant(
        "clock-keeps-the-last-pause-only", _CYCLE_STATE,
        "QueueClock(self.since, self.paused + now - self.stopped)", "QueueClock(self.since, now - self.stopped)",
        "of several pauses only the last one counts",
    ),
    Mutant(
        "clock-counts-pauses", _CYCLE_STATE,
        "- self.since - self.paused", "- self.since",
        "time counts for which a group's victims were ending",
    ),
    # --- gangs bound in part ------------------------------------------------------------------------------------------
    Mutant(
        "binding-is-loss", _PARTIAL,
        "job.whole or model.key in _binding(session):", "job.whole:",
        "a gang whose binds failed counts as one that lost members: nobody completes it or takes it back",
    ),
    Mutant(
        "loss-by-the-wrong-order", _CLOCKS,
        "lost > let_in", "lost < let_in",
        "a gang that lost a member is evicted as though it had never been whole",
    ),
    Mutant(
        "binding-for-ever", _PARTIAL,
        "model is not None and model.holding and not confirmed(model):", "model is not None and model.holding:",
        "a gang that was bound long ago and loses a member is evicted as one bound in part",
    ),
    Mutant(
        "assumed-is-confirmed", _PARTIAL,
        "job.confirmed()", "job.whole()",
        "a bind that fails later is taken for a member that was lost",
    ),
    Mutant(
        "a-replacement-may-break-its-gang", _PARTIAL,
        "job.job.gang and not (job.members_lost or job.job.whole())", "job.job.gang",
        "a gang of which one replacement's bind failed is evicted as one bound in part",
    ),
    Mutant(
        "taken-back-while-binding", _PARTIAL,
        "if any(task.assumed for task in job.job.tasks.values()):", "if False:",
        "what is on its way makes the gang partial again after it was taken back",
    ),
    # --- gangs below their minimum ------------------------------------------------------------------------------------
    Mutant(
        "given-up-too-late", _BELOW,
        "if until is not None and session.now >= until:", "if until is not None and session.now > until:",
        "with minimumLostSeconds 0 what is left stays",
    ),
    Mutant(
        "given-up-in-part", _BELOW,
        "task.assumed or task.key in session.model.refusals.evictions", "task.assumed",
        "a plan that was refused is made again at once",
    ),
    Mutant(
        "the-time-stops-at-a-bind", _BELOW,
        "if model.holding and not confirmed(model):", "if model.holding and not model.whole():",
        "a bind that fails later gives a broken gang all its time again",
    ),
    Mutant(
        "the-old-time-goes-on", _BELOW,
        "found[key] = session.now", "found[key] = since",
        "a gang that was whole in between is given up by what its condition said before",
    ),
    Mutant(
        "room-for-both", _BELOW,
        "job.possible = False", "pass",
        "pods that wait start beside those that are evicted in the same cycle",
    ),
    Mutant(
        "no-turn-for-replacements", _BELOW,
        "if unplaced(job):", "if False:",
        "others take the room of a lost member before what replaces it",
    ),
    Mutant(
        "no-room-for-replacements-to-come", _BELOW,
        "    if done:\n", "    if False:\n",
        "others take the room of a lost member before what replaces it is made",
    ),
    # --- gangs bound in part, in time ---------------------------------------------------------------------------------
    Mutant(
        "no-time-to-complete", _PARTIAL,
        "until = since + session.policy.bind_timeout", "until = since",
        "a gang of which one bind failed is evicted at once",
    ),
    Mutant(
        "gone-is-unbound", _PARTIAL,
        "return False  # a bind that fails", "pass  # a bind that fails",
        "a gang of which pods were deleted is evicted as one bound in part",
    ),
    # --- nominations --------------------------------------------------------------------------------------------------
    Mutant(
        "capability-awaited-too-long", _NOMINATIONS,
        "leaving[name] > hard", "leaving[name] >= hard",
        "a pod waits for others to end although both are within the hard cap",
    ),
    Mutant(
        "nominations-of-whole-gangs-end", _NOMINATIONS,
        "if job.nominated and job.missing():", "if job.nominated:",
        "each cycle takes back all nominations",
    ),
    Mutant(
        "settled-in-reverse", _NOMINATIONS,
        "sorted((job for job in waiting if job.key in keys), key=lambda job: keys[job.key])",
        "sorted((job for job in waiting if job.key in keys), key=lambda job: keys[job.key], reverse=True)",
        "the last in order takes the room that came free",
    ),
    Mutant(
        "nominated-counted-twice", _NOMINATIONS,
        "queue.add(task.cls.request, -1, ends=job.ends)", "queue.add(task.cls.request, 0, ends=job.ends)",
        "a queue seems to hold what it is nominated to twice",
    ),
    Mutant(
        "first-in-order-gives-way", _NOMINATIONS,
        "for job in reversed(jobs):", "for job in jobs:",
        "where a node lost room, who comes first loses its nomination",
    ),
    # --- ageing, and room that is expected ----------------------------------------------------------------------------
    Mutant(
        "ageing-off-by-one", _AGEING,
        "if session.now < due:", "if session.now <= due:",
        "at the instant for which the cycle asked to be woken no room gathers",
    ),
    Mutant(
        "ageing-for-the-limited", _AGEING,
        "return not limited(session, feasibility, job, following, by_share=by_share)", "return True",
        "room gathers for a group that its queue's share or cap keeps out",
    ),
    Mutant(
        "aged-in-depth", _PLANNED,
        "len(self.starts) - (self.aged in self.starts) < self.depth", "len(self.starts) < self.depth",
        "the start of a group beyond the ageing time takes the place of that of the first in order",
    ),
    Mutant(
        "aged-before-its-elders", _PLANNED,
        "if aged and self.session.plugins.job_key(job)", "if not aged and self.session.plugins.job_key(job)",
        "a group beyond the ageing time keeps its room from those ahead of it in its queue",
    ),
    Mutant(
        "aged-loses-its-turn", _AGED,
        "by_share=False", "by_share=True",
        "a group beyond the ageing time loses its turn when what backfills its room takes its queue past its share",
    ),
    Mutant(
        "gathered-room-counted-once-for-all", _AGEING,
        "left[name][row] -= taken * amount", "left[name][row] -= 0",
        "room stays gathered on a node that holds only one of the group's pods any more",
    ),
    Mutant(
        "older-groups-not-undone", _AGEING,
        "    for statement in reversed(fitting):\n        statement.rollback()", "    fitting.clear()",
        "an older group that was only tried stays placed, without a decision",
    ),
    Mutant(
        "earliest-end-is-expected", _TIMELINE,
        "found = max(found, task.release_at + self._grace)", "found = min(found, task.release_at + self._grace)",
        "a nomination ends before the last of its victims could be gone",
    ),
    Mutant(
        "stuck-off-by-one", _TIMELINE,
        "task.release_at + self._grace <= self._now", "task.release_at + self._grace < self._now",
        "at the instant for which the cycle asked to be woken the room is still expected",
    ),
    # --- planned starts -----------------------------------------------------------------------------------------------
    Mutant(
        "what-has-ended-counts-twice", _STARTS_KEPT,
        "if since < end.at <= moment:", "if end.at <= moment:",
        "room that is free already is taken for room that comes free",
    ),
    Mutant(
        "gone-in-time-off-by-one", _PLANNED,
        "return until is None or until > start.at", "return until is None or until >= start.at",
        "who ends at the planned instant is kept out",
    ),
    Mutant(
        "promise-before-priority", _PLANNED,
        "job.priority > holder.priority:\n            return False",
        "job.priority > holder.priority:\n            return True",
        "a job of higher priority waits for a promise to a lower one",
    ),
    Mutant(
        "in-time-and-waiting", _PLANNED,
        "self.hurried, self.behind = len(those) < len(minded), bool(minded)",
        "self.hurried, self.behind = False, bool(minded)",
        "a job that is in time only if it starts now is nominated",
    ),
    Mutant(
        "cap-not-kept", _PLANNED,
        "mine = [start for start in self._laid if start.job.queue == queue]", "mine: list[PlannedStart] = []",
        "others take the part of a hard cap that a planned start needs",
    ),
    Mutant(
        "budgets-side-by-side", _PLANNED,
        "ending = {dimension: amount - endless.get(dimension, 0) for dimension, amount in most.items()}",
        "ending = self._most([each for each in mine if each.job.ends], True)",
        "planned starts with a lifetime and without one add up, though at different instants: a promise is broken",
    ),
    Mutant(
        "budget-not-kept", _PLANNED,
        "queue.charged += charged", "queue.charged += 0",
        "others use up the excessBudget that a planned start is going to be charged",
    ),
    Mutant(
        "refund-forgotten", "kbatch/engine/reservation/ahead.py",
        "self._capped.charged -= self._refunds.moved(job, sign)", "self._refunds.moved(job, sign)",
        "no start is planned for when a charge has come back to the budget",
    ),
    Mutant(
        "kept-out-as-a-whole", _PLANNED,
        "[one.id for one in mine if any(heeds(cls, one) for cls in theirs) or any(heeds(one, cls) for cls in before)]",
        "[one.id for one in mine if any(heeds(cls, each) for cls in theirs for each in mine)]",
        "pods wait that matter to no planned start, and a promise is missed for those above its minimum",
    ),
    Mutant(
        "planned-where-it-will-be-kept-out", _PLANNED,
        "seen = standing if standing and self.heeds(job) else []", "seen = []",
        "a job is promised a place from which one that was planned before it will keep it",
    ),
    Mutant(
        "kept-out-of-it-and-told-so-for-ever", _PLANNED,
        "start.at <= self._since] if self.ahead else []", "start.at <= self._since or not self.ahead]",
        "a job that could start beside a planned start waits for it, since its own rules mind pods that are not there",
    ),
    Mutant(
        "apart-and-still-promised", "kbatch/engine/reservation/promises.py",
        "if planned.apart(start, beside):", "if False:",
        "a promise stands beside one that comes first and that its pods keep out, or are kept out by",
    ),
    Mutant(
        "apart-by-what-is-on-other-nodes", "kbatch/engine/plugins/predicates.py",
        "if self._occupancy.contend(cls, other):", "if self._occupancy.counts(other):",
        "a promise moves for a port or volume on another node",
    ),
    Mutant(
        "apart-elsewhere-and-still-promised", "kbatch/engine/reservation/promises.py",
        "and not (heeds or start.heeds):", "and not start.excludes:",
        "a job of higher priority waits for one that keeps apart from it on another node",
    ),
    Mutant(
        "started-in-a-promised-room", "kbatch/engine/reservation/promises.py",
        "else {row for _, row in by.placed.values()}", "else set()",
        "who starts in a promised room moves the promises of other queues",
    ),
    Mutant(
        "unknown-starts-as-they-came", "kbatch/engine/reservation/promises.py",
        "key=lambda start: -start.job.priority)", "key=lambda start: 0)",
        "of two that were promised room nobody knows when, the less important one starts first",
    ),
    Mutant(
        "own-turn-is-kept", "kbatch/engine/reservation/promises.py",
        "                if start.at is None and not start.job.missing():\n", "                if False:\n",
        "who starts in the turn of a less important job leaves it before those of other queues",
    ),
    Mutant(
        "starts-where-others-evict", "kbatch/engine/reservation/promises.py",
        'return planned.session.policy.has("preempt") and any(', "return False and any(",
        "a job starts in its turn and is evicted at once for one that matters more",
    ),
    Mutant(
        "no-start-for-who-overtakes", "kbatch/engine/reservation/ageing.py",
        "surplus=False", "surplus=True",
        "a pod without a PodGroup is promised no start where a less important group was promised room",
    ),
    Mutant(
        "never-goes-by-its-lifetime", "kbatch/engine/state/timeline.py",
        ' or job.disruption == "Never":', ":",
        "a start is promised when a group that is never disrupted has outlived its lifetime",
    ),
    Mutant(
        "rest-of-a-gang-for-half-a-minute", "kbatch/engine/reservation/ledger.py",
        "                if holder.bound:\n", "                if False:\n",
        "the room of a pod that a gang has lost goes to one that matters less",
    ),
    Mutant(
        "lone-pods-behind-what-their-queue-promised", "kbatch/engine/reservation/ledger.py",
        "kept -= overtaken.get(name, 0)", "pass",
        "a pod waits for a group of its queue that it would evict",
    ),
    Mutant(
        "promised-capability-to-less-important-groups", "kbatch/engine/reservation/ledger.py",
        "if above and job.queue in self._capped:", "if False:",
        "a group starts within its queue's capability and is evicted at once for one that was promised that much",
    ),
    Mutant(
        "promised-capability-to-lone-pods", "kbatch/engine/reservation/ledger.py",
        "if job.queue in self._capped:\n            left, promised", "if False:\n            left, promised",
        "a pod without a PodGroup takes capability that a group of its queue was promised",
    ),
    Mutant(
        "preempts-for-promised-capability", "kbatch/engine/preemption/within_queue.py",
        "capability(queue, names, keeps)", "capability(queue, names)",
        "a pod is evicted for one that takes capability that a group of the queue was promised",
    ),
    Mutant(
        "reclaims-for-promised-capability", "kbatch/engine/actions/reclaim.py",
        "cap_beside(queue, keeps)", "cap_beside(queue, ())",
        "pods of other queues are evicted for one that takes capability that a group of its queue was promised",
    ),
    Mutant(
        "capability-for-who-is-evicted", "kbatch/engine/reservation/ledger.py",
        "add(left, placed), promised, surplus=False)", "add(left, placed), promised, surplus=surplus)",
        "pods above a minimum wait for a less important group to start, and evict it at once",
    ),
    Mutant(
        "overtaken-as-before", "kbatch/engine/reservation/ledger.py",
        "if self._departures != self.session.departures:", "if False:",
        "who has lost its last pod keeps others out as before, or the cycle fails",
    ),
    Mutant(
        "released-again-and-again", "kbatch/engine/reservation/ledger.py",
        "if job.key in kept and job.key not in self._tried and", "if job.key in kept and",
        "two that wait are tried in turns for ever, as each time what one was promised counts as ended",
    ),
    Mutant(
        "evictions-of-the-queue-before", "kbatch/engine/session/hourly.py",
        "return {_key(self._session, name): instants for name, instants in self._instants().items()}",
        "return self._instants()",
        "a Queue that was made again may evict nobody for an hour, since one of its name did",
    ),
    Mutant(
        "promised-beyond-the-cap", _PLANNED,
        "return add(queue.allocated, most_at_once(mine, start.at, lambda each: self._freed(each, None)))", "return {}",
        "a promise stands although the hard cap of its queue keeps it from starting",
    ),
    Mutant(
        "early-in-promised-room", "kbatch/engine/reservation/promises.py",
        "if statement is not None and not due and _robs(ledger, job):", "if False:",
        "before its turn a pod takes room that was promised to a group in queue",
    ),
    Mutant(
        "late-rather-than-sooner", "kbatch/engine/actions/allocate.py",
        "found.at is not None and found.at < until:", "False:",
        "the first is nominated to room that comes free late, and the next one is promised the earlier start",
    ),
    Mutant(
        "backfilled-by-scores", "kbatch/engine/actions/common.py",
        "planned.rankings if planned is not None and planned.behind else context", "context",
        "who comes after a planned start takes other nodes than the lowest",
    ),
    Mutant(
        "neighbours-stay", "kbatch/engine/reservation/ahead.py",
        "self._session.plugins.removed_hooks if self._heeded", "self._session.plugins.removed_hooks if False",
        "a gang is not planned onto nodes that its own kind is going to leave",
    ),
    Mutant(
        "binds-of-the-cycle-forgotten", "kbatch/engine/reservation/ends.py",
        "if length is not None:\n                    self.come", "if False:\n                    self.come",
        "what this cycle has started never ends",
    ),
    Mutant(
        "ends-improve-nothing", "kbatch/engine/reservation/promises.py",
        "if ended or due:", "if due:",
        "a promise stands although something has ended before its time",
    ),
    Mutant(
        "promises-unconfirmed", "kbatch/engine/reservation/promises.py",
        "if end.at <= start.at:", "if True:",
        "a promise counts on pods that will not have ended",
    ),
    Mutant(
        "due-starts-give-way", "kbatch/engine/reservation/promises.py",
        "stands = start if not due or _clearing(session, start) else None", "stands = None if due else start",
        "a start that is due loses its place while pods leave its nodes",
    ),
    Mutant(
        "planned-though-it-starts", "kbatch/engine/actions/in_queue.py",
        "if left is None or any(", "if True or any(",
        "the first group that waits is not in queue when its start is to be planned, for one that starts just then",
    ),
    Mutant(
        "binds-begin-again", "kbatch/engine/reservation/ends.py",
        "since.get(key, now)", "now",
        "the end of a pod whose bind is under way comes later with each cycle",
    ),
)  # fmt: skip
