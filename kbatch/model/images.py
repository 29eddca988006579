"""The container images that nodes say they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kbatch.api.objects import Node


def with_tag(name: str) -> str:
    """The name with `:latest` where it has neither tag nor digest, as the kubelet reports it."""
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def images_of(node: Node) -> Iterator[tuple[str, int]]:
    """The images of a node by each of their names, with their sizes in bytes."""
    for image in node.status.images or ():
        for name in dict.fromkeys(with_tag(name) for name in image.names or ()):
            yield name, image.size_bytes


def changed_images(before: Node, after: Node) -> set[str]:
    """The names of the images that came, went or are of another size."""
    old, new = Counter(images_of(before)), Counter(images_of(after))
    return {name for name, _ in (*(old - new), *(new - old))}
