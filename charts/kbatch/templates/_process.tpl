{{/*
The Deployment, PodDisruptionBudget and ServiceAccount of one process.

Takes (dict "root" $ "component" "queue" "args" LIST "mounts" LIST "volumes" LIST): its arguments besides those that
all processes understand, and its volumes besides /tmp. Whatever the process reads from its arguments stands there as
$(VARIABLE) where another runner than a kubelet may have to choose the value: ports, addresses, its own name.
*/}}
{{- define "kbatch.process" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .component -}}
{{- $name := include "kbatch.componentName" . -}}
{{- $onHost := default false $values.hostNetwork -}}
{{- $alone := and (has .component (include "kbatch.elected" . | fromJsonArray)) (not $root.Values.leaderElection.enabled) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
  {{- with $values.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 3
  strategy:
    {{- if $alone }}
    # Nothing but this keeps the replica of the revision before from acting beside it.
    type: Recreate
    {{- else }}
    type: RollingUpdate
    {{- /* On the nodes' own network the new replica would want the ports of the one that it follows. */}}
    rollingUpdate: {{ ternary "{maxSurge: 0, maxUnavailable: 1}" "{maxSurge: 1, maxUnavailable: 0}" $onHost }}
    {{- end }}
  selector:
    matchLabels:
      {{- include "kbatch.componentSelectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "kbatch.componentLabels" (dict "root" $root "component" .component "labels" $values.podLabels) | nindent 8 }}
      annotations:
        {{- include "kbatch.under" (list $values.podAnnotations (dict "kubectl.kubernetes.io/default-container" .component)) | nindent 8 }}
    spec:
      serviceAccountName: {{ include "kbatch.serviceAccountName" . | quote }}
      automountServiceAccountToken: true
      {{- if $onHost }}
      hostNetwork: true
      {{- end }}
      {{- with default (ternary "ClusterFirstWithHostNet" "" $onHost) $values.dnsPolicy }}
      dnsPolicy: {{ . }}
      {{- end }}
      # A Service called kbatch-metrics would otherwise put KBATCH_METRICS_PORT=tcp://... into the environment.
      enableServiceLinks: false
      {{- with default $root.Values.priorityClassName $values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      securityContext:
        {{- include "kbatch.merged" (list $root.Values.podSecurityContext $values.podSecurityContext) | nindent 8 }}
      containers:
        - name: {{ .component | quote }}
          image: {{ include "kbatch.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [kbatch-{{ .component }}]
          args:
            - --bind-address=$(BIND_ADDRESS)
            - --health-port=$(HEALTH_PORT)
            - --metrics-port=$(METRICS_PORT)
            - --log-level={{ $root.Values.logLevel }}
            - --log-format={{ $root.Values.logFormat }}
            - --scheduler-name={{ $root.Values.schedulerName }}
            {{- if $root.Values.namespaces }}
            - --namespaces={{ join "," $root.Values.namespaces }}
            {{- end }}
            {{- if $root.Values.metrics.tls.secretName }}
            - --metrics-certificates=/etc/kbatch/metrics
            {{- end }}
            {{- if $root.Values.metrics.authorization.enabled }}
            - --metrics-authorization
            {{- end }}
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
            {{- range $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: POD_UID
              valueFrom: {fieldRef: {fieldPath: metadata.uid}}
            - name: BIND_ADDRESS
              value: {{ $root.Values.bindAddress | quote }}
            {{- range $port := list "health" "metrics" "webhook" }}
            {{- with index $values.ports $port }}
            - name: {{ upper $port }}_PORT
              value: {{ . | quote }}
            {{- end }}
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- range $port := list "health" "metrics" "webhook" }}
            {{- with index $values.ports $port }}
            - {name: {{ $port | quote }}, containerPort: {{ . }}, protocol: TCP}
            {{- end }}
            {{- end }}
          {{- $probes := include "kbatch.merged" (list $root.Values.probes $values.probes) | fromYaml }}
          {{- range $kind, $path := dict "startup" "/healthz" "readiness" "/readyz" "liveness" "/healthz" }}
          {{ $kind }}Probe:
            httpGet: {path: {{ $path }}, port: health}
            {{- toYaml (index $probes $kind) | nindent 12 }}
          {{- end }}
          {{- if eq .component "webhook" }}
          lifecycle:
            # The API server goes on calling until it has heard that this replica leaves.
            preStop: {sleep: {seconds: 5}}
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            {{- include "kbatch.merged" (list $root.Values.securityContext $values.securityContext) | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.metrics.tls.secretName }}
            - {name: metrics-certificate, mountPath: /etc/kbatch/metrics, readOnly: true}
            {{- end }}
            {{- with concat (default list .mounts) $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- with $root.Values.metrics.tls.secretName }}
        - name: metrics-certificate
          secret: {secretName: {{ . | quote }}, defaultMode: 0440}
        {{- end }}
        {{- with concat (default list .volumes) $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if $root.Values.topologySpread.enabled }}
      topologySpreadConstraints:
        {{- range $root.Values.topologySpread.topologyKeys }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "kbatch.componentSelectorLabels" $ | nindent 14 }}
          # The pods of the revision before do not count.
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- if $values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "kbatch.serviceAccountName" . | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
  {{- with $values.serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Only the process itself asks for its token.
automountServiceAccountToken: false
{{- end }}
{{- if and $values.podDisruptionBudget.enabled (gt (int $values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- include "kbatch.componentLabels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A replica that does not work anyway must not hold up the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "kbatch.componentSelectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* A duration of the values, `1.5s`, in milliseconds. */}}
{{- define "kbatch.milliseconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit) -}}
{{- end -}}

{{/* A duration as Prometheus reads it, `1m30s`, in milliseconds. */}}
{{- define "kbatch.prometheusMilliseconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[ywdhms])" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $length := get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000) $unit -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | int64) $length) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* The processes of which at most one replica acts, as a JSON list. */}}
{{- define "kbatch.elected" -}}
{{- list "scheduler" "podgroup" "queue" | toJson -}}
{{- end -}}

{{/* The arguments of a process of which at most one acts, as a JSON list. What leads is said in any case: a variable says nothing then. */}}
{{- define "kbatch.leaderArguments" -}}
{{- $election := .root.Values.leaderElection -}}
{{- if $election.enabled -}}
{{- $lease := include "kbatch.milliseconds" $election.leaseDuration | float64 -}}
{{- $deadline := include "kbatch.milliseconds" $election.renewDeadline | float64 -}}
{{- $retry := include "kbatch.milliseconds" $election.retryPeriod | float64 -}}
{{- if not (and (gt $retry 0.0) (lt $retry $deadline) (lt $deadline $lease)) -}}
{{- fail (printf "leaderElection: retryPeriod (%s) must be less than renewDeadline (%s), and that less than leaseDuration (%s)"
    $election.retryPeriod $election.renewDeadline $election.leaseDuration) -}}
{{- end -}}
{{- if ne $lease (mulf (floor (divf $lease 1000.0)) 1000.0) -}}
{{- fail (printf "leaderElection.leaseDuration is %s: a Lease lasts whole seconds" $election.leaseDuration) -}}
{{- end -}}
{{- list "--leader-elect" "--lease-namespace=$(POD_NAMESPACE)" (printf "--lease-name=kbatch-%s" .component) "--identity=$(POD_NAME)"
    (printf "--lease-duration=%s" $election.leaseDuration) (printf "--renew-deadline=%s" $election.renewDeadline)
    (printf "--retry-period=%s" $election.retryPeriod) | toJson -}}
{{- else -}}
{{- $replicas := index .root.Values .component "replicas" | int -}}
{{- if gt $replicas 1 -}}
{{- fail (printf "%s.replicas is %d, but without leaderElection.enabled two of them would act at once: set it to 1" .component $replicas) -}}
{{- end -}}
{{- list "--no-leader-elect" | toJson -}}
{{- end -}}
{{- end -}}
