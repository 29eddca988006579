package main

import (
	"fmt"
	"net/http"
	"reflect"
	"sort"
)

// apply is server-side apply: of the status by leaf, with owners; of the rest as a merge that makes what is absent.
func (server *Server) apply(request *Request, object *Object) (int, []byte, error) {
	wanted, err := request.decode()
	if err != nil {
		return 0, nil, err
	}
	if object == nil {
		if request.subresource != "" {
			return 0, nil, notFound(request.table, request.name)
		}
		return server.create(request)
	}
	next := copied(object.Data)
	if request.subresource != "status" {
		merge(next, wanted, false)
		return server.changed(request, object, next)
	}
	if at := text(wanted, "metadata", "resourceVersion"); at != "" && at != text(object.Data, "metadata", "resourceVersion") {
		return 0, nil, conflict(request.table, request.name, modified)
	}
	manager, force := request.query.Get("fieldManager"), truth(request.query.Get("force"))
	old, said := leaves(child(next, "status")), leaves(child(wanted, "status"))
	owners := object.Owners
	if owners == nil {
		owners = map[string]map[string]bool{}
	}
	if !force {
		for path, value := range said {
			if existing, there := old[path]; there && !reflect.DeepEqual(existing, value) {
				for other := range owners[path] {
					if other != manager {
						return 0, nil, refuse(http.StatusConflict, "Conflict",
							"Apply failed with 1 conflict: conflict with %q using %s: .status%s", other,
							request.table.Kind.APIVersion(), path)
					}
				}
			}
		}
	}
	owned := map[string]map[string]bool{}
	for path, by := range owners {
		owned[path] = map[string]bool{}
		for other := range by {
			if other != manager {
				owned[path][other] = true
			}
		}
		if _, stays := said[path]; !stays && len(owned[path]) == 0 {
			delete(old, path) // whoever leaves out what nobody else has takes it back
			delete(owned, path)
		}
	}
	for path, value := range said {
		if existing, there := old[path]; owned[path] == nil || (there && !reflect.DeepEqual(existing, value)) {
			owned[path] = map[string]bool{}
		}
		old[path] = value
		owned[path][manager] = true
	}
	next["status"] = built(old)
	object.Owners = owned
	return server.changed(request, object, next)
}

// leaves are the values of a status by path; conditions by their type, other lists whole.
func leaves(status Map) map[string]any {
	found := map[string]any{}
	for name, value := range status {
		conditions, isList := value.([]any)
		if name != "conditions" || !isList {
			found["."+name] = value
			continue
		}
		for _, one := range conditions {
			if condition, ok := one.(Map); ok {
				for field, inner := range condition {
					found[fmt.Sprintf("!%v.%s", condition["type"], field)] = inner
				}
			}
		}
	}
	return found
}

// built is the status of these leaves.
func built(leaves map[string]any) Map {
	status, conditions := Map{}, map[string]Map{}
	for path, value := range leaves {
		if path[0] == '.' {
			status[path[1:]] = value
			continue
		}
		for index := range path {
			if path[index] == '.' {
				kind := path[1:index]
				if conditions[kind] == nil {
					conditions[kind] = Map{}
				}
				conditions[kind][path[index+1:]] = value
				break
			}
		}
	}
	names := make([]string, 0, len(conditions))
	for kind := range conditions {
		names = append(names, kind)
	}
	sort.Strings(names)
	list := make([]any, 0, len(names))
	for _, kind := range names {
		list = append(list, conditions[kind])
	}
	if len(list) > 0 {
		status["conditions"] = list
	}
	return status
}
