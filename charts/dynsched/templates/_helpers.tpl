{{/*
Every object comes from the files of the kustomize tree (base, components, collector): a template
reads a file and applies the values. So chart and tree cannot drift apart, and a test compares them.
*/}}

{{/* A file as text, with the release's namespace. Arguments: list . "base/rbac.yaml" */}}
{{- define "dynsched.file" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (index . 1) | required (printf "the chart lacks %s" (index . 1)) -}}
{{- $text | replace "namespace: dynsched\n" (printf "namespace: %s\n" $root.Release.Namespace) -}}
{{- end }}

{{- define "dynsched.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Key and value of mark.label; both empty without a label. */}}
{{- define "dynsched.key" -}}{{ (splitn "=" 2 .Values.mark.label)._0 }}{{- end }}
{{- define "dynsched.value" -}}{{ (splitn "=" 2 .Values.mark.label)._1 }}{{- end }}

{{/* Sets the image, its pull secrets and the user in a pod spec of ours. Arguments: list . $pod */}}
{{- define "dynsched.pod" -}}
{{- $root := index . 0 -}}
{{- $pod := index . 1 -}}
{{- with $root.Values.image -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "dynsched.image" $root) -}}
{{- $_ := set $container "imagePullPolicy" .pullPolicy -}}
{{- $secrets := list -}}
{{- range .pullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- if $secrets }}{{ $_ := set $pod "imagePullSecrets" $secrets }}{{ end -}}
{{- end -}}
{{- include "dynsched.user" . -}}
{{- end }}

{{/* Sets user and groups in a pod spec, or removes them if the cluster assigns them. Arguments: list . $pod */}}
{{- define "dynsched.user" -}}
{{- $root := index . 0 -}}
{{- $pod := index . 1 -}}
{{- $assigned := or (kindIs "invalid" $root.Values.runAsUser) ($root.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- range $id := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- if $assigned }}{{ $_ := unset $pod.securityContext $id -}}
{{- else if hasKey $pod.securityContext $id }}{{ $_ := set $pod.securityContext $id (int $root.Values.runAsUser) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Sets the ports from the values in a NetworkPolicy. Its second egress rule is for the API server,
the third for Prometheus. Arguments: list . $policy */}}
{{- define "dynsched.ports" -}}
{{- $egress := (index . 1).spec.egress -}}
{{- with (index . 0).Values.networkPolicy -}}
{{- range $number, $listed := list .apiServerPorts .prometheusPorts -}}
{{- if gt (len $egress) (add1 $number | int) -}}
{{- $ports := list -}}
{{- range $listed }}{{ $ports = append $ports (dict "port" . "protocol" "TCP") }}{{ end -}}
{{- $_ := set (index $egress (add1 $number | int)) "ports" $ports -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (last $egress).ports }}{{ $_ := set (index . 1).spec "egress" (initial $egress) }}{{ end -}}
{{- end }}

{{/* The rules file: the shipped text if the values change nothing, otherwise YAML from the values. */}}
{{- define "dynsched.rules" -}}
{{- $mark := .Values.mark -}}
{{- if not (or $mark.label $mark.taint .Values.order.enabled) -}}
{{- fail "mark.label and mark.taint are both empty, and order.enabled is false: set at least one of the three" -}}
{{- end -}}
{{- if and $mark.taint (not $mark.force) (.Capabilities.APIVersions.Has "karpenter.sh/v1") -}}
{{- fail "mark.taint: this cluster has Karpenter, which adds nodes while others have the taint; leave mark.taint empty, or set mark.force=true" -}}
{{- end -}}
{{- $shipped := .Files.Get "base/rules.yaml" -}}
{{- $default := $shipped | fromYaml -}}
{{- $rules := deepCopy (.Values.rules | default $default) -}}
{{- $_ := set $rules "mark" "none" -}}
{{- if or $mark.label $mark.taint -}}
{{- $both := dict -}}
{{- range $key := list "label" "taint" -}}
{{- if or (get $mark $key) (eq $key "label") }}{{ $_ := set $both $key (get $mark $key | default nil) }}{{ end -}}
{{- end -}}
{{- $_ := set $rules "mark" $both -}}
{{- end -}}
{{- if not .Values.order.enabled -}}
{{- $_ := unset $rules "order" -}}
{{- else if or .Values.order.score (not $rules.order) -}}
{{- $_ := set $rules "order" (dict "score" (.Values.order.score | default $default.order.score)) -}}
{{- $names := list -}}
{{- range $rules.rules }}{{ $names = append $names .name }}{{ end -}}
{{- range $name, $_ := $rules.order.score -}}
{{- if not (has $name $names) -}}
{{- fail (printf "order.score: no rule has the name %s; set order.score to names of your rules, or order.enabled=false" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if deepEqual $rules $default }}{{ $shipped }}{{ else }}{{ toYaml $rules }}
{{ end -}}
{{- end }}

{{/* How pods get the order: policy, webhook, or empty if order.enabled is false. */}}
{{- define "dynsched.order.by" -}}
{{- if not .Values.order.enabled -}}
{{- else if ne .Values.order.by "auto" -}}{{ .Values.order.by }}
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}policy
{{- else -}}webhook
{{- end -}}
{{- end }}

{{/* dynsched's environment variables. */}}
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
