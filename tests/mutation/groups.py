"""Mutants of what a group asks for, of its phase, of what is capacity, and of what is kept for it."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_DEMAND: Final = "kbatch/model/demand.py"
_PHASE: Final = "kbatch/model/phase.py"
_NODES: Final = "kbatch/model/nodes.py"
_INDEX: Final = "kbatch/model/node_index.py"
_CLUSTER: Final = "kbatch/model/cluster.py"
_RECONCILE: Final = "operators/podgroup/reconcile.py"
_MAKERS: Final = "kbatch/model/makers.py"
_IN_QUEUE: Final = "kbatch/engine/actions/in_queue.py"
_IN_VAIN: Final = "kbatch/engine/admission/in_vain.py"
_ALLOCATE: Final = "kbatch/engine/actions/allocate.py"
_RECLAIM: Final = "kbatch/engine/actions/reclaim.py"
_LEDGER: Final = "kbatch/engine/reservation/ledger.py"
_ABANDONED: Final = "operators/podgroup/abandoned.py"

MUTANTS: Final = (
    # --- what it asks for ---------------------------------------------------------------------------------------------
    Mutant(
        "reserved-beyond-max-member", _DEMAND,
        "more = self._headroom() if role is None else _ANY_NUMBER", "more = _ANY_NUMBER",
        "pods count in what is reserved that maxMember keeps out",
    ),
    Mutant(
        "headroom-forgets-who-stands", _DEMAND,
        "role.max_member - self._there.get(role.name, 0) - self._lacking.get(role.name, 0)",
        "role.max_member - self._lacking.get(role.name, 0)",
        "a role that has its maxMember counts with more",
    ),
    Mutant(
        "made-beyond-max-member", _DEMAND,
        "some = min(count, self._left[index], more.get(name, count)) if", "some = min(count, self._left[index]) if",
        "pods to come count beyond maxMember",
    ),
    Mutant(
        "demand-takes-any-role", _DEMAND,
        "if role is None or name == role else 0", "if role is not None or name == role else 0",
        "the minimum of a role is made of others' pods to come",
    ),
    Mutant(
        "sent-back-still-asks", _DEMAND,
        "if job.outstanding and not job.sent_back:", "if job.outstanding:",
        "a group whose pods do not come raises the share of its queue for ever",
    ),
    Mutant(
        "suspended-group-asks", _DEMAND,
        "if job.group is not None and job.group.spec.suspend and not settled:",
        "if job.group is not None and job.group.spec.suspend and settled:",
        "a group that its user has suspended keeps a place",
    ),
    Mutant(
        "gated-pods-wait", _DEMAND,
        "elif not task.gated or _free(task):", "else:",
        "pods behind gates of others make up a minimum",
    ),
    # --- its phase ----------------------------------------------------------------------------------------------------
    Mutant(
        "complete-jobs-are-not-over", _PHASE,
        "and (facts.members.succeeded > 0 or facts.current in STARTED)", "and False",
        "a group whose Jobs are Complete with fewer successes stays in queue for ever",
    ),
    Mutant(
        "complete-before-it-began", _PHASE,
        "and (facts.members.succeeded > 0 or facts.current in STARTED)", "and True",
        "a group whose first Job has nothing to do is over before its other pods come",
    ),
    Mutant(
        "over-beside-running-pods", _PHASE,
        "lambda facts: facts.members.alive == 0 and not facts.ongoing and facts.reached(_succeeded),",
        "lambda facts: not facts.ongoing and facts.reached(_succeeded),",
        "a group is Completed while pods of it run",
    ),
    Mutant(
        "failed-although-it-runs", _PHASE,
        "lambda facts: facts.gave_up and not facts.reached(_attainable),", "lambda facts: facts.gave_up,",
        "a failed pod above the minimum fails the group",
    ),
    Mutant(
        "failed-jobs-are-done", _RECONCILE,
        "done = bool(makers) and ended and not (made or gave_up)", "done = bool(makers) and ended and not made",
        "a group whose Job has Failed, or of which a pod has that nobody makes anew, is Completed",
    ),
    Mutant(
        "others-are-done-at-once", _RECONCILE,
        "and len(known) + len(others) == len(makers)", "and len(known) + len(others) <= len(makers)",
        "a group is Completed while an unknown controller may make more pods",
    ),
    Mutant(
        "abandoned-while-it-runs", _ABANDONED,
        "if not pods or any(one.stage not in _ENDED for one in pods):", "if not pods:",
        "a group whose pods run is over after five minutes",
    ),
    # --- what is capacity ---------------------------------------------------------------------------------------------
    Mutant(
        "stuck-room-is-capacity", _NODES,
        "        self.stuck.add(task.key)\n        _accumulate(self.foreign, task.cls.needs, 1)",
        "        self.stuck.add(task.key)",
        "a queue deserves room of pods that never go",
    ),
    Mutant(
        "stuck-room-never-comes-back", _NODES,
        "if (not task.job and not task.terminating) or (self.stuck and task.key in self.stuck):",
        "if not task.job and not task.terminating:",
        "the room of a pod that was stuck is lost when it goes at last",
    ),
    Mutant(
        "more-time-is-not-seen", _INDEX,
        "if task.release_at is not None and task.release_at + STUCK_AFTER == at:", "if task.release_at is not None:",
        "a pod that got a longer grace is given up by the first one",
    ),
    Mutant(
        "capacity-comes-back-unseen", _CLUSTER,
        "        if old is not None and self._nodes.stuck(old):\n            self.capacity_generation += 1\n", "",
        "what was found to be too small for a group is not looked at again when a stuck pod goes",
    ),
    # --- what is kept and counted -------------------------------------------------------------------------------------
    Mutant(
        "replacements-do-not-count", _PHASE,
        "return members.alive + members.succeeded + members.coming", "return members.alive + members.succeeded",
        "the last replacement of a member fails its group",
    ),
    Mutant(
        "failed-groups-come-back", _RECONCILE,
        "if group.status.phase not in ADMITTED or group.spec.suspend:", "if group.spec.suspend:",
        "a group that has failed runs again as its pods go",
    ),
    Mutant(
        "copies-inherit-replacements", _RECONCILE,
        "return number(group, REPLACED_ANNOTATION, 0) if of == group.metadata.uid else 0",
        "return number(group, REPLACED_ANNOTATION, 0)",
        "a copied group has used up its replacements",
    ),
    Mutant(
        "ended-jobs-are-forgotten", _RECONCILE,
        "makers |= {maker.uid: maker for maker in index.ended_makers(key)}", "pass",
        "a group waits again whose Job is deleted as it ends",
    ),
    Mutant(
        "no-pods-keep-room", _MAKERS,
        "withheld=suspended_by_user(job) or not members(job),", "withheld=suspended_by_user(job),",
        "a running Job of no pods keeps its room",
    ),
    Mutant(
        "hopeless-groups-keep-room", _IN_QUEUE,
        "if self._context.feasibility.hopeless(job):", "if False:",
        "room is kept for who fits no cluster",
    ),
    Mutant(
        "hopeless-groups-keep-room-at-rest", _IN_QUEUE,
        "elif not attempt(session, job, partial(self._keeps_idle, job, aged=aged), False):", "else:",
        "room is kept for who fits no cluster, while nothing changes of it",
    ),
    Mutant(
        "room-in-pieces-is-kept", _IN_VAIN,
        "        if self._finds_room(job):\n            self._count(job)\n            return False\n        if",
        "        return False\n        if",
        "room that is too small for who waits in queue is kept from who could use it",
    ),
    Mutant(
        "one-hole-for-all", _IN_VAIN,
        "pods[kind] = pods.get(kind, 0) + count", "pods[kind] = 0",
        "one node with room for one pod is kept for all groups that wait for such a node",
    ),
    Mutant(
        "behind-its-like", _IN_VAIN,
        "return priority is not None and priority >= job.priority and", "return False and",
        "one more group after the other comes in queue for room that is on no node",
    ),
    Mutant(
        "behind-other-pods", _IN_VAIN,
        "_beside(cls), role]", "role]",
        "a group that preempt or reclaim would help waits behind one of its queue that they cannot help",
    ),
    Mutant(
        "gated-in-vain", _IN_VAIN,
        "len(next_tasks(job, unplaced(job))) < job.missing():", "False:",
        "groups wait in front of an empty cluster behind one whose pods are gated",
    ),
    Mutant(
        "behind-before-back", "kbatch/engine/actions/enqueue.py",
        "return not self._stays_out(entry, comer.fresh) and self.sums.in_vain.first(job)",
        "return self.sums.in_vain.first(job)",
        "what a group is told that was sent back depends on what is remembered of it",
    ),
    Mutant(
        "behind-the-weaker", _IN_VAIN,
        "return priority is not None and priority >= job.priority and", "return priority is not None and",
        "who matters more waits for a weaker group in queue that asks for the same in vain",
    ),
    Mutant(
        "in-vain-for-a-port", _IN_VAIN,
        "if ports and pods.get(", "if False and pods.get(",
        "groups that wait for a host port that is taken keep others out of room that they cannot use",
    ),
    Mutant(
        "in-vain-beside-one-another", _IN_VAIN,
        "if len(wanted) > 1:", "if False:",
        "a gang whose roles find room only one without the other keeps others out",
    ),
    Mutant(
        "in-vain-again", "kbatch/engine/actions/enqueue.py",
        "if comer.again and self.context.planned is None:", "if False:",
        "groups that were evicted and find no room for their new pods keep others out",
    ),
    Mutant(
        "beyond-a-lowered-capability", "kbatch/engine/actions/in_queue.py",
        "if not beyond_capability(session.queue(job.queue), wanted.least):", "if True:",
        "a group keeps room from others that its queue may never hold any more",
    ),
    Mutant(
        "in-vain-in-part", _IN_VAIN,
        "if self._none or job.bound or job.nominated", "if self._none or job.nominated",
        "a gang that has lost pods loses the room for others to groups that come in queue",
    ),
    Mutant(
        "in-queue-to-preempt-nobody", "kbatch/engine/admission/weaker.py",
        "if queue is None or giving.never:", "if queue is None:",
        "pods that preempt nobody are made for what preemption could free",
    ),
    Mutant(
        "in-queue-to-reclaim-nothing", "kbatch/engine/admission/sums.py",
        "_NOTHING if entry.giving.never else self.weaker.reclaimable(queue.name)",
        "self.weaker.reclaimable(queue.name)",
        "pods that preempt nobody are made for what other queues could give up",
    ),
    Mutant(
        "gathers-for-nobody", _IN_QUEUE,
        "and not (aged or self._gathers(job))", "and not self._gathers(job)",
        "others come in queue for room that gathers for a group",
    ),
    Mutant(
        "gathers-for-the-older", _IN_QUEUE,
        "and not (aged or self._gathers(job))", "and not aged",
        "others come in queue for room that gathers for a group, as soon as an older one may start",
    ),
    Mutant(
        "admitted-pods-are-others", _IN_VAIN,
        "known = cls.id if cls.couples or cls.volumes or cls.avoids else 0", "known = cls.id",
        "pods of all suspended Jobs are made where those of one wait in vain",
    ),
    Mutant(
        "kind-stands-behind", "kbatch/engine/carryover/backlog.py",
        "wishes = entry.job.wants_whole_nodes, entry.job.lifetime", "wishes = (entry.job.lifetime,)",
        "a group stays out of the queue for ever with what is remembered, and comes in without it",
    ),
    Mutant(
        "kind-of-any-lifetime", "kbatch/engine/carryover/backlog.py",
        "wishes = entry.job.wants_whole_nodes, entry.job.lifetime", "wishes = (entry.job.wants_whole_nodes,)",
        "a group with another lifetime stays out of the queue with what is remembered, and comes in without it",
    ),
    Mutant(
        "no-wake-for-who-stands-behind", "kbatch/engine/actions/enqueue.py",
        "        standings[standings == Code.PASSES] = Code.WAITING  # they were asked, and stand behind others\n", "",
        "who stands behind another does not come in queue by its age",
    ),
    Mutant(
        "broken-gang-is-overtaken", "kbatch/engine/admission/confined.py",
        "priority = None if job.bound else job.priority", "priority = job.priority",
        "on the nodes that both are confined to, the room of a gang that has lost a pod is given to the more important",
    ),
    Mutant(
        "promised-room-goes-beyond-the-share", _ALLOCATE,
        "return ledger.robs(job, _planned(job, tasks), modest=modest)",
        "return ledger.robs(job, _planned(job, tasks), modest=True)",
        "a queue above its share takes promised room",
    ),
    Mutant(
        "room-of-the-more-important-is-taken", _LEDGER,
        "others += _met([each for each in above if each not in others], request, free)", "others += ()",
        "who matters less is bound where a more important group was promised the room, and evicted",
    ),
    Mutant(
        "what-would-not-do-is-kept", _LEDGER,
        "others += _met([each for each in above if each not in others], request, free)", "others += above",
        "room stands idle for a more important group for which it would not do",
    ),
    Mutant(
        "promises-of-later-ones-count", _LEDGER,
        "if self._let_in(holder) < own", "if self._let_in(holder) > own",
        "who came in queue first leaves its room to who came later",
    ),
    Mutant(
        "idle-jobs-are-tried-again", _RECLAIM,
        "if not job.idle:\n                    line.stand(job)", "pass",
        "reclaim tries no second pod of a job",
    ),
)  # fmt: skip
