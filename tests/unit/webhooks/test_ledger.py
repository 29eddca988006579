"""The ledger: the sum never passes a limit, entries go when they may, and what is written can be read."""

from __future__ import annotations

import pytest

from kbatch.model.promised import Groups
from kbatch.model.quota import Ask, Subject
from tests.unit.webhooks.build import cores, group, quota
from webhooks.ledger import EXPIRY_MS, Claim, Entry, Ledger, Settlement, decode, encode, settle, without

TEN = (quota(requests_cpu="10"),)


def settled(
    claims: list[Claim],
    *,
    ledger: Ledger | None = None,
    groups: Groups | None = None,
    now: int = 0,
    fresh: bool = False,
) -> Settlement:
    return settle(ledger or Ledger(), groups or Groups(), TEN, claims, now=now, fresh=fresh)


def claim(name: str, cpu: int) -> Claim:
    return Claim(name, cores(cpu), f"token-{name}")


def test_claims_count_for_those_after_them() -> None:
    done = settled([claim("a", 6), claim("b", 6), claim("c", 4), claim("d", 1)])
    assert done.granted == (0, 2)
    assert (done.refused[1].asked, done.refused[1].reserved, done.refused[1].hard) == (6000, 6000, 10_000)
    assert done.refused[3].reserved == 10_000
    assert set(done.ledger.entries) == {"a", "c"}


def test_groups_that_are_seen_and_grants_that_are_not_add_up() -> None:
    ledger = Ledger({"new": Entry("new", cores(3), "t", 0)})
    done = settled([claim("a", 3), claim("b", 1)], ledger=ledger, groups=Groups([group("old", "5")]))
    assert done.granted == (1,)
    assert done.refused[0].reserved == 8000


def test_a_group_that_is_over_counts_no_more() -> None:
    groups = Groups([group("old", "9", phase="Completed"), group("older", "9", phase="Failed")])
    assert settled([claim("a", 10)], groups=groups).granted == (0,)


def test_an_entry_goes_when_its_token_was_seen_and_the_floor_says_where() -> None:
    ledger = Ledger({"a": Entry("a", cores(4), "t", 0)}, floor=7)
    unseen = settled([claim("b", 1)], ledger=ledger, groups=Groups([group("a", "4", version=9)]))
    assert set(unseen.ledger.entries) == {"a", "b"}
    assert unseen.ledger.floor == 7
    seen = settled([claim("b", 1)], ledger=ledger, groups=Groups([group("a", "4", version=9, token="t")]))
    assert set(seen.ledger.entries) == {"b"}
    assert seen.ledger.floor == 9


def test_a_group_that_came_and_went_leaves_no_entry() -> None:
    groups = Groups([group("a", "9", version=9, token="t")])
    groups.drop("a")
    done = settled([claim("b", 9)], ledger=Ledger({"a": Entry("a", cores(9), "t", 0)}), groups=groups)
    assert done.granted == (0,)
    assert set(done.ledger.entries) == {"b"}


def test_a_group_with_the_tokens_of_two_reviews_needs_neither_entry_any_more() -> None:
    ledger = Ledger({"a": Entry("a", cores(4), "t", 0)}, again={"a": (Entry("a", cores(4), "u", 0),)})
    groups = Groups([group("a", "4", version=9, token="t,u")])
    groups.drop("a")
    assert set(settled([claim("b", 10)], ledger=ledger, groups=groups).ledger.entries) == {"b"}


def test_the_same_group_is_not_counted_twice_while_its_entry_stands() -> None:
    ledger = Ledger({"a": Entry("a", cores(6), "other", 0)})
    assert settled([claim("b", 4)], ledger=ledger, groups=Groups([group("a", "6")])).granted == (0,)
    assert settled([claim("b", 5)], ledger=ledger, groups=Groups([group("a", "6")])).granted == ()


def test_a_raise_counts_at_once_and_replaces_what_the_group_had() -> None:
    groups = Groups([group("a", "4")])
    done = settled([claim("a", 8), claim("b", 3), claim("b", 2)], groups=groups)
    assert done.granted == (0, 2)
    assert done.refused[1].reserved == 8000


def test_two_requests_for_one_name_count_as_the_larger() -> None:
    first = settled([claim("a", 8)])
    again = settled([Claim("a", cores(2), "second"), claim("b", 5), claim("b", 2)], ledger=first.ledger)
    assert again.granted == (0, 2)
    assert {entry.token: entry.ask for entry in again.ledger.all()} == {
        "token-a": cores(8), "second": cores(2), "token-b": cores(2),
    }  # fmt: skip


def test_of_two_requests_for_one_name_the_one_that_is_given_up_leaves_the_other() -> None:
    first = settled([claim("a", 8)])
    again = settled([Claim("a", cores(9), "second")], ledger=first.ledger)
    assert settled([claim("b", 2)], ledger=without(again.ledger, {"second"})).granted == (0,)
    assert settled([claim("b", 3)], ledger=without(again.ledger, {"second"})).granted == ()
    assert settled([claim("b", 2)], ledger=without(again.ledger, {"token-a"})).granted == ()


