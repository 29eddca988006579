package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Server answers as an API server does, as far as two schedulers ask.
type Server struct {
	*Store
	token  string
	stream Stream
}

// Refusal is an answer that is not a success.
type Refusal struct {
	Code            int
	Reason, Message string
}

func (refusal *Refusal) Error() string { return refusal.Message }

func refuse(code int, reason, message string, about ...any) *Refusal {
	return &Refusal{code, reason, fmt.Sprintf(message, about...)}
}

func notFound(table *Table, name string) *Refusal {
	return refuse(http.StatusNotFound, "NotFound", "%s %q not found", table.Kind.Plural, name)
}

func conflict(table *Table, name, why string) *Refusal {
	return refuse(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on %s %q: %s", table.Kind.Plural, name, why)
}

const modified = "the object has been modified; please apply your changes to the latest version and try again"

func statusOf(code int, reason, message string) Map {
	status := "Failure"
	if code < 300 {
		status = "Success"
	}
	made := Map{"kind": "Status", "apiVersion": "v1", "metadata": Map{}, "status": status, "code": code}
	if reason != "" {
		made["reason"], made["message"] = reason, message
	}
	return made
}

func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func (server *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	wanted := sha256.Sum256([]byte("Bearer " + server.token))
	if subtle.ConstantTimeCompare(given[:], wanted[:]) != 1 {
		answer(w, 401, encoded(statusOf(401, "Unauthorized", "Unauthorized")))
		return
	}
	code, body, err := server.route(w, r)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		answer(w, refusal.Code, encoded(statusOf(refusal.Code, refusal.Reason, refusal.Message)))
	case err != nil:
		answer(w, 400, encoded(statusOf(400, "BadRequest", err.Error())))
	case code != 0: // else it was a watch
		answer(w, code, body)
	}
}

