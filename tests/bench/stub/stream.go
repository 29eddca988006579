package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"time"
)

// Load is a stream of gangs that the stub makes by itself, so that no client takes processor time for it.
type Load struct {
	Row           string  // part of all names
	Namespace     string  // of groups and pods
	SchedulerName string  // whose pods they are
	Gang          int     // pods of a gang; 0: plain pods without groups
	Pods          int     // in all
	Rate          float64 // pods a second; 0: so that Waiting pods always wait
	Waiting       int
	StartSeconds  float64 // from a bind until the kubelet says Running
	LifeSeconds   float64 // from then until the pod is deleted, and its group with its last pod
}

// Stream is what became of a load. Guarded by the store's lock.
type Stream struct {
	load        Load
	started     time.Time
	made        int
	waiting     int
	boundAgain  int
	overfull    int
	createdAt   map[string]time.Time
	waits       []float64
	boundAt     []float64
	used        map[string]int // pods by node
	left        map[string]int // pods that a group still has
	most        int
	endOfMaking float64
}

const (
	tick = 5 * time.Millisecond
	// nodePods is how many pods of a load a node has room for.
	nodePods = 32
)

// Figures are what the observer asks for.
type Figures struct {
	Made, Bound, Waiting, BoundAgain, Overfull, MostWaiting int
	// Seconds after the beginning of the load.
	FirstBind, LastBind, LastMade float64
	// From making a pod to its bind, in seconds.
	WaitP50, WaitP99 float64
	// Binds in each whole second.
	BySecond []int
}

func (server *Server) control(r *http.Request, what string) (int, []byte, error) {
	server.Lock()
	defer server.Unlock()
	switch what {
	case "nodes":
		var asked struct{ Count int }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return 0, nil, err
		}
		for index := range asked.Count {
			if err := server.node(fmt.Sprintf("node-%d", index)); err != nil {
				return 0, nil, err
			}
		}
		return 201, boundAnswer, nil
	case "load":
		var load Load
		if err := json.NewDecoder(r.Body).Decode(&load); err != nil {
			return 0, nil, err
		}
		server.stream = Stream{
			load: load, started: time.Now(), createdAt: map[string]time.Time{}, used: map[string]int{},
			left: map[string]int{},
		}
		go server.run()
		return 201, boundAnswer, nil
	case "figures":
		body, err := json.Marshal(server.stream.figures())
		return 200, body, err
	}
	return 0, nil, refuse(404, "NotFound", "the stub knows nodes, load and figures")
}

func (stream *Stream) figures() Figures {
	found := Figures{
		Made: stream.made, Bound: len(stream.boundAt), Waiting: stream.waiting, BoundAgain: stream.boundAgain,
		Overfull: stream.overfull, MostWaiting: stream.most, LastMade: stream.endOfMaking,
	}
	if len(stream.boundAt) == 0 {
		return found
	}
	found.FirstBind, found.LastBind = stream.boundAt[0], stream.boundAt[len(stream.boundAt)-1]
	for _, at := range stream.boundAt {
		for int(at) >= len(found.BySecond) {
			found.BySecond = append(found.BySecond, 0)
		}
		found.BySecond[int(at)]++
	}
	waits := append([]float64(nil), stream.waits...)
	sort.Float64s(waits)
	found.WaitP50, found.WaitP99 = waits[len(waits)/2], waits[(len(waits)*99)/100]
	return found
}

// run makes the load's pods in time. A gang comes at once, its group first.
func (server *Server) run() {
	gang := max(1, server.stream.load.Gang)
	for range time.Tick(tick) {
		server.Lock()
		stream := &server.stream
		due := stream.load.Pods
		if stream.load.Rate > 0 {
			due = min(due, int(time.Since(stream.started).Seconds()*stream.load.Rate))
		} else {
			due = min(due, stream.made+max(0, stream.load.Waiting-stream.waiting))
		}
		for stream.made+gang <= due {
			server.gang(gang)
		}
		done := stream.made+gang > stream.load.Pods
		server.Unlock()
		if done {
			return
		}
	}
}

