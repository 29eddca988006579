package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"
)

// Map is an object as JSON has it.
type Map = map[string]any

// firstVersion is where resource versions begin; whoever asks for an older one gets 410.
const firstVersion = 1000

// keptEvents is how many changes of a kind a watch may go back.
const keptEvents = 200_000

// Event is one change of one object, encoded once for all who watch.
type Event struct {
	Type    string
	Version uint64
	Raw     []byte
	Marks   *Marks
	// Before are the marks that the object had; nil where it is new. By them a selector's watch sees an object leave.
	Before *Marks
}

// Marks are what selectors ask about.
type Marks struct {
	Namespace string
	Labels    map[string]string
	Fields    map[string]string
}

// Object is one object: as data, to be changed under the store's lock only, and as bytes, never changed.
type Object struct {
	Data    Map
	Raw     []byte
	Version uint64
	Marks   *Marks
	// Owners has by leaf of the status who applied it (see apply.go).
	Owners map[string]map[string]bool
}

// Table is all objects of a kind, and what happened to them.
type Table struct {
	Kind    *Kind
	Objects map[string]*Object
	// events[i] is the change number dropped+i of this kind.
	events  []*Event
	dropped int
	// oldest is the version before the first event that is kept.
	oldest  uint64
	wakes   map[chan struct{}]struct{}
	pending map[string][]*Object
}

// Store is all that is kept.
type Store struct {
	sync.Mutex
	version uint64
	tables  map[string]*Table
}

func newStore() *Store {
	store := &Store{version: firstVersion, tables: map[string]*Table{}}
	for _, kind := range kinds {
		store.tables[kind.Group+"/"+kind.Version+"/"+kind.Plural] = &Table{
			Kind: kind, Objects: map[string]*Object{}, oldest: firstVersion,
			wakes: map[chan struct{}]struct{}{}, pending: map[string][]*Object{},
		}
	}
	return store
}

func (store *Store) table(group, version, plural string) *Table {
	return store.tables[group+"/"+version+"/"+plural]
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

func newUID() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

func child(data Map, name string) Map {
	if inner, ok := data[name].(Map); ok {
		return inner
	}
	inner := Map{}
	data[name] = inner
	return inner
}

func text(data Map, path ...string) string {
	for _, name := range path[:len(path)-1] {
		inner, ok := data[name].(Map)
		if !ok {
			return ""
		}
		data = inner
	}
	found, _ := data[path[len(path)-1]].(string)
	return found
}

func encoded(data Map) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil {
		panic(err)
	}
	return bytes.TrimRight(buffer.Bytes(), "\n")
}

func marksOf(kind *Kind, data Map) *Marks {
	marks := &Marks{Namespace: text(data, "metadata", "namespace"), Labels: map[string]string{}}
	labels, _ := child(data, "metadata")["labels"].(Map)
	for name, value := range labels {
		marks.Labels[name], _ = value.(string)
	}
	marks.Fields = map[string]string{
		"metadata.name": text(data, "metadata", "name"), "metadata.namespace": marks.Namespace,
	}
	if kind.Plural == "pods" {
		marks.Fields["spec.nodeName"] = text(data, "spec", "nodeName")
		marks.Fields["spec.schedulerName"] = text(data, "spec", "schedulerName")
		marks.Fields["status.phase"] = text(data, "status", "phase")
	}
	return marks
}

// put gives an object the next version and tells everybody; the data must not be used by anybody else. Locked.
func (store *Store) put(table *Table, object *Object) {
	store.version++
	object.Version = store.version
	child(object.Data, "metadata")["resourceVersion"] = strconv.FormatUint(store.version, 10)
	before := object.Marks
	object.Raw, object.Marks = encoded(object.Data), marksOf(table.Kind, object.Data)
	what := "MODIFIED"
	if before == nil {
		what = "ADDED"
	}
	table.tell(&Event{what, store.version, object.Raw, object.Marks, before})
}

// add makes a new object. Locked.
func (store *Store) add(table *Table, data Map) *Object {
	metadata := child(data, "metadata")
	metadata["uid"], metadata["creationTimestamp"] = newUID(), stamp(time.Now())
	object := &Object{Data: data}
	store.put(table, object)
	table.Objects[keyOf(object.Marks.Namespace, object.Marks.Fields["metadata.name"])] = object
	return object
}

// remove takes an object away; the event has it as it was last, with a version of its own. Locked.
func (store *Store) remove(table *Table, object *Object) {
	delete(table.Objects, keyOf(object.Marks.Namespace, object.Marks.Fields["metadata.name"]))
	store.version++
	child(object.Data, "metadata")["resourceVersion"] = strconv.FormatUint(store.version, 10)
	table.tell(&Event{"DELETED", store.version, encoded(object.Data), object.Marks, object.Marks})
}

func (table *Table) tell(event *Event) {
	table.events = append(table.events, event)
	if len(table.events) > 2*keptEvents {
		table.oldest = table.events[keptEvents-1].Version
		table.events = append([]*Event(nil), table.events[keptEvents:]...)
		table.dropped += keptEvents
	}
	for wake := range table.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// sorted are the objects that a selection admits, by key. Locked.
func (table *Table) sorted(chosen *Selection) []*Object {
	keys := make([]string, 0, len(table.Objects))
	for key, object := range table.Objects {
		if chosen.admits(object.Marks) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	found := make([]*Object, len(keys))
	for index, key := range keys {
		copied := *table.Objects[key]
		found[index] = &copied
	}
	return found
}

// item is an object as it stands in a list: of a built-in kind without apiVersion and kind.
func (table *Table) item(object *Object) []byte {
	if table.Kind.Custom {
		return object.Raw
	}
	head := []byte(`{"apiVersion":"` + table.Kind.APIVersion() + `","kind":"` + table.Kind.Name + `",`)
	if rest, first := bytes.CutPrefix(object.Raw, head); first {
		return append([]byte{'{'}, rest...)
	}
	short := Map{}
	for name, value := range object.Data {
		if name != "apiVersion" && name != "kind" {
			short[name] = value
		}
	}
	return encoded(short)
}
