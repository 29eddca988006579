{{/* The words of a scheduler configuration; a test compares them with those that the scheduler knows. */}}
{{- define "kbatch.words" -}}
action: [allocate, backfill, enqueue, preempt, reclaim]
plugin: [binpack, conformance, drf, estimates, flow, gang, lostopportunity, nodeorder, predicates, priority, proportion, topology]
key of a plugin:
  - name
  - arguments
  {{- range list "JobOrder" "TaskOrder" "QueueOrder" "JobReady" "JobPipelined" "Preemptable" "Reclaimable" "Predicate" "NodeOrder" }}
  - enable{{ . }}
  - disable{{ . }}
  {{- end }}
{{- end -}}

{{/*
Refuses a word that is not known, with the nearest one that is. Takes (dict "what" "plugin" "word" WORD "added" LIST). A name with
a dot or a slash is that of another package: whether it is installed, only the scheduler knows.
*/}}
{{- define "kbatch.knownWord" -}}
{{- $known := index (include "kbatch.words" . | fromYaml) .what -}}
{{- $mayBeAdded := ne .what "key of a plugin" -}}
{{- $foreign := and $mayBeAdded (or (has .word .added) (contains "." .word) (contains "/" .word)) -}}
{{- if not (or $foreign (has .word $known)) -}}
{{- $nearest := "" -}}
{{- $least := add1 (div (add1 (len .word)) 2) | int -}}
{{- range $candidate := $known -}}
{{- $edits := include "kbatch.edits" (dict "from" (lower $.word) "to" (lower $candidate)) | int -}}
{{- if lt $edits $least }}{{ $least = $edits }}{{ $nearest = $candidate }}{{ end -}}
{{- end -}}
{{- $hint := empty $nearest | ternary (printf "known: %s" (join ", " $known)) (printf "did you mean %q?" $nearest) -}}
{{- $besides := $mayBeAdded | ternary " (what another package adds stands in scheduler.extensions)" "" -}}
{{- fail (printf "scheduler.configuration: unknown %s %q; %s%s" .what .word $hint $besides) -}}
{{- end -}}
{{- end -}}

{{/* How many letters must be put in, taken out or replaced to make one word of another. Takes (dict "from" WORD "to" WORD). */}}
{{- define "kbatch.edits" -}}
{{- $to := splitList "" .to -}}
{{- $row := untilStep 0 (add1 (len $to) | int) 1 -}}
{{- range $i, $letter := splitList "" .from -}}
{{- $next := list (add1 $i | int) -}}
{{- range $j, $other := $to -}}
{{- $replaced := add (index $row $j) (eq $letter $other | ternary 0 1) -}}
{{- $next = append $next (min (add1 (last $next)) (add1 (index $row (add1 $j | int))) $replaced | int) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end -}}
