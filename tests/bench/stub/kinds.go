package main

// Kind is a kind of object that is served, and where.
type Kind struct {
	Group, Version, Plural, Name string
	Namespaced                   bool
	// Custom resources carry apiVersion and kind in the items of a list, the built-in ones do not.
	Custom bool
}

// APIVersion is what stands in a manifest.
func (kind *Kind) APIVersion() string {
	if kind.Group == "" {
		return kind.Version
	}
	return kind.Group + "/" + kind.Version
}

const batchGroup = "scheduling.incubator.k8s.io"

// kinds are those that kbatch's scheduler and kube-scheduler list, watch or write.
var kinds = []*Kind{
	{"", "v1", "pods", "Pod", true, false},
	{"", "v1", "nodes", "Node", false, false},
	{"", "v1", "namespaces", "Namespace", false, false},
	{"", "v1", "serviceaccounts", "ServiceAccount", true, false},
	{"", "v1", "services", "Service", true, false},
	{"", "v1", "configmaps", "ConfigMap", true, false},
	{"", "v1", "resourcequotas", "ResourceQuota", true, false},
	{"", "v1", "replicationcontrollers", "ReplicationController", true, false},
	{"", "v1", "persistentvolumes", "PersistentVolume", false, false},
	{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true, false},
	{batchGroup, "v1alpha1", "podgroups", "PodGroup", true, true},
	{batchGroup, "v1alpha1", "queues", "Queue", false, true},
	{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false},
	{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, false},
	{"batch", "v1", "jobs", "Job", true, false},
	{"apps", "v1", "replicasets", "ReplicaSet", true, false},
	{"apps", "v1", "statefulsets", "StatefulSet", true, false},
	{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false, false},
	{"storage.k8s.io", "v1", "csinodes", "CSINode", false, false},
	{"storage.k8s.io", "v1", "csidrivers", "CSIDriver", false, false},
	{"storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true, false},
	{"storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false, false},
	{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", true, false},
	{"resource.k8s.io", "v1", "resourceslices", "ResourceSlice", false, false},
	{"resource.k8s.io", "v1", "deviceclasses", "DeviceClass", false, false},
	{"coordination.k8s.io", "v1", "leases", "Lease", true, false},
	{"events.k8s.io", "v1", "events", "Event", true, false},
}
