package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const bookmarkEvery = 60 * time.Second

// watch streams changes until the client goes or its time is up.
func (server *Server) watch(w http.ResponseWriter, r *http.Request, table *Table, chosen *Selection, query url.Values) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	wake := make(chan struct{}, 1)
	initial := query.Get("sendInitialEvents") == "true"
	bookmarks := query.Get("allowWatchBookmarks") == "true"
	since, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)

	server.Lock()
	var out bytes.Buffer
	last := since
	if initial || since == 0 {
		for _, object := range table.sorted(chosen) {
			line(&out, "ADDED", object.Raw)
		}
		last = server.version
		if initial {
			bookmark(&out, table, last, true)
		}
	} else if since < table.oldest {
		server.Unlock()
		gone := statusOf(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", since, table.oldest))
		line(&out, "ERROR", encoded(gone))
		_, _ = w.Write(out.Bytes())
		return
	}
	position := table.dropped + len(table.events)
	for position > table.dropped && table.events[position-table.dropped-1].Version > last {
		position--
	}
	table.wakes[wake] = struct{}{}
	server.Unlock()
	defer func() {
		server.Lock()
		delete(table.wakes, wake)
		server.Unlock()
	}()

	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	if seconds <= 0 {
		seconds = 1800
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	beat := time.NewTicker(bookmarkEvery)
	defer beat.Stop()
	due := false
	for {
		server.Lock()
		if position < table.dropped { // it reads too slowly
			server.Unlock()
			return
		}
		news, version := table.events[position-table.dropped:], server.version
		position += len(news)
		server.Unlock()
		for _, event := range news {
			one(&out, chosen, event)
		}
		if due {
			bookmark(&out, table, version, false)
			due = false
		}
		if out.Len() > 0 {
			if _, err := w.Write(out.Bytes()); err != nil {
				return
			}
			out.Reset()
		}
		flusher.Flush()
		select {
		case <-wake:
		case <-beat.C:
			due = bookmarks
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// one writes what an event is to a watch with this selection: an object may come into it, or leave it.
func one(out *bytes.Buffer, chosen *Selection, event *Event) {
	now := chosen.admits(event.Marks)
	before := event.Before != nil && chosen.admits(event.Before)
	switch {
	case event.Type == "DELETED" && before, event.Type == "MODIFIED" && before && !now:
		line(out, "DELETED", event.Raw)
	case event.Type == "MODIFIED" && now && !before, event.Type == "ADDED" && now:
		line(out, "ADDED", event.Raw)
	case event.Type == "MODIFIED" && now:
		line(out, "MODIFIED", event.Raw)
	}
}

func line(out *bytes.Buffer, what string, raw []byte) {
	out.WriteString(`{"type":"`)
	out.WriteString(what)
	out.WriteString(`","object":`)
	out.Write(raw)
	out.WriteString("}\n")
}

func bookmark(out *bytes.Buffer, table *Table, version uint64, initial bool) {
	metadata := Map{"resourceVersion": strconv.FormatUint(version, 10), "creationTimestamp": nil}
	if initial {
		metadata["annotations"] = Map{"k8s.io/initial-events-end": "true"}
	}
	line(out, "BOOKMARK", encoded(Map{
		"kind": table.Kind.Name, "apiVersion": table.Kind.APIVersion(), "metadata": metadata,
	}))
}
