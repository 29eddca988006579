package main

import (
	"net/url"
	"strings"
)

// Selection is what a list or a watch asks for: a namespace, labels, fields. All that it knows is = and !=.
type Selection struct {
	Namespace      string
	labels, fields []requirement
}

type requirement struct {
	name, value string
	equal       bool
}

func selectionOf(namespace string, query url.Values) *Selection {
	return &Selection{namespace, requirements(query.Get("labelSelector")), requirements(query.Get("fieldSelector"))}
}

func requirements(selector string) []requirement {
	var found []requirement
	for _, part := range strings.Split(selector, ",") {
		if name, value, ok := strings.Cut(part, "!="); ok {
			found = append(found, requirement{name, value, false})
		} else if name, value, ok := strings.Cut(part, "="); ok {
			found = append(found, requirement{name, strings.TrimPrefix(value, "="), true})
		}
	}
	return found
}

func (chosen *Selection) admits(marks *Marks) bool {
	if chosen.Namespace != "" && chosen.Namespace != marks.Namespace {
		return false
	}
	return all(chosen.labels, marks.Labels) && all(chosen.fields, marks.Fields)
}

func all(requirements []requirement, values map[string]string) bool {
	for _, one := range requirements {
		if (values[one.name] == one.value) != one.equal {
			return false
		}
	}
	return true
}
