"""The webhook: what is sent to it, by which address, and under which certificate."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import shutil
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

from kbatch.api.names import QUOTA_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
SERVICE = "kbatch-webhook.kbatch-system.svc"
SECRET = "s" * 48


def token(secret: str, handler: str) -> str:
    """The last part of a handler's path; written out here, as the webhook works it out too."""
    return hashlib.sha256(f"{secret}/{handler}".encode()).hexdigest()


def secret_of(rendered: Any) -> str:
    return base64.b64decode(rendered.one("Secret", "kbatch-webhook-path")["data"]["secret"]).decode()


def entries(rendered: Any) -> dict[str, dict[str, Any]]:
    (configuration,) = rendered.of("MutatingWebhookConfiguration")
    return {found["name"].removesuffix(".kbatch.dev"): found for found in configuration["webhooks"]}


def deletion(rendered: Any) -> dict[str, Any]:
    (configuration,) = rendered.of("ValidatingWebhookConfiguration")
    (found,) = configuration["webhooks"]
    return dict(found)


def webhook(rendered: Any) -> dict[str, Any]:
    return entries(rendered)["podgroup-defaults"]


def pem(data: dict[str, str], key: str) -> str:
    return base64.b64decode(data[key]).decode()


def server_context(data: dict[str, str], folder: Path) -> ssl.SSLContext:
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_text(pem(data, name))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def shake_hands(server: ssl.SSLContext, authority: str, host: str) -> None:
    """A TLS handshake in memory; raises ssl.SSLCertVerificationError where the client does not trust the server."""
    trust = ssl.create_default_context(cadata=authority)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [trust.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for _ in range(5):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not ends


def test_podgroups_are_sent_only_with_a_new_spec(default: Any) -> None:
    found = webhook(default)
    assert found["rules"] == [
        {
            "apiGroups": ["scheduling.incubator.k8s.io"],
            "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["podgroups"],
            "scope": "Namespaced",
        }
    ]
    (condition,) = found["matchConditions"]
    assert "object.spec != oldObject.spec" in condition["expression"]
    assert found["matchPolicy"] == "Equivalent"
    assert found["reinvocationPolicy"] == "IfNeeded"
    assert found["sideEffects"] == "NoneOnDryRun"


def policies(rendered: Any) -> dict[str, str]:
    return {name: found["failurePolicy"] for name, found in entries(rendered).items()}


def test_a_broken_webhook_stops_nobody_by_default_but_jobs_that_would_pass_by_their_queue(default: Any) -> None:
    found = policies(default)
    assert found.pop("queued-job-suspension") == "Fail"
    assert set(found.values()) == {"Ignore"}
    assert deletion(default)["failurePolicy"] == "Ignore"
    assert max(found["timeoutSeconds"] for found in entries(default).values()) <= 5


def test_each_kind_of_review_has_a_failure_policy_of_its_own(render: Callable[..., Any]) -> None:
    kinds = {
        "podgroups": {"podgroup-defaults"}, "queuedJobs": {"queued-job-suspension"}, "jobs": {"job-suspension"},
        "pods": {"pod-reservations", "foreign-pod-reservations"}, "queues": set[str](),
    }  # fmt: skip
    for kind, names in kinds.items():
        rendered = render({"webhook": {"failurePolicy": "Ignore", "failurePolicies": {"queuedJobs": "", kind: "Fail"}}})
        assert {name for name, policy in policies(rendered).items() if policy == "Fail"} == names
        assert (deletion(rendered)["failurePolicy"] == "Fail") == (kind == "queues")
    strict = render({"webhook": {"failurePolicy": "Fail", "failurePolicies": {"pods": "Ignore"}}})
    assert {name for name, policy in policies(strict).items() if policy == "Ignore"} == kinds["pods"]


def test_a_webhook_that_refuses_groups_over_the_sum_lets_none_pass_while_it_is_away(render: Callable[..., Any]) -> None:
    for given in ("", "Ignore"):
        found = policies(render({"webhook": {"quotaPolicy": "Reject", "failurePolicies": {"podgroups": given}}}))
        assert found.pop("podgroup-defaults") == found.pop("queued-job-suspension") == "Fail"
        assert set(found.values()) == {"Ignore"}


def test_of_queues_only_deletions_are_sent_whatever_their_namespace_would_be(default: Any) -> None:
    found = deletion(default)
    assert found["name"] == "queue-deletion.kbatch.dev"
    assert found["rules"] == [
        {
            "apiGroups": ["scheduling.incubator.k8s.io"],
            "apiVersions": ["v1alpha1"],
            "operations": ["DELETE"],
            "resources": ["queues"],
            "scope": "Cluster",
        }
    ]
    assert found["sideEffects"] == "None"
    assert not {"namespaceSelector", "reinvocationPolicy"} & set(found)


@pytest.mark.parametrize("url", ["", "https://127.0.0.1:40123"])
def test_deletions_of_queues_are_sent_as_the_other_reviews_are(render: Callable[..., Any], url: str) -> None:
    rendered = render({"webhook": {"url": url, "timeoutSeconds": 3}})
    found, other = deletion(rendered), webhook(rendered)
    secret = secret_of(rendered)
    assert json.dumps(found["clientConfig"]) == json.dumps(other["clientConfig"]).replace(
        token(secret, "podgroup-defaults"), token(secret, "queue-deletion")
    ).replace("podgroup-defaults", "queue-deletion")
    assert (found["failurePolicy"], found["timeoutSeconds"]) == ("Ignore", 3)
    assert deletion(render({"webhook": {"quotaPolicy": "Reject"}}))["failurePolicy"] == "Ignore"
    assert deletion(render({"webhook": {"failurePolicy": "Fail"}}))["failurePolicy"] == "Fail"


def test_of_jobs_and_pods_only_new_ones_of_ours_are_sent(render: Callable[..., Any]) -> None:
    found = entries(render({"schedulerName": "batch"}))
    assert set(found) == {
        "podgroup-defaults", "queued-job-suspension", "job-suspension", "pod-reservations", "foreign-pod-reservations",
    }  # fmt: skip
    for name, resource in (("job-suspension", "jobs"), ("pod-reservations", "pods")):
        (rule,) = found[name]["rules"]
        assert (rule["operations"], rule["resources"]) == (["CREATE"], [resource])
        (condition,) = found[name]["matchConditions"]
        assert "schedulerName == 'batch'" in condition["expression"]
    assert "matchLabels" not in found["job-suspension"]["namespaceSelector"]
    queued = found["queued-job-suspension"]
    assert "in ['batch', 'default-scheduler']" in queued["matchConditions"][0]["expression"]
    # Of all Jobs of a cluster the API server asks about few by expressions: the label sorts them.
    selectors = [
        found[name]["objectSelector"]["matchExpressions"] for name in ("queued-job-suspension", "job-suspension")
    ]
    assert selectors == [[{"key": "kbatch.dev/queue", "operator": how}] for how in ("Exists", "DoesNotExist")]
    assert queued["clientConfig"] == found["job-suspension"]["clientConfig"]
    foreign = found["foreign-pod-reservations"]
    assert foreign["namespaceSelector"]["matchLabels"] == {"kbatch.dev/quota-guard": "enforce"}
    assert foreign["clientConfig"]["service"]["path"].startswith("/pod-reservations/")
    assert "!(has(object.spec.schedulerName) && object.spec.schedulerName == 'batch')" in "".join(
        condition["expression"] for condition in foreign["matchConditions"]
    )


def test_pods_are_sent_only_where_something_is_done_with_them(render: Callable[..., Any]) -> None:
    off = entries(render({"webhook": {"reservations": "Off"}}))
    assert set(off) == {"podgroup-defaults", "queued-job-suspension", "job-suspension"}
    gated = entries(render({"webhook": {"reservations": "Off", "gatePods": True}}))
    assert set(gated) == {*off, "pod-reservations"}
    conditions = [condition["name"] for condition in gated["pod-reservations"]["matchConditions"]]
    assert conditions == ["ours", "of-a-group"]


def test_pods_are_sent_from_namespaces_with_a_quota_and_from_all_where_they_get_gates(
    render: Callable[..., Any],
) -> None:
    for reservations in ("Refuse", "Gate"):
        selector = entries(render({"webhook": {"reservations": reservations}}))["pod-reservations"]["namespaceSelector"]
        assert selector["matchLabels"] == {QUOTA_LABEL: "true"}
        gated = entries(render({"webhook": {"reservations": reservations, "gatePods": True}}))["pod-reservations"]
        assert "matchLabels" not in gated["namespaceSelector"]
        assert gated["namespaceSelector"]["matchExpressions"] == selector["matchExpressions"]


@pytest.mark.parametrize(
    ("excluded", "expected"),
    [
        (None, ["kbatch-system", "kube-system"]),
        ([], ["kbatch-system"]),
        (["kbatch-system", "a"], ["kbatch-system", "a"]),
    ],
)
def test_the_release_and_kube_system_are_left_alone(
    render: Callable[..., Any], excluded: list[str] | None, expected: list[str]
) -> None:
    rendered = render({} if excluded is None else {"webhook": {"excludedNamespaces": excluded}})
    for found in entries(rendered).values():
        first, *_ = found["namespaceSelector"]["matchExpressions"]
        assert first == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": expected}


def test_a_namespace_can_say_that_no_pods_of_its_own_are_sent(default: Any) -> None:
    more = {name: found["namespaceSelector"]["matchExpressions"][1:] for name, found in entries(default).items()}
    assert more.pop("pod-reservations") == [{"key": "kbatch.dev/quota-guard", "operator": "NotIn", "values": ["off"]}]
    assert list(more.values()) == [[], [], [], []]


def test_the_service_leads_to_the_webhook(default: Any, tmp_path: Path) -> None:
    client = webhook(default)["clientConfig"]
    assert client["service"] == {
        "name": "kbatch-webhook",
        "namespace": "kbatch-system",
        "port": 443,
        "path": f"/podgroup-defaults/{token(secret_of(default), 'podgroup-defaults')}",
    }
    (port,) = default.one("Service", "kbatch-webhook")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "webhook")
    data = default.one("Secret", "kbatch-webhook-certificates")["data"]
    assert client["caBundle"] == data["ca.crt"]
    server = server_context(data, tmp_path)
    shake_hands(server, pem(data, "ca.crt"), SERVICE)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, pem(data, "ca.crt"), "other.kbatch-system.svc")