func (server *Server) route(w http.ResponseWriter, r *http.Request) (int, []byte, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch parts[0] {
	case "healthz", "livez", "readyz":
		return 200, []byte("ok"), nil
	case "version":
		return 200, []byte(`{"major":"1","minor":"36","gitVersion":"v1.36.1"}`), nil
	case "stub":
		return server.control(r, strings.Join(parts[1:], "/"))
	}
	if len(parts) < 4 && r.Method == http.MethodGet && strings.HasPrefix(parts[0], "api") {
		if found := discovery(parts); found != nil {
			return 200, encoded(found), nil
		}
	}
	var group, version string
	if parts[0] == "api" && len(parts) > 2 {
		version, parts = parts[1], parts[2:]
	} else if parts[0] == "apis" && len(parts) > 3 {
		group, version, parts = parts[1], parts[2], parts[3:]
	} else {
		return 0, nil, refuse(404, "NotFound", "the server could not find the requested resource")
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	table := server.table(group, version, parts[0])
	if table == nil {
		return 0, nil, refuse(404, "NotFound", "the server could not find the requested resource")
	}
	query := r.URL.Query()
	if r.Method == http.MethodGet && len(parts) == 1 {
		chosen := selectionOf(namespace, query)
		if truth(query.Get("watch")) {
			server.watch(w, r, table, chosen, query)
			return 0, nil, nil
		}
		body, err := server.list(table, chosen, query)
		return 200, body, err
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, nil, err
	}
	request := &Request{table, namespace, "", "", query, r.Header.Get("Content-Type"), content}
	if len(parts) > 1 {
		request.name = parts[1]
	}
	if len(parts) > 2 {
		request.subresource = parts[2]
	}
	server.Lock()
	defer server.Unlock()
	return server.write(r.Method, request)
}

func truth(text string) bool { return text == "true" || text == "1" }

// Request is one request for one object.
type Request struct {
	table                        *Table
	namespace, name, subresource string
	query                        url.Values
	contentType                  string
	content                      []byte
}

func (request *Request) decode() (Map, error) {
	var data Map
	if len(request.content) == 0 {
		return Map{}, nil
	}
	return data, json.Unmarshal(request.content, &data)
}

func (server *Server) write(method string, request *Request) (int, []byte, error) {
	if method == http.MethodPost && request.subresource == "binding" {
		return server.bind(request)
	}
	if method == http.MethodPost && request.name == "" {
		return server.create(request)
	}
	object := request.table.Objects[keyOf(request.namespace, request.name)]
	if method == http.MethodPatch && strings.HasPrefix(request.contentType, applied) {
		return server.apply(request, object)
	}
	if object == nil {
		return 0, nil, notFound(request.table, request.name)
	}
	switch method {
	case http.MethodGet:
		return 200, object.Raw, nil
	case http.MethodPatch:
		return server.patch(request, object)
	case http.MethodPut:
		return server.replace(request, object)
	case http.MethodDelete:
		return server.remove_(request, object)
	case http.MethodPost:
		if request.subresource == "eviction" {
			return server.evict(request, object)
		}
	}
	return 0, nil, refuse(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
}

func (server *Server) list(table *Table, chosen *Selection, query url.Values) ([]byte, error) {
	server.Lock()
	defer server.Unlock()
	limit, _ := strconv.Atoi(query.Get("limit"))
	version, token := server.version, query.Get("continue")
	var objects []*Object
	if token != "" {
		at, _, _ := strings.Cut(token, "-")
		version, _ = strconv.ParseUint(at, 10, 64)
		var there bool
		if objects, there = table.pending[token]; !there {
			return nil, refuse(410, "Expired", "The provided continue parameter is too old")
		}
		delete(table.pending, token)
	} else {
		objects = table.sorted(chosen)
	}
	metadata := Map{"resourceVersion": strconv.FormatUint(version, 10)}
	if table.Kind.Custom {
		metadata["continue"] = ""
	}
	if limit > 0 && len(objects) > limit {
		token = fmt.Sprintf("%d-%s", version, newUID())
		table.pending[token] = objects[limit:]
		metadata["continue"], metadata["remainingItemCount"] = token, len(objects)-limit
		objects = objects[:limit]
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[`,
		table.Kind.Name, table.Kind.APIVersion(), encoded(metadata))
	for index, object := range objects {
		if index > 0 {
			out.WriteByte(',')
		}
		out.Write(table.item(object))
	}
	out.WriteString("]}")
	return out.Bytes(), nil
}

func (server *Server) bind(request *Request) (int, []byte, error) {
	var binding struct {
		Metadata struct{ UID, ResourceVersion string }
		Target   struct{ Name string }
	}
	if err := json.Unmarshal(request.content, &binding); err != nil {
		return 0, nil, err
	}
	object := request.table.Objects[keyOf(request.namespace, request.name)]
	if object == nil {
		return 0, nil, notFound(request.table, request.name)
	}
	metadata, spec := child(object.Data, "metadata"), child(object.Data, "spec")
	if uid := binding.Metadata.UID; uid != "" && uid != metadata["uid"] {
		return 0, nil, conflict(request.table, request.name, "Precondition failed: UID in precondition: "+uid)
	}
	if at := binding.Metadata.ResourceVersion; at != "" && at != metadata["resourceVersion"] {
		return 0, nil, conflict(request.table, request.name, modified)
	}
	if node, _ := spec["nodeName"].(string); node != "" {
		server.stream.boundAgain++
		return 0, nil, conflict(request.table, request.name, fmt.Sprintf("pod %s is already assigned to node %q", request.name, node))
	}
	spec["nodeName"] = binding.Target.Name
	setCondition(child(object.Data, "status"), Map{
		"type": "PodScheduled", "status": "True", "lastProbeTime": nil, "lastTransitionTime": stamp(time.Now()),
	})
	delete(child(object.Data, "status"), "nominatedNodeName")
	server.put(request.table, object)
	server.stream.bound(server, object, binding.Target.Name)
	return 201, boundAnswer, nil
}

var boundAnswer = encoded(statusOf(201, "", ""))

func setCondition(status Map, condition Map) {
	conditions, _ := status["conditions"].([]any)
	for index, one := range conditions {
		if existing, ok := one.(Map); ok && existing["type"] == condition["type"] {
			conditions[index] = condition
			return
		}
	}
	status["conditions"] = append(conditions, condition)
}
