"""Mutants of who has to go: candidates, votes, budgets, the search for victims, and who may stay in the end."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_ROOM: Final = "kbatch/engine/preemption"
_ALIKE: Final = "kbatch/engine/actions/alike.py"
_BUDGETS: Final = f"{_ROOM}/budgets.py"
_CANDIDATES: Final = f"{_ROOM}/candidates.py"
_POOL: Final = f"{_ROOM}/candidate_pool.py"
_POLLING: Final = f"{_ROOM}/polling.py"
_REPRIEVE: Final = f"{_ROOM}/reprieve.py"
_REUSE: Final = f"{_ROOM}/reuse.py"
_SEARCH: Final = f"{_ROOM}/search.py"
_SPARING: Final = f"{_ROOM}/sparing.py"
_SHRINKING: Final = "kbatch/engine/state/shrinking.py"
_CONSENT: Final = "kbatch/engine/session/consent.py"
_PLUGINS: Final = "kbatch/engine/plugins"
_STATE: Final = "kbatch/engine/state"

MUTANTS: Final = (
    Mutant(
        "spared-although-charged", _SPARING,
        "if queue.record.excess_budget is not None and self._session.plugins.charged_now(queue.name):", "if False:",
        "a victim stays beside a group that was charged as if it had gone: the budget is passed",
    ),
    Mutant(
        "never-spared-beside-a-budget", _SPARING,
        "if queue.record.excess_budget is not None and self._session.plugins.charged_now(queue.name):",
        "if queue.record.excess_budget is not None:",
        "victims go for nobody in a queue with an excessBudget",
    ),
    # --- what serves another preemptor --------------------------------------------------------------------------------
    Mutant(
        "alike-whatever-the-lifetime", _REUSE,
        "preemptor.never, ends(job), tuple(", "preemptor.never, tuple(",
        "what a group with a lifetime could not have is not looked for, for one without",
    ),
    Mutant(
        "alike-whatever-the-share", _REUSE,
        "ends(job), tuple(sorted(preemptor.held.items()))", "ends(job)",
        "what a large job may not take is not looked for, for a small one",
    ),
    Mutant(
        "alike-whatever-the-priority", _REUSE,
        "return job.queue, job.priority, preemptor.never", "return job.queue, preemptor.never",
        "what a job of low priority may not take is not looked for, for one of high",
    ),
    # --- who may stay after all ---------------------------------------------------------------------------------------
    Mutant(
        "nobody-stays-after-all", _SPARING,
        "if (len(decided) > 1 or failed) and", "if (len(decided) > 99 or failed) and",
        "a victim goes whose room a larger one leaves over",
    ),
    Mutant(
        "stays-where-there-is-no-room", _SPARING,
        "future[name][row] < amount for row", "future[name][row] < 0 for row",
        "a victim stays whose room was given to others",
    ),
    Mutant(
        "stays-beyond-the-cap", _SPARING,
        "if self._limited(units):", "if self._limited(()):",
        "a queue holds more than its cap with the victim that stays",
    ),
    Mutant(
        "stays-pod-by-pod", _SPARING,
        "queues[job.queue].add(task.cls.request, sign, ends=job.ends)",
        "queues[job.queue].add(task.cls.request, 0, ends=job.ends)",
        "of a group that stays each pod alone is within the limits of its queue",
    ),
    Mutant(
        "surplus-stays-as-a-whole", _SPARING,
        "whole = job.job.gang and (job.bound < job.minimum or not job.whole)",
        'whole = job.job.gang and (job.bound < job.minimum or job.job.disruption == "Whole")',
        "a pod above a minimum goes in vain, since another one cannot stay",
    ),
    Mutant(
        "part-of-a-whole-stays", _SPARING,
        "for some in (those,) if whole else [[task] for task in those]:", "for some in [[task] for task in those]:",
        "of a group that went as a whole a part stays",
    ),
    Mutant(
        "stays-in-bad-company", _SPARING,
        "return self._within(units) and not self._heeded(units)", "return self._within(units)",
        "a victim stays beside pods that were placed as though it had gone",
    ),
    Mutant(
        "nobody-moves-to-what-others-leave", _SPARING,
        "yield from self._moving()", "yield from ()",
        "a victim goes for a group that is bound to idle room at the same instant",
    ),
    Mutant(
        "moves-without-its-victims", _SPARING,
        "if not self._can_stay(units):\n            statement.rollback()",
        "if not units:\n            statement.rollback()",
        "a victim that was to go for a group that moves stays where others wait",
    ),
    # --- disruption budgets -------------------------------------------------------------------------------------------
    Mutant(
        "budget-off-by-one", _BUDGETS,
        "count > self._left[key]", "count > self._left[key] + 1",
        "one pod more is evicted than the budget allows",
    ),
    Mutant(
        "budget-not-undone", _BUDGETS,
        "self._left[key] += 1", "self._left[key] += 0",
        "a victim that was only tried uses up its budget",
    ),
    Mutant(
        "budget-not-used", _BUDGETS,
        "self._left[key] -= 1", "self._left[key] -= 0",
        "each victim is held to the budget by itself",
    ),
    Mutant(
        "two-budgets-are-one", _BUDGETS,
        "if len(keys) > 1:", "if len(keys) > 2:",
        "a pod under two budgets is chosen, which the API server refuses to evict",
    ),
    Mutant(
        "budget-forgets-evictions-under-way", _BUDGETS,
        "status.disruptions_allowed - under_way", "status.disruptions_allowed",
        "evictions that the budget's controller has not seen yet are allowed again",
    ),
    # --- candidates ---------------------------------------------------------------------------------------------------
    Mutant(
        "oldest-goes-first", _SHRINKING,
        "-started, -created, backwards(name)", "started, created, backwards(name)",
        "the pod that has run longest is evicted",
    ),
    Mutant(
        "nearest-to-its-minimum-gives-first", _SHRINKING,
        "(-above[role], cost_of(job, lines[role][0]))", "(above[role], cost_of(job, lines[role][0]))",
        "a role is taken down to its minimum before one that is further above its own",
    ),
    Mutant(
        "one-group-gives-all", _SHRINKING,
        "dearest = cost if alone else max(dearest, cost)",
        "dearest = max(dearest, cost_of(job, task))",
        "the youngest of two elastic groups is taken down to its minimum before the other gives anything",
    ),
    Mutant(
        "one-role-gives-all", _SHRINKING,
        "            above[role] -= model.gang\n", "",
        "the role that is furthest above its minimum gives all that it has above it",
    ),
    Mutant(
        "a-group-ends-before-another-shrinks", _SHRINKING,
        "_ends_with_any(job):\n        return True,", "_ends_with_any(job):\n        return False,",
        "a pod that is all of its group goes although another group has pods above its minimum",
    ),
    Mutant(
        "never-is-disrupted", _POOL,
        'model.disruption == "Never" or model.holding == 0', "model.holding == 0",
        "a group that may never be disrupted is",
    ),
    Mutant(
        "failed-stay-candidates", _POOL,
        "index.refresh(at_once=left_out)", "index.refresh(at_once=False)",
        "the pods of a group that failed are asked for again, and nobody else is evicted in their stead",
    ),
    Mutant(
        "the-young-may-go", _POOL,
        "if consent.too_young(job):", "if False and consent.too_young(job):",
        "a group is evicted within its minRuntimeSeconds",
    ),
    Mutant(
        "whole-group-in-a-bind", _CANDIDATES,
        "or job.placed or any(task.holds and task.assumed for task in job.job.tasks.values())", "",
        "a group is evicted as a whole while one of its pods is being bound, which then stays alone",
    ),
    # --- consent ------------------------------------------------------------------------------------------------------
    Mutant(
        "any-guard-is-enough", _CONSENT,
        "for guard in self.guards if not guard.allow(unit)", "for guard in self.guards[:1] if not guard.allow(unit)",
        "a victim whose eviction was refused is chosen again, since its budget allows it",
    ),
    Mutant(
        "told-of-who-would-not-go", _CONSENT,
        "if allowed and (tier is not None or", "if True or (tier is not None or",
        "a group is told that pods are protected which would not go for it anyway",
    ),
    Mutant(
        "alike-not-told-of-protection", _ALIKE,
        "session.note_protected(other, protected)", "pass",
        "of groups that are alike only the first is told what protects pods",
    ),
    Mutant(
        "surplus-off-by-one", _CONSENT,
        "if unit.whole or job.bound - len(unit.tasks) < job.minimum:",
        "if unit.whole or job.bound - len(unit.tasks) <= job.minimum:",
        "the last pod above a minimum is kept although pods to come need its room",
    ),
    Mutant(
        "surplus-eats-the-minimum", _CONSENT,
        "if unit.whole or job.bound - len(unit.tasks) < job.minimum:", "if unit.whole:",
        "room is made for pods to come by a pod of a minimum",
    ),
    Mutant(
        "lifetime-follows-lifetime", _CONSENT,
        "return endless and other is not job", "return other is not job",
        "two groups with a lifetime push one another out for ever",
    ),
    Mutant(
        "deficit-of-nothing", _CONSENT,
        "if amount > above:", "if amount >= above:",
        "a donor that ends exactly at its share counts as one below it",
    ),
    Mutant(
        "too-young-off-by-one", _CONSENT,
        "if self._session.now < until:", "if self._session.now <= until:",
        "at the end of its minRuntimeSeconds a group may not be evicted, and the cycle is woken no more",
    ),
    Mutant(
        "expired-off-by-one", _CONSENT,
        "if self._session.now >= until:", "if self._session.now > until:",
        "at the end of its lifetime a group may not be evicted, and the cycle is woken no more",
    ),
    Mutant(
        "last-tier-counts", "kbatch/engine/session/voting.py",
        "if vote is Vote.YES and tier is None:", "if vote is Vote.YES:",
        "a victim to which the first tier consents goes as late as one of the last",
    ),
    # --- the search ---------------------------------------------------------------------------------------------------
    Mutant(
        "bearable-off-by-one", _POLLING,
        "<= gains.get(name, 0)", "< gains.get(name, 0)",
        "a donor may not give what the preemptor gains exactly",
    ),
    Mutant(
        "bearable-forgets-those-taken", _POLLING,
        "for victim in (*self.taken, *besides)", "for victim in besides",
        "donors end further below their shares than the preemptor gains",
    ),
    Mutant(
        "dearest-first", _SEARCH,
        "if best is None or (cost, row) < best:", "if best is None or (cost, row) > best:",
        "the dearest victims are taken",
    ),
    Mutant(
        "shares-cost-nothing", _SEARCH,
        "        sum(1 for victim in victims if victim.deficit),\n", "        0,\n",
        "a queue falls below its share although another node would have spared it",
    ),
    Mutant(
        "count-costs-nothing", _SEARCH,
        "        sum(len(victim.unit.tasks) for victim in victims),\n", "        0,\n",
        "many pods go where one would do",
    ),
    Mutant(
        "at-the-capability-is-over", f"{_ROOM}/sums.py",
        "if held[name] > amount}", "if held[name] >= amount}",
        "victims go for a queue that would end exactly at its cap",
    ),
    Mutant(
        "lacks-everything", f"{_ROOM}/steps.py",
        "allowed, len(run)) < len(run):", "allowed, len(run)) <= len(run):",
        "pods are reclaimed for the sake of a dimension in which nothing is short",
        survives="no cheap world is known: a donor above its share only in a dimension that is not short",
    ),
    Mutant(
        "coming-for-ever", f"{_ROOM}/prospective.py",
        "return job.in_queue and not job.attempts and not job.job.let_in",
        "return job.in_queue and not job.attempts",
        "surplus goes cycle after cycle for pods that never come",
        survives=(
            "what was cleared stays promised, so that nobody goes again unless its node is lost in between"
        ),
    ),
    Mutant(
        "refused-in-part", f"{_ROOM}/refusals.py",
        "return not any(task.key in self._refused for task in unit.tasks)",
        "return not all(task.key in self._refused for task in unit.tasks)",
        "a group of which the API server keeps one pod is evicted but for that one",
    ),
    Mutant(
        "share-is-passed", f"{_ROOM}/goal.py",
        "return self.within_share() and not self.goal.short({})", "return not self.goal.short({})",
        "a queue reclaims more than it deserves",
    ),
    # --- reprieve -----------------------------------------------------------------------------------------------------
    Mutant(
        "cheapest-are-spared", _REPRIEVE,
        "needed = sorted(units, key=order_of, reverse=True)", "needed = sorted(units, key=order_of)",
        "of two victims of which one is enough, the one that matters more goes",
        survives="of victims taken one by one, the cheapest first, seldom either of two could stay",
    ),
    Mutant(
        "slack-off-by-one", _REPRIEVE,
        "amount >= least for amount, least in zip(left", "amount > least for amount, least in zip(left",
        "a victim goes although the room without it is exactly enough",
    ),
    Mutant(
        "plan-is-not-restored", _REPRIEVE,
        "        statement.replay(steps[at : at + _AT_ONCE])\n", "",
        "the plan is empty once needless victims were sought",
    ),
    # --- plugins ------------------------------------------------------------------------------------------------------
    Mutant(
        "donor-at-its-share", f"{_STATE}/queues.py",
        "if above > 0 and lost.get(name, 0) > 0:", "if above >= 0 and lost.get(name, 0) > 0:",
        "a queue that holds just what it deserves is reclaimed from",
    ),
    Mutant(
        "donor-falls-too-far", f"{_STATE}/queues.py",
        "if below <= gained.get(name, 0):", "if True:",
        "a queue falls below its share by more than the preemptor gains",
    ),
    Mutant(
        "not-reclaimable-is-reclaimed", f"{_PLUGINS}/proportion.py",
        "        if not donor.record.reclaimable:\n            return Vote.VETO\n", "",
        "a queue that is not reclaimable loses pods",
    ),
    Mutant(
        "equal-shares-do-not-give", f"{_PLUGINS}/drf.py",
        "return Vote.YES if ours <= theirs else ABSTAIN", "return Vote.YES if ours < theirs else ABSTAIN",
        "two jobs that would end with equal shares are left unequal",
    ),
    Mutant(
        "lifetime-takes-from-endless", f"{_PLUGINS}/drf.py",
        "            or (_ends(preemptor.job) and not _ends(unit.job))\n", "",
        "a group with a lifetime takes what it will have to give back",
    ),
    Mutant(
        "equal-priority-gives", f"{_PLUGINS}/priority.py",
        "if theirs < ours:", "if theirs <= ours:",
        "jobs of one priority push one another out",
    ),
    Mutant(
        "equal-priority-inside-a-job", f"{_PLUGINS}/priority.py",
        "unit.priority < min(task.priority", "unit.priority <= min(task.priority",
        "pods of one job push one another out",
    ),
    Mutant(
        "binds-under-way-are-sure", f"{_PLUGINS}/gang.py",
        "job.bound - len(under_way) - len(unit.tasks) < job.minimum", "job.bound - len(unit.tasks) < job.minimum",
        "a gang ends below its minimum when a bind under way fails",
    ),
    Mutant(
        "role-off-by-one", f"{_PLUGINS}/gang.py",
        "left < role.min_member:\n                    return Vote.VETO",
        "left < role.min_member - 1:\n                    return Vote.VETO",
        "a role falls below its minimum",
    ),
    Mutant(
        "system-pods-may-go", f"{_PLUGINS}/conformance.py",
        "pod.metadata.namespace == _SYSTEM_NAMESPACE or ", "",
        "pods of kube-system are evicted",
    ),
    Mutant(
        "counts-stay", "kbatch/engine/placement/kept_counts.py",
        "        self._changed.note(sorted(others))\n", "",
        "how many pods of a class have room stays what it was when somebody asked first",
    ),
    Mutant(
        "rooms-alike", "kbatch/engine/placement/kept_counts.py",
        "        if room is not self.room:\n", "        if room is None:\n",
        "what changes on nodes between two cycles is not seen",
    ),
    Mutant(
        "joins-unseen", "kbatch/engine/carryover/holdings.py",
        "                self.changed.forget()\n", "",
        "what a queue holds that gives as well counts on rows that change later alone",
    ),
    Mutant(
        "least-is-nothing", "kbatch/engine/placement/set_room.py",
        "return limit.skew + least - limit.counts", "return limit.skew - limit.counts",
        "gangs that spread are thought to fit domains only up to their skew, and nobody goes for them",
    ),
    Mutant(
        "the-first-is-needed", "kbatch/engine/preemption/counting.py",
        "kept.append(among[high - 1])", "kept.append(among[0])",
        "of many candidates another is kept than the one that is needed",
    ),
    Mutant(
        "moves-unseen", "kbatch/engine/state/jobs.py",
        "        self.moves[0] += 1\n", "",
        "what a minimum lacks stays what it was before any of it was placed",
    ),
    Mutant(
        "amounts-stay", "kbatch/engine/placement/kept_counts.py",
        "each.move(before, now)", "each.move(now, now)",
        "how many nodes have so much free stays what it was when somebody asked first",
    ),
    Mutant(
        "idle-off-by-one", "kbatch/engine/placement/ranking.py",
        "amount > self._largest_idle(name)", "amount >= self._largest_idle(name)",
        "a pod is not placed on a node of which it would take all that is idle",
    ),
    Mutant(
        "more-is-left-over", "kbatch/engine/preemption/given.py",
        "taken = min(short, number)", "taken = number",
        "pods are thought to lack less than they do, where many nodes have something left over",
    ),
    Mutant(
        "one-quota-for-all", "kbatch/engine/actions/enqueue.py",
        "known = self._over_quota.get(asked)", "known = next(iter(self._over_quota.values()), None)",
        "a group is told of the quota of another namespace",
    ),
    Mutant(
        "reclaims-idle-room", "kbatch/engine/preemption/planning.py",
        "if units is None or (others and not units):", "if units is None:",
        "a pod is nominated to idle room that was promised to others, for which nobody needs to go",
    ),
)  # fmt: skip