@pytest.mark.parametrize(
    ("url", "host", "stranger"),
    [
        ("https://127.0.0.1:40123", "127.0.0.1", "127.0.0.2"),
        ("https://[::1]:40123", "::1", "::2"),
        ("https://webhook.example:8443/", "webhook.example", "example"),
    ],
)
def test_a_url_takes_the_place_of_the_service(
    render: Callable[..., Any], tmp_path: Path, url: str, host: str, stranger: str
) -> None:
    rendered = render({"webhook": {"url": url}})
    client = webhook(rendered)["clientConfig"]
    assert client["url"] == f"{url.rstrip('/')}/podgroup-defaults/{token(secret_of(rendered), 'podgroup-defaults')}"
    assert "service" not in client
    data = rendered.one("Secret", "kbatch-webhook-certificates")["data"]
    server = server_context(data, tmp_path)
    shake_hands(server, pem(data, "ca.crt"), host)
    for other in (stranger, SERVICE):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server, pem(data, "ca.crt"), other)
    # Nothing inside of the cluster could reach it.
    assert "kbatch-webhook-test" not in rendered.names("Pod")


LOOKUP = 'lookup "v1" "Secret" .Release.Namespace (include "kbatch.certificateSecret" .)'


def upgraded(folder: Path, installed: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The Secret after an upgrade of what is installed, and the authority in the configuration; without a cluster."""
    shutil.copytree(CHART, folder)
    (folder / "found.json").write_text(json.dumps(installed))
    template = folder / "templates" / "webhook" / "_webhook.tpl"
    text = template.read_text()
    assert text.count(LOOKUP) == 1
    template.write_text(text.replace(LOOKUP, '.Files.Get "found.json" | fromJson'))
    with helm_python.Chart.load(folder) as chart:
        options = json.dumps({"name": "kbatch", "namespace": "kbatch-system", "is_install": False})
        files = json.loads(helm_python._native.call_string("helm_render", chart._raw(), "{}", options))
    documents = [
        document
        for name, text in files.items()
        if not name.endswith("NOTES.txt")
        for document in yaml.safe_load_all(text)
        if document
    ]
    (secret,) = (one for one in documents if one["kind"] == "Secret" and one["type"] == "kubernetes.io/tls")
    (called,) = (one for one in documents if one["kind"] == "ValidatingWebhookConfiguration")
    return secret, base64.b64decode(called["webhooks"][0]["clientConfig"]["caBundle"]).decode()


def test_a_certificate_is_kept_by_upgrades_until_it_is_to_be_renewed(default: Any, tmp_path: Path) -> None:
    installed = default.one("Secret", "kbatch-webhook-certificates")
    kept, authority = upgraded(tmp_path / "chart", installed)
    assert kept["data"] == installed["data"]
    assert authority == pem(installed["data"], "ca.crt")


def test_while_a_certificate_is_renewed_the_old_one_is_trusted_too(default: Any, tmp_path: Path) -> None:
    secrets = [default.one("Secret", "kbatch-webhook-certificates")]
    for number in range(3):
        due = copy.deepcopy(secrets[-1])
        due["metadata"]["annotations"]["kbatch.dev/certificate-renew-at"] = "0"
        renewed, authority = upgraded(tmp_path / f"chart{number}", due)
        assert renewed["data"]["tls.crt"] != due["data"]["tls.crt"]
        for served in (renewed, due):  # a replica serves the old one until it sees the new Secret
            shake_hands(server_context(served["data"], tmp_path), authority, SERVICE)
        assert authority.count("BEGIN CERTIFICATE") == 2, "what was trusted before that is not trusted for ever"
        assert pem(renewed["data"], "ca.crt") == authority
        secrets.append(renewed)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server_context(secrets[0]["data"], tmp_path), authority, SERVICE)


def test_certificates_by_cert_manager(render: Callable[..., Any], values_files: dict[str, Any]) -> None:
    rendered = render(values_files["self-signed-values.yaml"])
    assert rendered.names("Secret") == {"kbatch-webhook-path"}
    (certificate,), (issuer,) = rendered.of("Certificate"), rendered.of("Issuer")
    assert certificate["spec"]["secretName"] == "webhook-tls"
    assert SERVICE in certificate["spec"]["dnsNames"]
    assert certificate["spec"]["issuerRef"] == {"kind": "Issuer", "name": issuer["metadata"]["name"]}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (configuration,) = rendered.of(kind)
        assert configuration["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": f"kbatch-system/{certificate['metadata']['name']}"
        }
    for found in (webhook(rendered), deletion(rendered)):
        assert "caBundle" not in found["clientConfig"]
    volumes = {volume["name"]: volume for volume in rendered.pod_spec("webhook")["volumes"]}
    assert volumes["certificates"]["secret"]["secretName"] == "webhook-tls"

    given = render(values_files["cert-manager-values.yaml"])
    assert given.of("Issuer") == []
    assert given.of("Certificate")[0]["spec"]["issuerRef"]["name"] == "company"


def test_certificates_of_an_existing_secret(render: Callable[..., Any], values_files: dict[str, Any]) -> None:
    values = values_files["secret-values.yaml"]
    rendered = render(values)
    assert rendered.names("Secret") == {"kbatch-webhook-path"}
    assert rendered.of("Certificate") == []
    authority = base64.b64decode(webhook(rendered)["clientConfig"]["caBundle"]).decode()
    assert authority == values["webhook"]["certificates"]["caBundle"]
    volumes = {volume["name"]: volume for volume in rendered.pod_spec("webhook")["volumes"]}
    assert volumes["certificates"]["secret"]["secretName"] == "webhook-tls"


class Reviewer(BaseHTTPRequestHandler):
    """Answers reviews at the path that the chart configures."""

    allowed = True

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        right = (
            self.path == f"/podgroup-defaults/{token(SECRET, 'podgroup-defaults')}"
            and review["request"]["object"]["kind"] == "PodGroup"
        )
        response = {"uid": review["request"]["uid"], "allowed": self.allowed and right}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def reviewer(render: Callable[..., Any], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with the chart's certificate for 127.0.0.1: its URL, and the file of its authority."""
    rendered = render({"webhook": {"url": "https://127.0.0.1:40123"}})
    data = rendered.one("Secret", "kbatch-webhook-certificates")["data"]
    (tmp_path / "ca.crt").write_text(pem(data, "ca.crt"))
    server = HTTPServer(("127.0.0.1", 0), Reviewer)
    server.socket = server_context(data, tmp_path).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/podgroup-defaults", tmp_path / "ca.crt"
    server.shutdown()
    thread.join()
    server.server_close()


def run_helm_test(default: Any, url: str, authority: Path, secret: str = SECRET) -> int:
    """Run the program of the `helm test` pod as it stands in the manifest, with other arguments."""
    pod = default.one("Pod", "kbatch-webhook-test")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    script, asked, trusted, known = container["args"]
    assert asked == f"https://{SERVICE}/podgroup-defaults"
    assert trusted == "/etc/kbatch/authority/ca.crt"
    assert known == "/etc/kbatch/path/secret"
    file = authority.parent / "secret"
    file.write_text(secret)
    command = [sys.executable, "-c", script, url, str(authority), str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_helm_test_passes_only_where_the_webhook_answers_and_allows(
    default: Any, reviewer: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url, authority = reviewer
    assert run_helm_test(default, url, authority) == 0
    assert run_helm_test(default, url.replace("podgroup-defaults", "nowhere"), authority) == 1
    assert run_helm_test(default, url, authority, "x" * 48) == 1
    monkeypatch.setattr(Reviewer, "allowed", False)
    assert run_helm_test(default, url, authority) == 1


def test_helm_test_sees_only_the_authority_of_the_secret(default: Any) -> None:
    pod = default.one("Pod", "kbatch-webhook-test")
    volume, path = pod["spec"]["volumes"]
    assert path["secret"]["secretName"] == "kbatch-webhook-path"
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_the_paths_are_made_of_a_secret_that_the_webhook_alone_is_given(render: Callable[..., Any]) -> None:
    secrets = {secret_of(render({"commonLabels": {"n": str(number)}})) for number in range(3)}
    assert len(secrets) == 3, "each installation has its own"
    assert {len(secret) for secret in secrets} == {48}
    given = render({"webhook": {"pathSecret": SECRET}})
    assert secret_of(given) == SECRET
    for name, entry in (*entries(given).items(), ("queue-deletion", deletion(given))):
        handler = {"queued-job-suspension": "job-suspension", "foreign-pod-reservations": "pod-reservations"}.get(
            name, name
        )
        assert entry["clientConfig"]["service"]["path"] == f"/{handler}/{token(SECRET, handler)}"
    assert "--path-secret=/etc/kbatch/path/secret" in given.container("webhook")["args"]
    mounting = {
        item["metadata"]["labels"]["app.kubernetes.io/component"]
        for item in given.of("Deployment")
        for volume in item["spec"]["template"]["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") == "kbatch-webhook-path"
    }
    assert mounting == {"webhook"}
    written = [item for item in given.objects if SECRET in json.dumps(item)]
    assert written == [], "it stands nowhere but in its Secret, and there in base64"


PATH_LOOKUP = 'lookup "v1" "Secret" .Release.Namespace (include "kbatch.pathSecretName" .)'


def test_upgrades_keep_the_paths(default: Any, tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "chart")
    (tmp_path / "chart" / "found.json").write_text(json.dumps(default.one("Secret", "kbatch-webhook-path")))
    template = tmp_path / "chart" / "templates" / "webhook" / "_webhook.tpl"
    text = template.read_text()
    assert text.count(PATH_LOOKUP) == 1
    template.write_text(text.replace(PATH_LOOKUP, '.Files.Get "found.json" | fromJson'))
    with helm_python.Chart.load(tmp_path / "chart") as chart:
        options = json.dumps({"name": "kbatch", "namespace": "kbatch-system", "is_install": False})
        files = json.loads(helm_python._native.call_string("helm_render", chart._raw(), "{}", options))
    expected = webhook(default)["clientConfig"]["service"]["path"]
    assert expected in "".join(files.values())


def test_a_certificate_of_callers_is_asked_for_where_its_authority_is_given(
    render: Callable[..., Any], default: Any
) -> None:
    assert "client-authority" not in json.dumps(default.objects)
    given = render({"webhook": {"clientCertificates": {"authority": "PEM\n", "names": ["kube-apiserver", "b"]}}})
    assert given.one("ConfigMap", "kbatch-webhook-client-authority")["data"] == {"ca.crt": "PEM\n"}
    arguments = given.container("webhook")["args"]
    assert "--client-authority=/etc/kbatch/client-authority/ca.crt" in arguments
    assert "--client-names=kube-apiserver,b" in arguments
    mounts = {mount["mountPath"] for mount in given.container("webhook")["volumeMounts"]}
    assert "/etc/kbatch/client-authority" in mounts
    # The pod of `helm test` has no such certificate.
    assert "kbatch-webhook-test" not in given.names("Pod")
    anybody = render({"webhook": {"clientCertificates": {"authority": "PEM\n"}}}).container("webhook")["args"]
    assert not [one for one in anybody if one.startswith("--client-names")]
