"""Mutants of flow: usage that fades, the order by it, and the limits that go with it."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_FLOW: Final = "kbatch/engine/plugins/flow"
_PLUGIN: Final = f"{_FLOW}/plugin.py"
_USAGE: Final = "kbatch/model/usage.py"

MUTANTS: Final = (
    Mutant(
        "anchor-keeps-the-peak",
        _USAGE,
        "            return Anchor(self.value, self.unlimited_value, usage, unlimited_usage, self.time)\n",
        "            value = max(self.value, self.usage)\n"
        "            return Anchor(value, self.unlimited_value, usage, unlimited_usage, self.time)\n",
        "the order of changes at one instant matters",
    ),
    Mutant(
        "anchor-moves-always",
        _USAGE,
        "        if (usage, unlimited_usage) == (self.usage, self.unlimited_usage):\n            return self\n",
        "",
        "looking at a flow changes it, and quiet clusters are written to",
    ),
    Mutant(
        "whole-half-lives-only",
        _USAGE,
        "    part = (rest << _FRACTION) // half_life\n",
        "    part = 0\n",
        "the past fades in steps of a half-life",
    ),
    Mutant(
        "flow-without-the-job",
        _PLUGIN,
        "        return (ratio(self._flow(queue, more), queue.weight),)\n",
        "        return (ratio(self._flow(queue), queue.weight),)\n",
        "a large job of a queue that has used little goes before a small one",
    ),
    Mutant(
        "flow-without-weights",
        _PLUGIN,
        "        return (ratio(self._flow(queue, more), queue.weight),)\n",
        "        return (ratio(self._flow(queue, more), 1),)\n",
        "all queues get the same",
    ),
    Mutant(
        "priority-does-not-count",
        _PLUGIN,
        "return -job.priority, job.job.created",
        "return (job.job.created,)",
        "of a queue's jobs the oldest goes first, whatever its priority",
    ),
    Mutant(
        "who-has-more-reclaims",
        _PLUGIN,
        "        return Vote.YES if self._gives(donor, receiver, after) else Vote.VETO\n",
        "        return Vote.YES\n",
        "pods are evicted for a queue that has used more than theirs",
    ),
    Mutant(
        "who-has-more-may-be-given",
        _PLUGIN,
        "        return self._gives(donor, receiver, self._measure.of(receiver.allocated))\n",
        "        return True\n",
        "groups come in queue for room that reclaim does not fetch for them",
    ),
    Mutant(
        "least-flow-gives-first",
        _PLUGIN,
        "        return (-ratio(flow, queue.weight),)\n",
        "        return (ratio(flow, queue.weight),)\n",
        "the queue that has used the least gives first",
    ),
    Mutant(
        "factor-exclusive",
        _PLUGIN,
        "        if told is None and max(past, after) <= most:\n",
        "        if told is None and max(past, after) < most:\n",
        "a group that would just reach the limit waits",
    ),
    Mutant(
        "past-does-not-cap",
        _PLUGIN,
        "        if told is None and max(past, after) <= most:\n",
        "        if told is None and after <= most:\n",
        "groups come in queue though the flow of their like is above the limit",
    ),
    Mutant(
        "faded-cap-is-not-an-instant",
        _PLUGIN,
        "        if after <= most < past:\n            self._fading[queue.name] = most\n",
        "",
        "a group sleeps on when the past has faded",
    ),
    Mutant(
        "budget-exclusive",
        _PLUGIN,
        "charge > self._budget_left(queue, job)",
        "charge >= self._budget_left(queue, job)",
        "a group that would just use the budget up waits",
    ),
    Mutant(
        "charged-within-the-share",
        _PLUGIN,
        "self._measure.of(self._all(queue)) <= self._part(queue) or self._within_promise(job)",
        "self._within_promise(job)",
        "who stays within the fair share is charged",
    ),
    Mutant(
        "closed-queues-have-a-share",
        _PLUGIN,
        "        if record.queue is None or not record.open:\n",
        "        if record.queue is None:\n",
        "queues in which nothing starts make the others' fair share smaller",
    ),
    Mutant(
        "idle-default-has-a-share",
        _PLUGIN,
        "        if record.name != self.view.model.default_queue:\n            return True\n        return bool(",
        "        return bool(",
        "queues without work have no fair share",
    ),
    Mutant(
        "status-before-state",
        _PLUGIN,
        "            anchor = self.state.queues.get(name)\n",
        "            anchor = None\n",
        "each cycle begins with what was written last",
    ),
    Mutant(
        "promise-counted-twice",
        "kbatch/engine/state/promises.py",
        "return promise.amounts if job.in_queue and job.missing() else _NOTHING",
        "return promise.amounts if job.in_queue else {}",
        "what a group has placed counts as promised, too",
    ),
    Mutant(
        "wake-at-the-end",
        f"{_FLOW}/instants.py",
        "            while high - low > 1:\n",
        "            while False:\n",
        "the order changes long before anybody wakes",
    ),
)
