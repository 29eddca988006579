{{- define "kbatch.webhookName" -}}
{{- include "kbatch.componentName" (dict "root" . "component" "webhook") -}}
{{- end -}}

{{- define "kbatch.certificateSecret" -}}
{{- $given := .Values.webhook.certificates.secretName -}}
{{- if and (eq .Values.webhook.certificates.source "secret") (not $given) -}}
{{- fail "webhook.certificates.source is secret: webhook.certificates.secretName must name it" -}}
{{- end -}}
{{- default (printf "%s-certificates" (include "kbatch.webhookName" .)) $given -}}
{{- end -}}

{{/*
By what names and addresses the API server reaches the webhook, as JSON: {"names": [...], "addresses": [...]}.
*/}}
{{- define "kbatch.webhookHosts" -}}
{{- $names := list -}}
{{- $addresses := list -}}
{{- if .Values.webhook.url -}}
{{- $host := (urlParse .Values.webhook.url).hostname -}}
{{- if regexMatch "^([0-9.]+|.*:.*)$" $host -}}
{{- $addresses = append $addresses $host -}}
{{- else -}}
{{- $names = append $names $host -}}
{{- end -}}
{{- else -}}
{{- $service := include "kbatch.webhookName" . -}}
{{- range $suffix := list ".svc" ".svc.cluster.local" "" -}}
{{- $names = append $names (printf "%s.%s%s" $service $.Release.Namespace $suffix) -}}
{{- end -}}
{{- end -}}
{{- dict "names" $names "addresses" $addresses | toJson -}}
{{- end -}}

{{/*
The certificate that Helm makes, as JSON: {"ca", "certificate", "key", "renew"}, PEM in base64 and the time (seconds
since 1970) from which on an upgrade makes a new one. That of the Secret in the cluster as long as it is whole, counts,
and bears the right names. The authority of the one before is trusted beside that of a new one: replicas serve the old
certificate until they see the new Secret. Its key was never kept, so it can sign no more.
*/}}
{{- define "kbatch.helmCertificate" -}}
{{- $hosts := include "kbatch.webhookHosts" . -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $kept := dict -}}
{{- $before := "" -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "kbatch.certificateSecret" .) -}}
{{- if $found -}}
{{- $notes := default dict $found.metadata.annotations -}}
{{- $data := default dict $found.data -}}
{{- $renew := get $notes "kbatch.dev/certificate-renew-at" | default "0" | int64 -}}
{{- $before = regexFind "(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?" (get $data "ca.crt" | default "" | b64dec) -}}
{{- $whole := and (get $data "tls.crt") (get $data "tls.key") (get $data "ca.crt") -}}
{{- if and $whole (eq (get $notes "kbatch.dev/certificate-hosts") $hosts) (gt $renew $now) -}}
{{- $kept = dict "ca" (get $data "ca.crt") "certificate" (get $data "tls.crt") "key" (get $data "tls.key") "renew" $renew -}}
{{- end -}}
{{- end -}}
{{- if $kept -}}
{{- $kept | toJson -}}
{{- else -}}
{{- $days := int .Values.webhook.certificates.validityDays -}}
{{- $for := $hosts | fromJson -}}
{{- $ca := genCA (printf "%s-ca" (include "kbatch.webhookName" .)) $days -}}
{{- $made := genSignedCert (include "kbatch.webhookName" .) $for.addresses $for.names $days $ca -}}
{{- $renew := add $now (div (mul $days 86400 9) 10) -}}
{{- dict "ca" (print $ca.Cert $before | b64enc) "certificate" ($made.Cert | b64enc) "key" ($made.Key | b64enc) "renew" $renew | toJson -}}
{{- end -}}
{{- end -}}

{{- define "kbatch.ledgerNamespace" -}}
{{- default (printf "%s-ledgers" (include "kbatch.fullname" .)) .Values.webhook.ledgerNamespace -}}
{{- end -}}

{{- define "kbatch.pathSecretName" -}}
{{- printf "%s-path" (include "kbatch.webhookName" .) -}}
{{- end -}}

{{/*
The secret that the last part of each path is made of: the value's, else that of the Secret in the cluster, else a new one.
*/}}
{{- define "kbatch.pathSecret" -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "kbatch.pathSecretName" .) -}}
{{- $kept := get (default dict (default dict $found).data) "secret" | b64dec -}}
{{- default (default (randAlphaNum 48) $kept) .Values.webhook.pathSecret -}}
{{- end -}}

{{/*
What all entries of both configurations have in common: how the webhook is reached, and how long it may take.

Takes (dict "root" $ "path" "queue-deletion" "authority" BASE64 "secret" TEXT), and where it differs "failurePolicy".
The path ends in a token that the webhook knows and users of namespaces do not: each handler has its own.
*/}}
{{- define "kbatch.webhookCall" -}}
{{- $path := printf "/%s/%s" .path (printf "%s/%s" .secret .path | sha256sum) -}}
{{- $webhook := .root.Values.webhook -}}
admissionReviewVersions: [v1]
clientConfig:
  {{- if $webhook.url }}
  url: {{ trimSuffix "/" $webhook.url }}{{ $path }}
  {{- else }}
  service:
    name: {{ include "kbatch.webhookName" .root | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
    port: 443
    path: {{ $path }}
  {{- end }}
  {{- with .authority }}
  caBundle: {{ . }}
  {{- end }}
matchPolicy: Equivalent
failurePolicy: {{ default $webhook.failurePolicy .failurePolicy }}
timeoutSeconds: {{ $webhook.timeoutSeconds }}
{{- end -}}

{{/*
What the entries that change objects of namespaces have in common: that, and whom they concern.

Takes the same, and "labels" where a namespace must have some, "without" where it must not.
*/}}
{{- define "kbatch.webhookEntry" -}}
{{ include "kbatch.webhookCall" . }}
namespaceSelector:
  {{- with .labels }}
  matchLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  matchExpressions:
    {{- with .root.Values.namespaces }}
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
        {{- concat (list .root.Release.Namespace) .root.Values.webhook.excludedNamespaces | uniq | toYaml | nindent 8 }}
    {{- range $key, $value := .without }}
    - key: {{ $key }}
      operator: NotIn
      values: [{{ $value | quote }}]
    {{- end }}
reinvocationPolicy: IfNeeded
{{- end -}}
