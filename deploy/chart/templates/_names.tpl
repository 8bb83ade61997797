{{/* Labels of every object. */}}
{{- define "jobset.labels" -}}
app.kubernetes.io/part-of: jobset
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* An image: repository with digest, or else with tag. A released chart has the digests of its images in a file, which hold where no
     value names a digest or a tag. Not in values.yaml: with --reuse-values, those of the release before would stay. Takes a dict of
     "image" and "root". */}}
{{- define "jobset.image" -}}
{{- $image := .image -}}
{{- $registry := trimSuffix "/" (default "" .root.Values.image.registry) -}}
{{- $name := ternary $image.repository (printf "%s/%s" $registry $image.repository) (empty $registry) -}}
{{- $tag := default .root.Values.image.tag $image.tag -}}
{{- $released := get (.root.Files.Get "files/image-digests.yaml" | fromYaml) $image.repository -}}
{{- $digest := default (ternary $released "" (empty $tag)) $image.digest -}}
{{- if $digest -}}
{{ $name }}@{{ $digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion $tag }}
{{- end -}}
{{- end }}

{{/* A quota for a priority class of the system, where there is one. Takes a dict of "name", "class" and "root". */}}
{{- define "jobset.quota" -}}
{{- if has .class (list "system-cluster-critical" "system-node-critical") }}
# Some platforms admit Pods of this priority class only to namespaces with a quota of their number.
apiVersion: v1
kind: ResourceQuota
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    app.kubernetes.io/name: {{ .name }}
    {{- include "jobset.labels" .root | nindent 4 }}
spec:
  hard: {pods: 100}
  scopeSelector:
    matchExpressions:
    - {scopeName: PriorityClass, operator: In, values: [{{ .class }}]}
---
{{- end }}
{{- end }}

{{/* What verifies a mounted certificate; with the other sources the caBundles are filled by somebody else. */}}
{{- define "jobset.ca-bundle" -}}
{{- if eq .Values.certificates.source "mounted" -}}
{{ default "" .Values.certificates.mounted.caBundle }}
{{- end -}}
{{- end }}

{{/* Fields of a Pod that the values of a component set as they are. */}}
{{- define "jobset.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The flag of the gates, where some are set. Takes a dict of "more", gates that the release sets itself, and "root". */}}
{{- define "jobset.feature-gates" -}}
{{- with merge dict .more (default dict .root.Values.featureGates) -}}
{{- $gates := . -}}
- --feature-gates={{ range $index, $gate := (keys . | sortAlpha) }}{{ if $index }},{{ end }}{{ $gate }}={{ get $gates $gate }}{{ end }}
{{- end -}}
{{- end }}

{{/* Amounts of resources as the webhook reads them, as in cpu=10m,memory=16Mi. */}}
{{- define "jobset.amounts" -}}
{{- $amounts := list -}}
{{- range $name, $amount := . -}}
{{- $amounts = append $amounts (printf "%s=%v" $name $amount) -}}
{{- end -}}
{{- join "," $amounts -}}
{{- end }}

{{/* The alerts with their thresholds. Not by tpl: what Prometheus itself fills in has the braces of Helm. */}}
{{- define "jobset.alerts" -}}
{{- $rules := .Files.Get "files/alerts.yaml" | trim -}}
{{- range $name, $threshold := .Values.metrics.rules.thresholds -}}
{{- $rules = replace (printf "${%s}" $name) (toString $threshold) $rules -}}
{{- end -}}
{{- regexReplaceAll "^#.*\n" $rules "" -}}
{{- end }}

{{/* The Secret that a certificate of the stream is mounted from. Takes a dict of "of", relay or controller, and "root". */}}
{{- define "jobset.stream-secret" -}}
{{- $source := .root.Values.certificates.source -}}
{{- if eq $source "mounted" -}}
{{- $value := printf "%sSecretName" .of -}}
{{ required (printf "certificates.mounted.%s must name a Secret for the agent stream; or set stream.enabled=false" $value) (get .root.Values.certificates.mounted $value) }}
{{- else -}}
jobset-{{ .of }}-{{ ternary "leaf" "certificate" (eq $source "self") }}
{{- end -}}
{{- end }}

{{/* The rule of a NetworkPolicy that lets a program reach the API server. */}}
{{- define "jobset.to-api-server" -}}
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - {protocol: TCP, port: {{ . }}}
  {{- end }}
  {{- with .Values.networkPolicy.apiServers }}
  to:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The Secret that the webhook's certificate is mounted from. */}}
{{- define "jobset.certificate-secret" -}}
{{- if eq .Values.certificates.source "cert-manager" -}}
jobset-webhook-certificate
{{- else -}}
{{ required "certificates.mounted.secretName must name the Secret of the webhook's certificate" .Values.certificates.mounted.secretName }}
{{- end -}}
{{- end }}
