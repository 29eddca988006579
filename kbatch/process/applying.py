"""Telling the model what was heard, whatever it holds: the process goes on without an object that breaks the model."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event, Unreadable, Upsert, left_out, name_of

_log = logging.getLogger(__name__)


def apply(model: ClusterModel, event: Event, note: Callable[[Unreadable], None] | None = None) -> bool:
    """Tell the model; False where the event breaks it. Then the model is told in its place that the object cannot be
    read, and so is `note`.
    """
    try:
        model.apply(event)
    except Exception as error:  # noqa: BLE001 - whatever a manifest holds
        _log.exception("an object breaks the model and is left out: %s", name_of(event))
        if isinstance(event, Upsert):
            instead = left_out(event.obj, f"{type(error).__name__}: {error}")
            if note is not None:
                note(instead)
            try:
                model.apply(instead)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("and cannot be left out properly either: %s", name_of(event))
        return False
    return True
