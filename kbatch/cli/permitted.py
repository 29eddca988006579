"""What is asked of the cluster by the way, and left out where the user may not read it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from kbatch.kube.errors import ApiError

T = TypeVar("T")


async def if_there(answer: Awaitable[T]) -> T | None:
    """The answer; None where there is no such object.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    try:
        return await answer
    except ApiError as error:
        if error.status != 404:
            raise
        return None


async def if_readable(answer: Awaitable[T]) -> T | None:
    """The answer; None where it may not be read, or is not there.

    Raises:
        KubeError: the cluster does not answer.
    """
    try:
        return await answer
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        return None
