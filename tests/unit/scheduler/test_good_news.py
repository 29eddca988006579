"""What may be said later waits while it is held, and not for ever."""

from __future__ import annotations

from operators.scheduler.good_news import CONTRADICTED_SECONDS, NEWS_SECONDS, GoodNews


def three() -> GoodNews[str]:
    news: GoodNews[str] = GoodNews()
    news.put("a", "of a", 0.0, contradicted=False)
    news.put("b", "of b", 1.0, contradicted=False)
    news.put("c", "of c", 2.0, contradicted=True)
    return news


def test_nothing_waits_that_is_not_held() -> None:
    news = three()
    found = [news.due(2.0, hold=False, busy=()) for _ in range(4)]
    assert found == [("c", "of c", 2.0), ("a", "of a", 0.0), ("b", "of b", 1.0), None]
    assert len(news) == 0


def test_an_untruth_ends_sooner_than_a_silence() -> None:
    news = three()
    assert news.due(2.0 + CONTRADICTED_SECONDS - 0.1, hold=True, busy=()) is None
    assert news.due(2.0 + CONTRADICTED_SECONDS, hold=True, busy=()) == ("c", "of c", 2.0)
    assert news.due(NEWS_SECONDS - 0.1, hold=True, busy=()) is None
    assert news.due(NEWS_SECONDS, hold=True, busy=()) == ("a", "of a", 0.0)
    assert news.due(NEWS_SECONDS, hold=True, busy=()) is None


def test_of_a_group_that_is_being_written_nothing_is_said() -> None:
    assert three().due(2.0, hold=False, busy={"a", "c"}) == ("b", "of b", 1.0)


def test_what_is_no_longer_so_is_not_said() -> None:
    news = three()
    news.discard("a")
    news.discard("c")
    assert ("a" in news, "b" in news, "c" in news) == (False, True, False)
    assert news.take_all() == {"b": "of b"}
    assert len(news) == 0
