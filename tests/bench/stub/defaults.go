package main

import (
	"encoding/json"
	"sync"
	"time"
)

// What a real server adds to a pod that is created: taken from the answer of one, so that a pod is as long here.
const podSpec = `{"volumes":[{"name":"kube-api-access-mcgw7","projected":{"sources":[{"serviceAccountToken":
{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt",
"path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1",
"fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"restartPolicy":"Always",
"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default",
"serviceAccount":"default","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":
"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":
"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}`

const podContainer = `{"resources":{},"volumeMounts":[{"name":"kube-api-access-mcgw7","readOnly":true,
"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log",
"terminationMessagePolicy":"File","imagePullPolicy":"Always"}`

const podFields = `{"manager":"kubectl","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":
{"f:metadata":{"f:annotations":{".":{},"f:scheduling.k8s.io/group-name":{}},"f:labels":{".":{},
"f:bench.kbatch.dev/row":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:image":{},
"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},
"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},
"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}`

const kubeletFields = `{"manager":"kwok-controller","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},
"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},
"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},
"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:phase":{},"f:startTime":{}}},
"subresource":"status"}`

const groupSpec = `{"badNodeLimit":2,"disruption":"Surplus","minRuntimeSeconds":0,"queue":"default",
"scheduleTimeoutSeconds":300}`

const groupFields = `{"apiVersion":"scheduling.incubator.k8s.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":
{".":{},"f:badNodeLimit":{},"f:disruption":{},"f:minMember":{},"f:minRuntimeSeconds":{},"f:queue":{},
"f:scheduleTimeoutSeconds":{}}},"manager":"kubectl","operation":"Update"}`

var parsedTexts sync.Map

// parsed is one of the texts above as data, which nobody may change.
func parsed(text string) Map {
	if known, there := parsedTexts.Load(text); there {
		return known.(Map)
	}
	var data Map
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		panic(err)
	}
	parsedTexts.Store(text, data)
	return data
}

// lacking adds those fields that the data does not have.
func lacking(data Map, defaults string) {
	for name, value := range parsed(defaults) {
		if _, there := data[name]; !there {
			data[name] = value
		}
	}
}

func fieldsAt(now string, text string) Map {
	entry := Map{"time": now}
	lacking(entry, text)
	return entry
}

// completed adds what a server adds to an object that is created.
func completed(kind *Kind, data Map) {
	metadata, now := child(data, "metadata"), stamp(time.Now())
	delete(metadata, "resourceVersion")
	switch {
	case kind.Plural == "pods":
		spec := child(data, "spec")
		lacking(spec, podSpec)
		containers, _ := spec["containers"].([]any)
		for _, one := range containers {
			if container, ok := one.(Map); ok {
				lacking(container, podContainer)
			}
		}
		metadata["generation"] = 1.0
		metadata["managedFields"] = []any{fieldsAt(now, podFields)}
		data["status"] = Map{"phase": "Pending", "qosClass": "Burstable"}
	case kind.Plural == "podgroups":
		lacking(child(data, "spec"), groupSpec)
		metadata["generation"] = 1.0
		metadata["managedFields"] = []any{fieldsAt(now, groupFields)}
		data["status"] = Map{"phase": "Pending"}
	case kind.Custom:
		metadata["generation"] = 1.0
	case kind.Plural == "namespaces":
		data["status"] = Map{"phase": "Active"}
		child(metadata, "labels")["kubernetes.io/metadata.name"] = metadata["name"]
	}
}

// running makes a pod look as its kubelet says once its containers have started.
func running(data Map) {
	now := stamp(time.Now())
	metadata, status := child(data, "metadata"), child(data, "status")
	fields, _ := metadata["managedFields"].([]any)
	metadata["managedFields"] = append(fields, fieldsAt(now, kubeletFields))
	status["phase"], status["startTime"] = "Running", now
	for _, kind := range []string{"Initialized", "ContainersReady", "Ready"} {
		setCondition(status, Map{"type": kind, "status": "True", "lastProbeTime": nil, "lastTransitionTime": now})
	}
	var statuses []any
	containers, _ := child(data, "spec")["containers"].([]any)
	for _, one := range containers {
		if container, ok := one.(Map); ok {
			statuses = append(statuses, Map{
				"name": container["name"], "state": Map{"running": Map{"startedAt": now}}, "lastState": Map{},
				"ready": true, "restartCount": 0, "image": container["image"], "imageID": "",
			})
		}
	}
	status["containerStatuses"] = statuses
}
