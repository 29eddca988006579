"""Ask a kbatch webhook to review a PodGroup: `review_podgroup.py URL CA_FILE SECRET_FILE`; status 0 if allowed."""

import hashlib
import json
import pathlib
import ssl
import sys
import urllib.request

url, authority, secret_file = sys.argv[1:]
secret = pathlib.Path(secret_file).read_text(encoding="utf-8").strip()
handler = url.rpartition("/")[2]
url += "/" + hashlib.sha256(f"{secret}/{handler}".encode()).hexdigest()
group = {
    "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "helm-test", "namespace": "default"},
    "spec": {"minMember": 1},
}
review = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "helm-test",
        "kind": {"group": "scheduling.incubator.k8s.io", "version": "v1alpha1", "kind": "PodGroup"},
        "resource": {"group": "scheduling.incubator.k8s.io", "version": "v1alpha1", "resource": "podgroups"},
        "name": "helm-test",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "helm-test"},
        "object": group,
        "oldObject": None,
        "dryRun": True,
    },
}
request = urllib.request.Request(  # noqa: S310 - the chart gives an https URL
    url, data=json.dumps(review).encode(), headers={"Content-Type": "application/json"}, method="POST"
)
context = ssl.create_default_context(cafile=authority)
with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
    response = json.load(answer)["response"]
print(json.dumps(response, indent=2))
sys.exit(0 if response["allowed"] is True and response["uid"] == "helm-test" else 1)
