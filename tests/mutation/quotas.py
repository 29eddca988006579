"""Mutants of the quota ledger: the arithmetic of quotas, what the webhook knows, the grants, how they are written."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_QUOTA: Final = "kbatch/model/quota.py"
_LEDGER: Final = "webhooks/ledger.py"
_COMMITS: Final = "webhooks/commits.py"
_VIEW: Final = "webhooks/cluster_view.py"
_PROMISED: Final = "kbatch/model/promised.py"
_PODS: Final = "webhooks/pods.py"

MUTANTS: Final = (
    # --- what a quota says --------------------------------------------------------------------------------------------
    Mutant(
        "quota-off-by-one", _QUOTA,
        "used.get(name, 0) + reserved.get(name, 0) + amount > hard[name]",
        "used.get(name, 0) + reserved.get(name, 0) + amount >= hard[name]",
        "a group that fills its quota exactly is refused",
    ),
    Mutant(
        "quota-forgets-reservations", _QUOTA,
        "used.get(name, 0) + reserved.get(name, 0) + amount > hard[name]",
        "used.get(name, 0) + amount > hard[name]",
        "what others were promised is granted again",
    ),
    Mutant(
        "quota-counts-own-pods-twice", _QUOTA,
        "max(0, ask.pods - sum(part.pods for part in own))", "ask.pods",
        "a group's existing pods count against it once more",
    ),
    Mutant(
        "one-scope-is-enough", _QUOTA,
        "return all(_in_scope(scope, subject) for scope in quota.spec.scopes or ()) and all(",
        "return all(_in_scope(scope, subject) for scope in quota.spec.scopes or ()) or all(",
        "a quota limits pods that its scopes leave out",
    ),
    Mutant(
        "scope-reversed", _QUOTA,
        "return not subject.terminating", "return subject.terminating",
        "a quota for pods that do not end limits those that do",
    ),
    Mutant(
        "any-priority-class", _QUOTA,
        'return name != "" and name in values', 'return name != ""',
        "a quota of one priority class limits all",
    ),
    # --- the grants ---------------------------------------------------------------------------------------------------
    Mutant(
        "grant-off-by-one", _LEDGER,
        "taken.get(resource, 0) + amount <= self._hard[resource]",
        "taken.get(resource, 0) + amount < self._hard[resource]",
        "the last unit of a quota is granted to nobody",
    ),
    Mutant(
        "grants-are-not-counted", _LEDGER,
        "_Book(quota, groups.sums, grants.sums)", "_Book(quota, groups.sums)",
        "what was granted and is not seen yet is granted again",
    ),
    Mutant(
        "seen-and-granted-counts-twice", _LEDGER,
        "        for charged in charges:\n            self._take(charged, -1)\n", "",
        "a group counts by its grant and by itself",
    ),
    Mutant(
        "raise-counts-twice", _LEDGER,
        "        if own:\n", "        if False:\n",
        "a group that asks for more is charged with what it has besides",
    ),
    Mutant(
        "lone-group-is-not-known", _LEDGER,
        "        if name in grants.first or name in groups.live:\n", "        if name in grants.first:\n",
        "a group that asks for more counts as both from then on",
    ),
    Mutant(
        "later-request-wins", _LEDGER,
        "self._alone[name] = charged = maximum(before, charged)", "self._alone[name] = charged",
        "of two requests for one name the larger one may be carried out, and the smaller one counts",
    ),
    Mutant(
        "last-part-wins", _LEDGER,
        "reduce(maximum, charges)", "charges[-1]",
        "a group that is granted more than it is seen to have counts as it is seen",
    ),
    Mutant(
        "requests-for-one-name-add-up", _LEDGER,
        "(grants.first.keys() & groups.live.keys()) | grants.again.keys()", "grants.first.keys() & groups.live.keys()",
        "of two requests for one name only one can be carried out, and both count",
    ),
    Mutant(
        "later-request-replaces", _LEDGER,
        "        if entry.name in self.first:\n            self.again", "        if False:\n            self.again",
        "the first of two requests for one name may be carried out yet, and its grant is forgotten",
    ),
    Mutant(
        "later-requests-are-not-written", _LEDGER,
        "    for entry in ledger.all():\n        if entry.terms",
        "    for entry in ledger.entries.values():\n        if entry.terms",
        "of two requests for one name another replica knows only the first",
    ),
    Mutant(
        "all-of-a-name-go", _LEDGER,
        "if one is not entry]", "if False]",
        "a claim that was given up takes the grant of another with it",
    ),
    Mutant(
        "smaller-request-counts-besides", _LEDGER,
        "            self._take(before, -1)\n", "",
        "what a group asked for before counts on when it is granted more",
    ),
    Mutant(
        "grant-not-entered", _LEDGER,
        "        self.sums.add(entry.ask)\n        if", "        if",
        "the ledger's sums lack what was granted just now",
    ),
    Mutant(
        "grant-counts-for-nobody-after-it", _LEDGER,
        "            book.count(name, claim.ask)\n", "            pass\n",
        "two claims of one write are granted the same room",
    ),
    Mutant(
        "third-request-replaces", _LEDGER,
        "(*self.again.get(entry.name, ()), entry)", "(entry,)",
        "of three requests for one name the second may be carried out yet, and its grant is forgotten",
    ),
    Mutant(
        "only-the-next-is-left", _LEDGER,
        "        if left[1:]:\n", "        if False:\n",
        "of three requests for one name one is given up, and the grant of another goes with it",
    ),
    Mutant(
        "expiry-off-by-one", _LEDGER,
        "now - entry.at > EXPIRY_MS", "now - entry.at >= EXPIRY_MS",
        "a grant goes at the very end of the time in which its group may appear",
    ),
    Mutant(
        "expiry-without-a-list", _LEDGER,
        "elif not (fresh and now - entry.at > EXPIRY_MS):", "elif not (now - entry.at > EXPIRY_MS):",
        "a replica whose watch lags drops the grant of a group that is there",
    ),
    Mutant(
        "floor-goes-back", _LEDGER,
        "floor = max(floor, seen)", "floor = seen",
        "a replica decides without a group whose grant is gone",
    ),
    Mutant(
        "pruned-stays-in-the-sums", _LEDGER,
        "        self.sums.remove(entry.ask)\n", "",
        "a grant that is gone counts on",
    ),
    Mutant(
        "floor-lost-with-a-token", _LEDGER,
        "grants.ledger(ledger.floor)", "grants.ledger(0)",
        "once a claim was given up, a lagging replica decides without looking",
    ),
    Mutant(
        "terms-of-another-run", _LEDGER,
        '                terms = ""\n                at, ask = _read_terms(line)',
        "                at, ask = _read_terms(line)",
        "entries below a line that cannot be read count as what stood above it",
    ),
    # --- as they are written ------------------------------------------------------------------------------------------
    Mutant(
        "lagging-replica-decides", _COMMITS,
        "if not fresh and self._view.version < account.ledger.floor:", "if False:",
        "a replica grants what a group has that it has not seen",
    ),
    Mutant(
        "refused-by-the-watch", _COMMITS,
        "if not fresh and (settled.refused or len(firm) < len(batch) or too_long):",
        "if not fresh and (len(firm) < len(batch) or too_long):",
        "a claim is refused for what is gone already",
    ),
    Mutant(
        "dry-run-by-the-watch", _COMMITS,
        "if not fresh and (settled.refused or len(firm) < len(batch) or too_long):",
        "if not fresh and (settled.refused or too_long):",
        "a dry run, which no write confirms, is answered by an old view",
    ),
    Mutant(
        "answered-without-a-write", _COMMITS,
        "if settled.granted and not await self._write(account, settled.ledger, text):\n                continue",
        "if settled.granted and not await self._write(account, settled.ledger, text):\n                pass",
        "two replicas grant the same room: one write was lost, and its claims are answered",
    ),
    Mutant(
        "given-up-stays", _COMMITS,
        "before = without(account.ledger, withdrawn)", "before = account.ledger",
        "what nobody waits for any more keeps others out until it expires",
    ),
    Mutant(
        "tokens-of-the-watch-forgotten", _COMMITS,
        "found.seen = {**seen, **found.seen}", "found.seen = {**found.seen}",
        "the grant of a group that came and went stays until it expires",
    ),
    Mutant(
        "stale-version-is-kept", _COMMITS,
        "            account.version = None\n            # 404", "            # 404",
        "after another replica has written, each further write conflicts",
    ),
    Mutant(
        "another-namespace-of-the-name", _COMMITS,
        "if ours else \"\", floor)", 'if ours or True else "", floor)',
        "the grants of a namespace that was deleted bind one that is made after it",
    ),
    # --- what the webhook knows ---------------------------------------------------------------------------------------
    Mutant(
        "group-counted-at-each-change", _PROMISED,
        "        name = group.metadata.name\n        self.drop(name)\n", "        name = group.metadata.name\n",
        "each update of a group adds it to the sums again",
    ),
    Mutant(
        "promise-not-taken-back", _PROMISED,
        "            self.promised.remove(before)\n", "            pass\n",
        "what a group has used of its promise stays promised",
    ),
    Mutant(
        "running-groups-reserve", _PROMISED,
        "reserving = enqueued and group.status.phase not in STARTED", "reserving = enqueued",
        "what a running group holds is kept for it once more",
    ),
    Mutant(
        "ended-pod-counts-on", _VIEW,
        "            sums.remove(ask)\n", "            pass\n",
        "a pod that has ended uses what its group was promised",
    ),
    Mutant(
        "over-is-not-over", _PROMISED,
        "        if group.status.phase in OVER:\n            return None\n", "",
        "a completed group holds its quota for ever",
    ),
    Mutant(
        "pod-off-by-one", _PODS,
        "taken.get(name, 0) + reserved[name] + wanted[name] > hard[name]",
        "taken.get(name, 0) + reserved[name] + wanted[name] >= hard[name]",
        "a pod that fits exactly beside what was promised is refused",
    ),
    Mutant(
        "own-promise-is-another's", _PODS,
        "reserved = subtract(promised.charged(quota), mine)", "reserved = promised.charged(quota)",
        "a pod is refused for what its own group was promised",
    ),
    Mutant(
        "burst-is-not-counted", _PODS,
        "told if burst is None else maximum(told, add(burst.base, burst.let_through))", "told",
        "many pods at once use what others were promised, before the quota shows them",
    ),
    Mutant(
        "unchanged-is-refused", "webhooks/podgroups.py",
        "asked.pods > before.pods", "asked.pods >= before.pods",
        "an edit that asks for nothing more is refused",
    ),
)  # fmt: skip
