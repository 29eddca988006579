"""Lists, page by page, so that neither side ever holds the whole answer as text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypeVar

from kbatch.kube.client import Api
from kbatch.kube.decoding import Page, page
from kbatch.kube.kinds import Kind

T = TypeVar("T")

PAGE_SIZE: Final = 500


async def list_pages(
    api: Api,
    kind: Kind[T],
    *,
    namespace: str | None = None,
    field_selector: str | None = None,
    label_selector: str | None = None,
    page_size: int = PAGE_SIZE,
) -> AsyncIterator[Page[T]]:
    """All objects of a kind, of one namespace or of all, as pages of one consistent version.

    Raises:
        ApiError: the server refused; 410 in the middle means that the list took too long and must begin anew.
        NoAnswerError: no answer.
    """
    params = {"limit": str(page_size)} | selectors(field_selector, label_selector)
    path = kind.path(namespace)
    while True:
        this = page(kind, await api.request("GET", path, params=params))
        yield this
        if not this.continue_:
            return
        params["continue"] = this.continue_


async def list_all(
    api: Api,
    kind: Kind[T],
    *,
    namespace: str | None = None,
    field_selector: str | None = None,
    label_selector: str | None = None,
) -> list[T]:
    """All objects that can be read, in one list. For tests, tools and small kinds."""
    found: list[T] = []
    async for this in list_pages(
        api, kind, namespace=namespace, field_selector=field_selector, label_selector=label_selector
    ):
        found += this.objects
    return found


async def list_named(api: Api, kind: Kind[T], *, namespace: str, name: str) -> T | None:
    """The object of that name; None where there is none. By the right to list, for who has none to read by name."""
    found = await list_all(api, kind, namespace=namespace, field_selector=f"metadata.name={name}")
    return found[0] if found else None


async def current_version(api: Api, kind: Kind[T]) -> int:
    """The version at which a kind stands now: no change of it that was made before this call is younger.

    Raises:
        ApiError: the server refused.
        NoAnswerError: no answer.
        msgspec.DecodeError: an answer that is no list.
    """
    # Without a resourceVersion the answer is of the moment, whatever a server keeps in its cache.
    answer = await api.request("GET", kind.path(), params={"limit": "1"})
    return version_number(page(kind, answer).resource_version)


def version_number(version: str) -> int:
    """A resourceVersion as a number, by which those of one kind compare; 0 for one that is none (never seen)."""
    return int(version) if version.isdecimal() else 0


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another of the same kind; False where they cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def selectors(field_selector: str | None, label_selector: str | None) -> dict[str, str]:
    """The selectors as parts of a query."""
    chosen = {"fieldSelector": field_selector, "labelSelector": label_selector}
    return {name: text for name, text in chosen.items() if text}
