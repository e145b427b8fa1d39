{{/* What a schema cannot say. Each is one sentence: what is wrong, and what to do. */}}
{{- define "aerobee.refusals" -}}
{{- $names := list -}}
{{- $ports := list -}}
{{- $least := dig "replication" "min_insync_replicas" 1 .Values.broker.config | int -}}
{{- range $name, $image := dict "image" .Values.image "etcd.image" .Values.etcd.image -}}
{{- if not (regexMatch "^(sha256:[0-9a-f]{64})?$" $image.digest) -}}
{{- fail (printf "%s.digest is %q: write sha256: and its 64 digits, as `crane digest` prints it" $name $image.digest) -}}
{{- end -}}
{{- end -}}
{{- range $group := .Values.broker.groups -}}
{{- if not (regexMatch "^broker-[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$" $group.name) -}}
{{- fail (printf "broker.groups has the name %q: write broker-, and small letters and digits" $group.name) -}}
{{- end -}}
{{- if has $group.name $names -}}
{{- fail (printf "broker.groups has %s twice: give each group a name of its own" $group.name) -}}
{{- end -}}
{{- $names = append $names $group.name -}}
{{- $replicas := $group.replicas | default $.Values.broker.replicas | int -}}
{{- if lt $replicas $least -}}
{{- fail (printf "group %s has %d replicas and would take no message, because broker.config.replication.min_insync_replicas is %d: set more replicas, or lower it" $group.name $replicas $least) -}}
{{- end -}}
{{- if and (eq $replicas $least) (gt $least 1) (not $.Values.broker.writesMayPause) -}}
{{- fail (printf "group %s has %d replicas, and broker.config.replication.min_insync_replicas is %d: each drain and each update would stop its writes until the pod is back; set more replicas, or broker.writesMayPause to accept that" $group.name $replicas $least) -}}
{{- end -}}
{{- if eq $.Values.outside.type "nodePort" -}}
{{- $port := include "aerobee.nodePortTens" (list $ $group) -}}
{{- if has $port $ports -}}
{{- fail (printf "two groups have the node ports %s0 to %s9: set firstNodePort of group %s" $port $port $group.name) -}}
{{- end -}}
{{- $ports = append $ports $port -}}
{{- if gt $replicas 10 -}}
{{- fail (printf "group %s has %d replicas, and a group has ten node ports: set outside.type to loadBalancer" $group.name $replicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.etcd.tls.peers (not .Values.etcd.tls.enabled) -}}
{{- fail "etcd.tls.peers uses the certificates of etcd.tls.enabled: set both" -}}
{{- end -}}
{{- if .Values.etcd.external.endpoints -}}
{{- if and .Values.networkPolicy.enabled (not .Values.etcd.external.networks) -}}
{{- fail "network policies let nameservers reach only what they name: set etcd.external.networks to where etcd.external.endpoints are" -}}
{{- end -}}
{{- if .Values.etcdUpkeep.enabled -}}
{{- fail "etcdUpkeep is for the chart's own etcd: set etcdUpkeep.enabled to false, and save yours with its own means" -}}
{{- end -}}
{{- end -}}
{{- if ne .Values.outside.type "none" -}}
{{- if not .Values.outside.clientNetworks -}}
{{- fail "an empty list would let everybody in: set outside.clientNetworks to the networks of clients" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.apply.enabled (not .Values.apply.file) -}}
{{- fail "apply.enabled needs a file: --set-file apply.file=cluster.yaml" -}}
{{- end -}}
{{- with .Values.monitoring.prometheusRule -}}
{{- if and .enabled (or (not .runbookBase) (contains "aerobee.example" .runbookBase)) -}}
{{- fail "every alert would link to a page that does not exist: set monitoring.prometheusRule.runbookBase to where your team reads docs/operations/alerts.md" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.priorityClass.create (not .Values.priorityClass.name) -}}
{{- fail "priorityClass.create needs priorityClass.name" -}}
{{- end -}}
{{- end }}