func (server *Server) gang(size int) {
	stream := &server.stream
	load := stream.load
	group := fmt.Sprintf("%s-g%d", load.Row, stream.made/size)
	annotations := Map{}
	if load.Gang > 0 {
		annotations["scheduling.k8s.io/group-name"] = group
		data := Map{"metadata": Map{"name": group}, "spec": Map{"minMember": float64(size)}}
		if _, err := server.made(server.table(batchGroup, "v1alpha1", "podgroups"), load.Namespace, data); err != nil {
			panic(err)
		}
		stream.left[group] = size
	}
	for index := range size {
		name := fmt.Sprintf("%s-%d", group, index)
		pod := Map{
			"metadata": Map{"name": name, "labels": Map{"bench.kbatch.dev/row": load.Row}, "annotations": annotations},
			"spec": Map{
				"schedulerName": load.SchedulerName, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0.0,
				"containers": []any{Map{
					"name": "main", "image": "busybox",
					"resources": Map{"requests": Map{"cpu": "1", "memory": "1Gi"}},
				}},
			},
		}
		if _, err := server.made(server.table("", "v1", "pods"), load.Namespace, pod); err != nil {
			panic(err)
		}
		stream.createdAt[name] = time.Now()
		stream.made++
		stream.waiting++
	}
	stream.most = max(stream.most, stream.waiting)
	stream.endOfMaking = time.Since(stream.started).Seconds()
}

// bound notes the bind of a pod, and has it run and end as a kubelet would. Locked.
func (stream *Stream) bound(server *Server, object *Object, node string) {
	name := object.Marks.Fields["metadata.name"]
	made, ours := stream.createdAt[name]
	if !ours {
		later(0, func() { server.started(object) })
		return
	}
	delete(stream.createdAt, name)
	stream.waiting--
	stream.boundAt = append(stream.boundAt, time.Since(stream.started).Seconds())
	stream.waits = append(stream.waits, time.Since(made).Seconds())
	stream.used[node]++
	if stream.used[node] > nodePods {
		stream.overfull++
	}
	load, group := stream.load, text(object.Data, "metadata", "annotations", "scheduling.k8s.io/group-name")
	later(load.StartSeconds, func() {
		if server.started(object) && load.LifeSeconds > 0 {
			later(load.LifeSeconds, func() { server.ended(object, node, group) })
		}
	})
}

// started has a pod run, if it is still there.
func (server *Server) started(object *Object) bool {
	server.Lock()
	defer server.Unlock()
	pods := server.table("", "v1", "pods")
	if pods.Objects[keyOf(object.Marks.Namespace, object.Marks.Fields["metadata.name"])] != object {
		return false
	}
	running(object.Data)
	server.put(pods, object)
	return true
}

// ended deletes a pod of the load, and the group of which it was the last.
func (server *Server) ended(object *Object, node, group string) {
	server.Lock()
	defer server.Unlock()
	stream, pods := &server.stream, server.table("", "v1", "pods")
	if pods.Objects[keyOf(object.Marks.Namespace, object.Marks.Fields["metadata.name"])] != object {
		return
	}
	server.remove(pods, object)
	stream.used[node]--
	stream.left[group]--
	groups := server.table(batchGroup, "v1alpha1", "podgroups")
	if object := groups.Objects[keyOf(stream.load.Namespace, group)]; object != nil && stream.left[group] == 0 {
		delete(stream.left, group)
		server.remove(groups, object)
	}
}

func later(seconds float64, do func()) {
	time.AfterFunc(time.Duration(seconds*float64(time.Second)), do)
}

// node adds a node as a kubelet would register it. Locked.
func (server *Server) node(name string) error {
	now := stamp(time.Now())
	amounts := Map{"cpu": fmt.Sprint(nodePods), "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"}
	reasons := [][3]string{
		{"Ready", "True", "KubeletReady"}, {"MemoryPressure", "False", "KubeletHasSufficientMemory"},
		{"DiskPressure", "False", "KubeletHasNoDiskPressure"}, {"PIDPressure", "False", "KubeletHasSufficientPID"},
		{"NetworkUnavailable", "False", "RouteCreated"},
	}
	var conditions []any
	for _, one := range reasons {
		conditions = append(conditions, Map{
			"type": one[0], "status": one[1], "reason": one[2], "lastHeartbeatTime": now, "lastTransitionTime": now,
		})
	}
	_, err := server.made(server.table("", "v1", "nodes"), "", Map{
		"metadata": Map{"name": name, "labels": Map{
			"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok",
		}},
		"spec": Map{},
		"status": Map{
			"capacity": amounts, "allocatable": amounts, "phase": "Running", "conditions": conditions,
			"addresses": []any{Map{"type": "Hostname", "address": name}},
		},
	})
	return err
}
