package main

// discovery answers what groups, or what kinds of a group, there are.
func discovery(parts []string) Map {
	resources, groups, seen := []any{}, []any{}, map[string]bool{}
	for _, kind := range kinds {
		entry := Map{"groupVersion": kind.APIVersion(), "version": kind.Version}
		if kind.Group != "" && !seen[kind.Group] {
			seen[kind.Group] = true
			groups = append(groups, Map{"name": kind.Group, "versions": []any{entry}, "preferredVersion": entry})
		}
		if asked := parts[1:]; len(asked) > 0 && kind.APIVersion() == joined(asked) {
			resources = append(resources, Map{
				"name": kind.Plural, "singularName": "", "namespaced": kind.Namespaced, "kind": kind.Name,
				"verbs": []any{"create", "delete", "get", "list", "patch", "update", "watch"},
			})
		}
	}
	switch {
	case len(parts) == 1 && parts[0] == "apis":
		return Map{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	case len(parts) == 1:
		return Map{"kind": "APIVersions", "versions": []any{"v1"}}
	case len(resources) > 0:
		return Map{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": joined(parts[1:]), "resources": resources}
	}
	return nil
}

func joined(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}
