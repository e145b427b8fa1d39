{{- define "aerobee.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: aerobee
app.kubernetes.io/version: {{ .Chart.AppVersion }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* (list $ IMAGE): with a digest the tag is left out, since it would only seem to count. */}}
{{- define "aerobee.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "aerobee.etcdInitialCluster" -}}
{{- $scheme := ternary "https" "http" .Values.etcd.tls.peers -}}
{{- $members := list -}}
{{- range $member := until (int .Values.etcd.replicas) -}}
{{- $members = append $members (printf "aerobee-etcd-%d=%s://aerobee-etcd-%d.aerobee-etcd.$(POD_NAMESPACE).svc:2380" $member $scheme $member) -}}
{{- end -}}
{{ join "," $members }}
{{- end }}

{{/* A JSON list. */}}
{{- define "aerobee.etcdEndpoints" -}}
{{- $endpoints := .Values.etcd.external.endpoints -}}
{{- if not $endpoints -}}
{{- range $member := until (int .Values.etcd.replicas) -}}
{{- $endpoints = append $endpoints (printf "aerobee-etcd-%d.aerobee-etcd:2379" $member) -}}
{{- end -}}
{{- end -}}
{{ toJson $endpoints }}
{{- end }}

{{/* The base of the manifests, then what the chart knows, then the user's keys. */}}
{{- define "aerobee.brokerConfig" -}}
{{- $config := mergeOverwrite (include "aerobee.brokerBase" . | fromJson) (deepCopy .Values.broker.config) -}}
{{ include "aerobee.toml" (list "" $config) | trim }}
{{- end }}

{{- define "aerobee.nameserverConfig" -}}
{{- $known := dict "etcd" (dict "endpoints" (include "aerobee.etcdEndpoints" . | fromJsonArray)) -}}
{{- $config := mergeOverwrite (include "aerobee.nameserverBase" . | fromJson) $known (deepCopy .Values.nameserver.config) -}}
{{ include "aerobee.toml" (list "" $config) | trim }}
{{- end }}

{{/* Pods that have not been replaced yet need the former file, so a changed one has another name. */}}
{{- define "aerobee.brokerConfigName" -}}
aerobee-broker-config-{{ include "aerobee.brokerConfig" . | sha256sum | trunc 10 }}
{{- end }}

{{- define "aerobee.nameserverConfigName" -}}
aerobee-nameserver-config-{{ include "aerobee.nameserverConfig" . | sha256sum | trunc 10 }}
{{- end }}

{{/* (list PREFIX SETTINGS): keys of a table come before the tables below it. What JSON writes of a string,
a number, a truth value or a list of these is TOML, too. */}}
{{- define "aerobee.toml" -}}
{{- $prefix := index . 0 -}}
{{- range $key, $value := index . 1 }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $key, $value := index . 1 }}
{{- if kindIs "map" $value }}

[{{ $prefix }}{{ $key }}]
{{- include "aerobee.toml" (list (printf "%s%s." $prefix $key) $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* (list $ GROUP): the ports of a group's replicas, without their last digit. */}}
{{- define "aerobee.nodePortTens" -}}
{{- $group := index . 1 -}}
{{- if $group.firstNodePort -}}
{{ div (int $group.firstNodePort) 10 }}
{{- else -}}
{{- range $at, $one := (index . 0).Values.broker.groups -}}
{{- if eq $one.name $group.name }}{{ add 3091 $at }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "aerobee.rules" -}}
{{- $base := .Values.monitoring.prometheusRule.runbookBase | trimSuffix "#" -}}
{{ .Files.Get "files/rules.yaml" | replace "https://aerobee.example/docs/operations/alerts.md" $base }}
{{- end }}
