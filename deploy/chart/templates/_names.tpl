{{/* Labels of every object. */}}
{{- define "jobset.labels" -}}
app.kubernetes.io/part-of: jobset
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* An image: repository with digest, or else with tag. Takes a dict of "image" and "root". */}}
{{- define "jobset.image" -}}
{{- $image := .image -}}
{{- $registry := .root.Values.image.registry -}}
{{- $name := ternary $image.repository (printf "%s/%s" $registry $image.repository) (empty $registry) -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion (default .root.Values.image.tag $image.tag) }}
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

{{/* The Secret that the webhook's certificate is mounted from. */}}
{{- define "jobset.certificate-secret" -}}
{{- if eq .Values.certificates.source "cert-manager" -}}
jobset-webhook-certificate
{{- else -}}
{{ required "certificates.mounted.secretName must name the Secret of the webhook's certificate" .Values.certificates.mounted.secretName }}
{{- end -}}
{{- end }}