def test_of_three_requests_for_one_name_the_one_that_is_given_up_leaves_the_others() -> None:
    three = settled([claim("a", 2), Claim("a", cores(4), "second"), Claim("a", cores(8), "third")]).ledger
    for given_up, counts in (({"token-a"}, 8), ({"third"}, 4), ({"second", "third"}, 2), ({"token-a", "second"}, 8)):
        left = without(three, given_up)
        assert settled([claim("b", 10 - counts)], ledger=left).granted == (0,)
        assert settled([claim("b", 11 - counts)], ledger=left).granted == ()


def test_of_two_requests_for_one_name_the_other_may_be_carried_out_when_the_first_group_has_come_and_gone() -> None:
    first = settled([claim("a", 8)])
    again = settled([Claim("a", cores(8), "second")], ledger=first.ledger)
    for token in ("token-a", "second"):
        groups = Groups([group("a", "8", version=9, token=token)])
        groups.drop("a")
        assert settled([claim("b", 3)], ledger=again.ledger, groups=groups).granted == ()
        assert settled([claim("b", 2)], ledger=again.ledger, groups=groups).granted == (0,)


def test_each_of_two_requests_for_one_name_counts_for_as_long_as_it_may_be_carried_out() -> None:
    first = settled([claim("a", 8)])
    again = settled([Claim("a", cores(2), "second")], ledger=first.ledger, now=5)
    later = settled([claim("b", 8)], ledger=again.ledger, now=EXPIRY_MS + 1, fresh=True)
    assert later.granted == (0,)
    assert set(later.ledger.entries) == {"a", "b"}


def test_two_requests_for_one_name_count_in_each_quota_as_the_larger_of_what_it_sees() -> None:
    scoped = (quota(scopes=("PriorityClass",), requests_cpu="4"), quota(requests_cpu="6"))

    def asks(name: str, cpu: int, priority_class: str, token: str) -> Claim:
        return Claim(name, Ask({"cpu": cpu * 1000}, {}, 1, Subject(priority_class=priority_class)), token)

    both = settle(
        Ledger(), Groups(), scoped, [asks("a", 4, "high", "t"), asks("a", 4, "", "u")], now=0, fresh=True
    ).ledger
    done = settle(both, Groups(), scoped, [asks("b", 1, "high", "v"), asks("b", 2, "", "w")], now=0, fresh=True)
    assert done.granted == (1,)


@pytest.mark.parametrize(
    ("age", "fresh", "gone"), [(EXPIRY_MS, True, False), (EXPIRY_MS + 1, True, True), (EXPIRY_MS + 1, False, False)]
)
def test_an_entry_without_its_group_goes_in_time_but_only_after_a_new_list(age: int, fresh: bool, gone: bool) -> None:
    ledger = Ledger({"lost": Entry("lost", cores(10), "t", 1000)})
    done = settled([claim("a", 1)], ledger=ledger, now=1000 + age, fresh=fresh)
    assert (done.granted == (0,)) is gone


def test_scopes_keep_sums_apart() -> None:
    scoped = (quota(scopes=("BestEffort",), pods="2"),)
    light = Ask({}, {}, 2, Subject(best_effort=True))
    done = settle(
        Ledger(), Groups([group("a", "9")]), scoped, [Claim("b", light, "t"), Claim("c", light, "u")], now=0, fresh=True
    )
    assert done.granted == (0,)
    assert done.refused[1].resource == "pods"


def test_a_quota_that_cannot_be_read_limits_nobody() -> None:
    done = settle(Ledger(), Groups(), (quota(requests_cpu="lots"),), [claim("a", 1)], now=0, fresh=True)
    assert done.granted == (0,)


def test_what_is_written_can_be_read() -> None:
    subject = Subject(best_effort=True, terminating=True, priority_class="high", crosses_namespaces=True)
    ledger = Ledger({"a.b-c": Entry("a.b-c", Ask({"cpu": 5}, {"memory": 7}, 3, subject), "t", 99)}, floor=12)
    assert decode(encode(ledger), "12") == ledger
    assert decode("", None) == Ledger()
    assert decode(f"no entry\n{encode(ledger)}\nno-entry-either", "junk").entries == ledger.entries
    assert decode("@junk\na t", None) == Ledger()
    twice = Ledger(
        {"a": Entry("a", cores(1), "t", 5), "b": Entry("b", cores(1), "v", 6)},
        again={"a": (Entry("a", cores(2), "u", 6), Entry("a", cores(1), "w", 6))},
    )
    assert decode(encode(twice), None) == twice


def test_entries_of_one_time_for_the_same_say_so_once() -> None:
    done = settled([claim("a", 1), claim("b", 1), claim("c", 2)], now=5)
    assert encode(done.ledger) == ("@5 1 cpu=1000 - = -\na token-a\nb token-b\n@5 1 cpu=2000 - = -\nc token-c")
    assert decode(encode(done.ledger), None) == done.ledger


WORDS = ["", "-", "=", "@", "a b", "a,b", "a=b", "a\nb", "%20", "\ud800", "best-effort,-", "\x85"]


@pytest.mark.parametrize("word", WORDS)
def test_no_name_that_a_user_chooses_hides_an_entry(word: str) -> None:
    ask = Ask({word: 5, "cpu": 1}, {word: 7}, 3, Subject(priority_class=word))
    ledger = Ledger({word: Entry(word, ask, "t", 99)})
    assert decode(encode(ledger), "0") == ledger
