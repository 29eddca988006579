package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
)

const applied = "application/apply-patch+yaml"

func (server *Server) create(request *Request) (int, []byte, error) {
	data, err := request.decode()
	if err != nil {
		return 0, nil, err
	}
	object, err := server.made(request.table, request.namespace, data)
	if err != nil {
		return 0, nil, err
	}
	return 201, object.Raw, nil
}

// made adds an object as a client has written it.
func (server *Server) made(table *Table, namespace string, data Map) (*Object, error) {
	metadata := child(data, "metadata")
	name, _ := metadata["name"].(string)
	if prefix, _ := metadata["generateName"].(string); name == "" && prefix != "" {
		name = prefix + newUID()[:8]
		metadata["name"] = name
	}
	if table.Objects[keyOf(namespace, name)] != nil {
		return nil, refuse(http.StatusConflict, "AlreadyExists", "%s %q already exists", table.Kind.Plural, name)
	}
	data["apiVersion"], data["kind"] = table.Kind.APIVersion(), table.Kind.Name
	if table.Kind.Namespaced {
		metadata["namespace"] = namespace
		if server.table("", "v1", "namespaces").Objects[keyOf("", namespace)] == nil {
			return nil, refuse(http.StatusNotFound, "NotFound", "namespaces %q not found", namespace)
		}
	}
	if table.Kind.Custom {
		delete(data, "status")
	}
	completed(table.Kind, data)
	object := server.add(table, data)
	if table.Kind.Plural == "namespaces" {
		account := Map{"metadata": Map{"name": "default"}}
		if _, err := server.made(server.table("", "v1", "serviceaccounts"), name, account); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// copied is a deep copy, to be changed and then kept or thrown away.
func copied(data Map) Map {
	var made Map
	if err := json.Unmarshal(encoded(data), &made); err != nil {
		panic(err)
	}
	return made
}

// changed keeps the new data of an object, if it differs; what only a status or only the rest may change stays as it was.
func (server *Server) changed(request *Request, object *Object, next Map) (int, []byte, error) {
	old, metadata := object.Data, child(next, "metadata")
	if at := text(next, "metadata", "resourceVersion"); at != "" && at != text(old, "metadata", "resourceVersion") {
		return 0, nil, conflict(request.table, request.name, modified)
	}
	if uid := text(next, "metadata", "uid"); uid != "" && uid != text(old, "metadata", "uid") {
		return 0, nil, conflict(request.table, request.name, "Precondition failed: UID in precondition: "+uid)
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "namespace", "name", "generation"} {
		if value, ok := child(old, "metadata")[field]; ok {
			metadata[field] = value
		}
	}
	next["apiVersion"], next["kind"] = old["apiVersion"], old["kind"]
	switch {
	case request.subresource == "status":
		status := next["status"]
		next = copied(old)
		if status != nil {
			next["status"] = status
		}
	case request.table.Kind.Custom || request.table.Kind.Plural == "pods":
		delete(next, "status")
		if status, ok := old["status"]; ok {
			next["status"] = status
		}
	}
	if generation, ok := child(next, "metadata")["generation"].(float64); ok && !reflect.DeepEqual(old["spec"], next["spec"]) {
		child(next, "metadata")["generation"] = generation + 1
	}
	if string(encoded(next)) != string(object.Raw) {
		object.Data = next
		server.put(request.table, object)
	}
	return 200, object.Raw, nil
}

func (server *Server) replace(request *Request, object *Object) (int, []byte, error) {
	next, err := request.decode()
	if err != nil {
		return 0, nil, err
	}
	return server.changed(request, object, next)
}

func (server *Server) patch(request *Request, object *Object) (int, []byte, error) {
	next := copied(object.Data)
	switch kind, _, _ := strings.Cut(request.contentType, ";"); kind {
	case "application/merge-patch+json", "application/strategic-merge-patch+json":
		patch, err := request.decode()
		if err != nil {
			return 0, nil, err
		}
		merge(next, patch, strings.Contains(kind, "strategic"))
	case "application/json-patch+json":
		var operations []operation
		if err := json.Unmarshal(request.content, &operations); err != nil {
			return 0, nil, err
		}
		for _, one := range operations {
			if err := one.do(next); err != nil {
				return 0, nil, refuse(http.StatusUnprocessableEntity, "Invalid", "the server rejected our request: %v", err)
			}
		}
	default:
		return 0, nil, refuse(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "%s", request.contentType)
	}
	return server.changed(request, object, next)
}

// merge changes the data as RFC 7386 says; strategic: conditions are merged by their type.
func merge(data, patch Map, strategic bool) {
	for name, value := range patch {
		inner, isMap := value.(Map)
		list, isList := value.([]any)
		switch {
		case value == nil:
			delete(data, name)
		case isMap:
			merge(child(data, name), inner, strategic)
		case isList && strategic && name == "conditions":
			for _, one := range list {
				if condition, ok := one.(Map); ok {
					setCondition(data, condition)
				}
			}
		default:
			data[name] = value
		}
	}
}

type operation struct {
	Op, Path string
	Value    any
}

// do carries out what kbatch sends: test, add, replace and remove of fields.
func (one operation) do(data Map) error {
	path := strings.Split(strings.TrimPrefix(one.Path, "/"), "/")
	for index, name := range path {
		path[index] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	last := path[len(path)-1]
	for _, name := range path[:len(path)-1] {
		inner, ok := data[name].(Map)
		if !ok {
			return fmt.Errorf("%s: no such field", one.Path)
		}
		data = inner
	}
	value, there := data[last]
	switch one.Op {
	case "test":
		if !reflect.DeepEqual(value, one.Value) {
			return fmt.Errorf("testing value %s failed", one.Path)
		}
	case "add":
		data[last] = one.Value
	case "replace", "remove":
		if !there {
			return fmt.Errorf("%s: no such field", one.Path)
		}
		delete(data, last)
		if one.Op == "replace" {
			data[last] = one.Value
		}
	default:
		return fmt.Errorf("operation %s is not known here", one.Op)
	}
	return nil
}

type deletion struct {
	Preconditions struct{ UID string }
	DryRun        []string
}

func (server *Server) remove_(request *Request, object *Object) (int, []byte, error) {
	var options deletion
	if len(request.content) > 0 {
		if err := json.Unmarshal(request.content, &options); err != nil {
			return 0, nil, err
		}
	}
	if err := options.check(request, object); err != nil {
		return 0, nil, err
	}
	server.gone(request.table, object)
	return 200, object.Raw, nil
}

func (options *deletion) check(request *Request, object *Object) error {
	if uid := options.Preconditions.UID; uid != "" && uid != text(object.Data, "metadata", "uid") {
		return conflict(request.table, request.name, "Precondition failed: UID in precondition: "+uid)
	}
	return nil
}

// gone removes an object at once, as the kubelet and the collector of garbage would a moment later.
func (server *Server) gone(table *Table, object *Object) {
	server.remove(table, object)
	if table.Kind.Plural != "namespaces" {
		return
	}
	for _, other := range server.tables {
		for _, inner := range other.sorted(&Selection{Namespace: object.Marks.Fields["metadata.name"]}) {
			server.remove(other, other.Objects[keyOf(inner.Marks.Namespace, inner.Marks.Fields["metadata.name"])])
		}
	}
}

func (server *Server) evict(request *Request, object *Object) (int, []byte, error) {
	var eviction struct{ DeleteOptions deletion }
	if err := json.Unmarshal(request.content, &eviction); err != nil {
		return 0, nil, err
	}
	if err := eviction.DeleteOptions.check(request, object); err != nil {
		return 0, nil, err
	}
	if len(eviction.DeleteOptions.DryRun) == 0 {
		server.gone(request.table, object)
	}
	return 201, boundAnswer, nil
}
