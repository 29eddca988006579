{{/* Names and labels. Those that take a component get (dict "root" $ "component" "scheduler"). */}}

{{- define "kbatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, with the chart's where it is not part of it: `kbatch` for the release `kbatch`. */}}
{{- define "kbatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "kbatch.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kbatch.componentName" -}}
{{- printf "%s-%s" (include "kbatch.fullname" .root) .component -}}
{{- end -}}

{{/* What finds the objects of this release again: never changed, as selectors of Deployments cannot be. */}}
{{- define "kbatch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kbatch.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* A map of two, as YAML: what the values say, and what the chart says, which stands where both have a key. Takes a list. */}}
{{- define "kbatch.under" -}}
{{- toYaml (mergeOverwrite (deepCopy (default dict (index . 0))) (index . 1)) -}}
{{- end -}}

{{- define "kbatch.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "kbatch.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kbatch
{{- end -}}

{{- define "kbatch.labels" -}}
{{- include "kbatch.under" (list .Values.commonLabels (include "kbatch.ownLabels" . | fromYaml)) -}}
{{- end -}}

{{/* Besides, "labels": those that the values have for this object alone. They come before those for all objects. */}}
{{- define "kbatch.componentLabels" -}}
{{- $more := mergeOverwrite (deepCopy (default dict .root.Values.commonLabels)) (deepCopy (default dict .labels)) -}}
{{- $own := include "kbatch.ownLabels" .root | fromYaml -}}
{{- include "kbatch.under" (list $more (set $own "app.kubernetes.io/component" .component)) -}}
{{- end -}}

{{- define "kbatch.componentSelectorLabels" -}}
{{ include "kbatch.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kbatch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The account that a process acts as: the chart's own, or one that somebody else made. */}}
{{- define "kbatch.serviceAccountName" -}}
{{- $account := index .root.Values .component "serviceAccount" -}}
{{- $name := include "kbatch.componentName" . -}}
{{- if and (not $account.create) (not $account.name) -}}
{{- fail (printf "%s.serviceAccount.create is false: %s.serviceAccount.name must name it" .component .component) -}}
{{- end -}}
{{- default $name $account.name -}}
{{- end -}}

{{/*
Values for all processes and what one of them has of its own, as YAML: the latter's keys come before. Takes a list of the
two. A key that is null in it is left out, so that a default can be taken back.
*/}}
{{- define "kbatch.merged" -}}
{{- $merged := mergeOverwrite (deepCopy (index . 0)) (default dict (index . 1)) -}}
{{- range $key, $value := $merged -}}
{{- if kindIs "invalid" $value -}}{{- $_ := unset $merged $key -}}{{- end -}}
{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{/* Labels of what `helm test` makes: not those of the release, no Service and no policy may take it for a replica. */}}
{{- define "kbatch.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "kbatch.name" .) | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* A namespace that kbatch looks after: the one that is given with the root, or the first of `namespaces` where that is not among them. */ -}}
{{- define "kbatch.served" -}}
{{- $root := index . 0 -}}
{{- $wanted := index . 1 -}}
{{- if or (not $root.Values.namespaces) (has $wanted $root.Values.namespaces) }}{{ $wanted }}{{ else }}{{ first $root.Values.namespaces }}{{ end -}}
{{- end }}
