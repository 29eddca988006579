{{/* The group of an apiVersion; empty for `v1`. */}}
{{- define "kbatch.apiGroup" -}}
{{- if contains "/" . }}{{ . | splitList "/" | first }}{{ end -}}
{{- end -}}

{{/*
What one process may do: a ClusterRole from "rules", a Role for its own Lease and what "own" says, and their bindings.

Takes (dict "root" $ "component" "queue" "rules" YAML), and "own" where there is more in the release's namespace. "managed" is what
it changes in the namespaces that it looks after: part of the ClusterRole where those are all, else a Role in each. A Lease can be created only by a right without a name, as the
name is not known to the authoriser at that moment; all the rest is the right to this one Lease.
*/}}
{{- define "kbatch.rbac" -}}
{{- $root := .root -}}
{{- $name := include "kbatch.componentName" . -}}
{{- $account := include "kbatch.serviceAccountName" . -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
  {{- if not $root.Values.namespaces }}
  {{- with .managed }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ $account | quote }}, namespace: {{ $root.Release.Namespace | quote }}}
{{- $component := . }}
{{- if .managed }}
{{- range $namespace := $root.Values.namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-managed
  namespace: {{ $namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" $component | nindent 4 }}
rules:
  {{- $component.managed | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-managed
  namespace: {{ $namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" $component | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}-managed}
subjects:
  - {kind: ServiceAccount, name: {{ $account | quote }}, namespace: {{ $root.Release.Namespace | quote }}}
{{- end }}
{{- end }}
{{- if or $root.Values.leaderElection.enabled .own }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
rules:
  {{- if $root.Values.leaderElection.enabled }}
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [kbatch-{{ .component }}]
    verbs: [get, update]
  {{- end }}
  {{- with .own }}
  {{- . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ $account | quote }}, namespace: {{ $root.Release.Namespace | quote }}}
{{- end }}
{{- end -}}
