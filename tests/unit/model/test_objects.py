"""Objects that a group has besides its pods: how they are rendered; which are refused, with the place of the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kbatch.api import podgroup as schema
from kbatch.api.objects import MadeObject, Metadata, PodGroup, PodGroupSpec
from kbatch.model.objects import MOST_BYTES, MOST_PEERS, objects_of, render
from kbatch.model.template_budget import MOST_STEPS, MOST_STEPS_TOGETHER, Budget
from kbatch.model.templates import TemplateError

POD: dict[str, Any] = {"spec": {"containers": [{"name": "c"}]}}


def service(name: str = "{{ group }}-web", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, **more}


def spec(*objects: dict[str, Any], **roles: int) -> PodGroupSpec:
    given = [{"name": name, "minMember": least, "template": POD} for name, least in roles.items()]
    return msgspec.convert({"objects": objects, "subGroups": given}, PodGroupSpec)


def error(*objects: dict[str, Any], **roles: int) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        render(spec(*objects, **roles), group="g", namespace="ns")
    return caught.value


def test_an_object_is_rendered_as_templates_are_and_owned_by_its_group() -> None:
    hosts = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hosts", "labels": {"of": "{{ group }}"}},
        "data": {"hostfile": "{% for peer in peers %}{{ peer }}.{{ namespace }}\n{% endfor %}", "n": "{{ size }}"},
    }
    group = PodGroup(
        metadata=Metadata(namespace="ns", name="g", uid="u"), spec=spec(service(), hosts, launcher=1, worker=2)
    )
    web, made = objects_of(group)
    assert web.ref == MadeObject(api_version="v1", kind="Service", name="g-web")
    owner = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "name": "g", "uid": "u"}
    assert web.manifest == {
        "metadata": {"name": "g-web", "namespace": "ns", "ownerReferences": [{**owner, "controller": True}]}
    }
    assert made.manifest["data"] == {"hostfile": "g-launcher-0.ns\ng-worker-0.ns\ng-worker-1.ns\n", "n": "3"}
    assert made.manifest["metadata"]["labels"] == {"of": "g"}


def test_the_example_makes_what_it_says() -> None:
    manifest = yaml.safe_load((Path(__file__).parents[3] / "examples" / "objects.yaml").read_text())
    schema.PodGroup.model_validate({"spec": manifest["spec"]})
    service, hosts = render(msgspec.convert(manifest["spec"], PodGroupSpec), group="train", namespace="ns")
    assert service["metadata"]["name"] == manifest["spec"]["subGroups"][0]["template"]["spec"]["subdomain"]
    assert hosts["data"]["hostfile"].splitlines() == [f"train-worker-{index}.train.ns.svc" for index in range(4)]


def test_a_group_without_objects_has_none() -> None:
    assert render(PodGroupSpec(), group="g", namespace="ns") == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (service("{{ role }}"), "objects[0].metadata.name: 'role' is undefined"),
        (service("{{ index }}"), "objects[0].metadata.name: 'index' is undefined"),
        (service("Web"), "objects[0].metadata.name: 'Web' is no valid name"),
        (service("{{ nobody }}"), "objects[0].metadata.name: 'nobody' is undefined; there are"),
        ({**service(), "kind": "{{ group }}"}, "objects[0].kind: a plain text, without expressions"),
        ({**service(), "apiVersion": ""}, "objects[0].apiVersion: a plain text, without expressions"),
        ({"apiVersion": "v1", "kind": "Service"}, "objects[0].metadata: an object with the name"),
        ({**service(), "metadata": {"name": "x", "namespace": "kube-system"}}, "objects[0].metadata.namespace: cannot"),
        (
            {**service(), "metadata": {"name": "x", "ownerReferences": []}},
            "objects[0].metadata.ownerReferences: cannot",
        ),
        ({**service(), "metadata": {"name": "x", "finalizers": ["a/b"]}}, "objects[0].metadata.finalizers: cannot"),
        ({**service(), "metadata": {"name": "x", "labels": {"a": 1}}}, "objects[0].metadata.labels: texts by key"),
    ],
)
def test_what_cannot_be_made_is_said_with_its_place(wrong: dict[str, Any], said: str) -> None:
    assert str(error(wrong)).startswith(said)


def test_two_objects_of_one_kind_have_different_names_when_they_are_rendered() -> None:
    assert str(error(service("g-web"), service())) == "objects[1].metadata.name: there is another Service g-web"
    other = {**service(), "apiVersion": "serving.example.com/v1"}
    assert len(render(spec(service(), other), group="g", namespace="ns")) == 2


def test_their_number_and_size_are_bounded() -> None:
    many = [service(f"s{number}") for number in range(17)]
    assert str(error(*many)) == "objects: more than 16"
    assert len(render(spec(*many[:16]), group="g", namespace="ns")) == 16
    half = {"key": "x" * (MOST_BYTES // 2)}
    assert "bytes in all" in str(error(service("a", data=half), service("b", data=half)))
    assert len(render(spec(service("a", data=half)), group="g", namespace="ns")) == 1


def test_what_rendering_them_may_cost_is_bounded_for_all_of_them_together() -> None:
    loop = "{% for peer in peers %}{{ peer[0:1] }}{% endfor %}"
    costly = [service(f"s{number}", data={"key": loop}) for number in range(16)]
    assert len(render(spec(*costly[:2], worker=MOST_PEERS), group="g", namespace="ns")) == 2
    assert f"more than {MOST_STEPS} steps" in str(error(*costly, worker=MOST_PEERS))
    left = Budget()
    for _ in range(MOST_STEPS_TOGETHER // MOST_STEPS):  # as members before them have
        left.next_member()
        left.spend(MOST_STEPS)
    with pytest.raises(TemplateError, match=f"more than {MOST_STEPS_TOGETHER} steps together"):
        render(spec(service()), group="g", namespace="ns", budget=left)


def test_the_members_of_a_group_too_large_to_be_named_are_not_named() -> None:
    assert f"of more than {MOST_PEERS} it cannot" in str(error(service("{{ peers[0] }}"), worker=MOST_PEERS + 1))
    assert render(spec(service("{{ size }}"), worker=1_000_000), group="g", namespace="ns")[0]["metadata"] == {
        "name": "1000000"
    }
