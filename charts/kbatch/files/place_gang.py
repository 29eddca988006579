"""Place a gang as a user would; status 0 if it ran.

`place_gang.py NAME NAMESPACE QUEUE SCHEDULER IMAGE PULL_SECRETS SECONDS`, with the rights of the pod that it runs in: a
PodGroup of two pods, both of them bound within the time, or the group's own words why not. PULL_SECRETS are names with
commas, SECONDS how long it may take.
"""

import json
import os
import pathlib
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request

name, namespace, queue, scheduler, image, secrets, seconds = sys.argv[1:]
account = pathlib.Path(os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
context = ssl.create_default_context(cafile=str(account / "ca.crt"))
groups = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{namespace}/podgroups"
pods = f"/api/v1/namespaces/{namespace}/pods"
members = [f"{name}-0", f"{name}-1"]


def call(method, path, body=None):
    """Ask the API server; what it answers, None where there is no such object."""
    request = urllib.request.Request(  # noqa: S310 - an https URL, as above
        server + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer " + (account / "token").read_text(encoding="utf-8").strip(),
            "Content-Type": "application/json",
        },
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404 and method != "POST":
            return None
        sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}")


def clear():
    """Delete what the test made, of this run or of one that was broken off, and wait until it is gone."""
    made = [f"{groups}/{name}", *(f"{pods}/{member}" for member in members)]
    for path in made:
        call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    while time.monotonic() < end and any(call("GET", path) for path in made):
        time.sleep(0.5)


def pod(member):
    """One pod of the gang, which meets the Pod Security Standard restricted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": member, "annotations": {"scheduling.k8s.io/group-name": name}},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": secret} for secret in secrets.split(",") if secret],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "member",
                    "image": image,
                    "command": ["python", "-c", "import time; time.sleep(300)"],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


# A container's first process is not ended by SIGTERM unless it asks for that.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("the test was ended before both pods ran"))
end = time.monotonic() + float(seconds)
clear()
group = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
try:
    call("POST", groups, group | {"spec": {"minMember": 2, "queue": queue}})
    for member in members:
        call("POST", pods, pod(member))
    while True:
        bound = [str((call("GET", f"{pods}/{member}") or {}).get("spec", {}).get("nodeName", "")) for member in members]
        status = (call("GET", f"{groups}/{name}") or {}).get("status", {})
        if all(bound) and status.get("phase") == "Running":
            print(f"both pods were bound ({', '.join(bound)}) and PodGroup {name} is Running")
            break
        if time.monotonic() > end:
            print(json.dumps(status, indent=2))
            sys.exit(f"not whole within {seconds} s: {sum(map(bool, bound))} of 2 pods bound, {status.get('phase')}")
        time.sleep(0.5)
finally:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + 20  # Kubernetes kills a pod 30 s after it was asked to end
    clear()
