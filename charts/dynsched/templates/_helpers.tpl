{{/*
Every object comes from the files of the kustomize tree (base, components, collector): a template
reads a file and sets what the values say. So the two cannot drift apart, and a test compares them.
*/}}

{{/* A file as text, in the release's namespace: list . "base/rbac.yaml" */}}
{{- define "dynsched.file" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (index . 1) | required (printf "the chart lacks %s" (index . 1)) -}}
{{- $text | replace "namespace: dynsched\n" (printf "namespace: %s\n" $root.Release.Namespace) -}}
{{- end }}

{{- define "dynsched.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The key and the value of mark.label, each empty where there is no label. */}}
{{- define "dynsched.key" -}}{{ (splitn "=" 2 .Values.mark.label)._0 }}{{- end }}
{{- define "dynsched.value" -}}{{ (splitn "=" 2 .Values.mark.label)._1 }}{{- end }}

{{/* The rules file: the shipped one as it is, else YAML of the values. */}}
{{- define "dynsched.rules" -}}
{{- if not (or .Values.mark.label .Values.mark.taint .Values.order.enabled) -}}
{{- fail "mark.label and mark.taint are both empty: dynsched marks no node, which needs order.enabled" -}}
{{- end -}}
{{- $shipped := .Files.Get "base/rules.yaml" -}}
{{- $default := ($shipped | fromYaml).mark -}}
{{- if and (kindIs "invalid" .Values.rules) (eq .Values.mark.label $default.label) (eq .Values.mark.taint $default.taint) (not .Values.order.score) -}}
{{ $shipped }}
{{- else -}}
{{- $rules := deepCopy (.Values.rules | default ($shipped | fromYaml)) -}}
{{- $_ := set $rules "mark" "none" -}}
{{- with .Values.mark -}}
{{- if or .label .taint -}}{{- $_ := set $rules "mark" (dict "label" (.label | default nil) "taint" (.taint | default nil)) -}}{{- end -}}
{{- end -}}
{{- if and .Values.order.enabled .Values.order.score }}{{ $_ := set $rules "order" (dict "score" .Values.order.score) }}{{ end -}}
{{ toYaml $rules }}
{{ end -}}
{{- end }}

{{/* How pods get the order: policy, webhook, or empty where they get none. */}}
{{- define "dynsched.order.by" -}}
{{- if not .Values.order.enabled -}}
{{- else if ne .Values.order.by "auto" -}}{{ .Values.order.by }}
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}policy
{{- else -}}webhook
{{- end -}}
{{- end }}

{{/* The environment of dynsched. */}}
{{- define "dynsched.controller.settings" -}}
{{- $secret := "/etc/dynsched/prometheus/" -}}
{{- with .Values.prometheus -}}
DYNSCHED_PROM: {{ .url | quote }}
{{- with .tokenKey }}
DYNSCHED_PROM_BEARER_TOKEN_FILE: {{ print $secret . }}
{{- end }}
{{- if .serviceAccountToken }}
DYNSCHED_PROM_BEARER_TOKEN_FILE: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}
{{- with .username }}
DYNSCHED_PROM_USERNAME: {{ . | quote }}
{{- end }}
{{- with .passwordKey }}
DYNSCHED_PROM_PASSWORD_FILE: {{ print $secret . }}
{{- end }}
{{- with .caKey }}
DYNSCHED_PROM_CA_FILE: {{ print $secret . }}
{{- end }}
{{- with .certKey }}
DYNSCHED_PROM_CERT_FILE: {{ print $secret . }}
{{- end }}
{{- with .keyKey }}
DYNSCHED_PROM_KEY_FILE: {{ print $secret . }}
{{- end }}
{{- if .insecureSkipVerify }}
DYNSCHED_PROM_INSECURE_SKIP_VERIFY: "true"
{{- end }}
{{- with .headers }}
DYNSCHED_PROM_HEADER: |-
{{- range $name, $value := . }}
  {{ $name }}: {{ $value }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.prometheus.externalUrl }}
DYNSCHED_PROM_EXTERNAL_URL: {{ . | quote }}
{{- end }}
DYNSCHED_INTERVAL: {{ .Values.interval | quote }}
DYNSCHED_LOG_FORMAT: {{ .Values.logFormat }}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
