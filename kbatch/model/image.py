"""A whole model taken down and built again: its objects, and what it knows that no object says.

A model that was built again decides as the one it was taken from. What no object says is little: binds and evictions
under way, objects that cannot be read, which labels count, and the queue of pods whose PodGroup is gone. Objects are
never changed once they are in a model, so an image only refers to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbatch.api.objects import AnyObject, Metadata, PodGroup, PodGroupSpec
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable, Upsert


@dataclass(frozen=True, slots=True)
class Assumed:
    """A bind under way."""

    pod: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Evicting:
    """An eviction under way."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Orphaned:
    """Pods whose PodGroup is gone (key of their job), and the queue in which they go on to count."""

    job: str
    queue: str


@dataclass(frozen=True, slots=True)
class Image:
    """All of a model. `selected_keys` are the labels that selectors of pods read; None while there is no selector."""

    scheduler_name: str
    default_queue: str
    selected_keys: tuple[str, ...] | None
    objects: tuple[AnyObject, ...]
    assumed: tuple[Assumed, ...]
    evicting: tuple[Evicting, ...]
    unreadable: tuple[Unreadable, ...]
    orphaned: tuple[Orphaned, ...] = ()


def take_image(model: ClusterModel) -> Image:
    """The model as it is now, sums brought up to date; costs a reference for each object."""
    model.refresh()
    model.classes.sweep()  # a model that is built again knows none that are out of use
    objects: list[AnyObject] = [obj for kind in model.objects.values() for obj in kind.values()]
    objects += [queue.queue for queue in model.queues.values() if queue.queue is not None]
    objects += [job.group for job in model.jobs.values() if job.group is not None]
    objects += [record.node for record in model.nodes.values() if record.node is not None]
    # Classes are numbered as they are met: met in this order again, they keep their order.
    objects += [task.pod for task in sorted(model.tasks.values(), key=lambda task: task.cls.id)]
    assumed, evicting = model.marks()
    closed = {key: record.name for record in model.nodes.values() for key in record.closed_by}
    unreadable = []
    for (kind, key), why in model.unreadable.items():
        namespace, _, name = key.rpartition("/")
        unreadable.append(Unreadable(kind, namespace, name, "", closed.get(key, ""), why))
    return Image(
        model.scheduler_name,
        model.default_queue,
        tuple(sorted(model.classes.selected_keys)) if model.classes.coupled else None,
        tuple(objects),
        tuple(Assumed(pod, uid, node) for pod, (uid, node) in assumed.items()),
        tuple(Evicting(pod, uid) for pod, uid in evicting.items()),
        tuple(unreadable),
        tuple(Orphaned(job.key, job.queue) for job in model.jobs.values() if job.orphan),
    )


def build_model(image: Image) -> ClusterModel:
    """A model that decides as the one that the image was taken of."""
    model = ClusterModel(image.scheduler_name, image.default_queue)
    if image.selected_keys is not None:
        model.classes.coupled = True
        model.classes.selected_keys.update(image.selected_keys)
    for obj in image.objects:
        model.apply(Upsert(obj))
    for unreadable in image.unreadable:
        model.apply(unreadable)
    for bind in image.assumed:
        model.assume(bind.pod, bind.uid, bind.node)
    for victim in image.evicting:
        model.evicting(victim.pod, victim.uid)
    for orphaned in image.orphaned:
        namespace, _, name = orphaned.job.partition("/")
        group = PodGroup(metadata=Metadata(name=name, namespace=namespace), spec=PodGroupSpec(queue=orphaned.queue))
        model.apply(Upsert(group))
        model.apply(Delete(PodGroup, namespace, name))  # as it came to be
    model.refresh()
    return model
