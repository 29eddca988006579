"""Objects besides pods: the operator may make just the kinds of the values, and the API server asks who wants them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import helm_python
import pytest

from operators.podgroup.kinds import WITHHELD, parse_kinds
from tests.unit.chart.test_rights import rights

if TYPE_CHECKING:
    from collections.abc import Callable

LEASES = [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "resource": "leases"}]


def argument(rendered: Any) -> str:
    (found,) = (one for one in rendered.container("podgroup")["args"] if one.startswith("--object-kinds="))
    return str(found.removeprefix("--object-kinds="))


def granted(rendered: Any) -> set[tuple[str, str]]:
    return set(rights(rendered.one("ClusterRole", "kbatch-podgroup")["rules"]))


def test_the_operators_rights_and_its_arguments_follow_the_values(render: Callable[..., Any], default: Any) -> None:
    assert {kind.name for kind in parse_kinds(argument(default)).values()} == {"Service", "ConfigMap", "Ingress"}
    none = render({"objects": {"kinds": []}})
    assert parse_kinds(argument(none)) == {}
    objects = {"services", "configmaps", "ingresses.networking.k8s.io"}
    assert granted(default) - granted(none) == {(one, verb) for one in objects for verb in ("create", "delete", "get")}
    leases = render({"objects": {"kinds": LEASES}})
    assert granted(leases) - granted(none) == {
        ("leases.coordination.k8s.io", verb) for verb in ("create", "delete", "get")
    }


def test_the_api_server_asks_of_every_kind_whether_the_author_may_create_it(render: Callable[..., Any]) -> None:
    for values in ({}, {"objects": {"kinds": LEASES}}):
        rendered = render(values)
        policy = rendered.one("ValidatingAdmissionPolicy", "kbatch-podgroup")
        binding = rendered.one("ValidatingAdmissionPolicyBinding", "kbatch-podgroup")
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        assert policy["spec"]["failurePolicy"] == "Fail"
        (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["resources"], rule["operations"]) == (["podgroups"], ["CREATE", "UPDATE"])
        asked = set()
        for validation in policy["spec"]["validations"]:
            match = re.search(
                r"authorizer\.group\('([^']*)'\)\.resource\('([^']*)'\)\s*\.namespace\(request\.namespace\)"
                r"\.check\('create'\)\.allowed\(\)$",
                validation["expression"],
            )
            if match:
                asked.add((match[1], match[2]))
                assert validation["reason"] == "Forbidden"
        makes = {(kind.group, kind.plural) for kind in parse_kinds(argument(rendered)).values()}
        assert asked == makes | {("", "pods")}


def test_kinds_that_would_lend_the_operators_rights_are_refused(chart: helm_python.Chart) -> None:
    for group in WITHHELD:
        kinds = [{"apiVersion": f"{group}/v1", "kind": "Thing", "resource": "things"}]
        with pytest.raises(helm_python.HelmValuesError):
            chart.validate_schema({"objects": {"kinds": kinds}})
    chart.validate_schema({"objects": {"kinds": LEASES}})
