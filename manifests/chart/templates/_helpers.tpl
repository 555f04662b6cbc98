{{- define "offhours.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Names have suffixes, and the longest has to fit into 63 characters. */}}
{{- define "offhours.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "offhours.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "offhours.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "offhours.selector" -}}
app.kubernetes.io/name: {{ include "offhours.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The pods that serve. Those of hooks, tests and CronJobs share the labels above, and nothing may choose them by mistake. */}}
{{- define "offhours.servingPods" -}}
{{ include "offhours.selector" . }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "offhours.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "offhours.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "offhours.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* What is installed: empty is false. */}}
{{- define "offhours.servers" -}}{{ if eq .Values.mode "controller" }}yes{{ end }}{{- end -}}
{{- define "offhours.clusterWide" -}}{{ if not .Values.namespaces }}yes{{ end }}{{- end -}}
{{- define "offhours.webhook" -}}
{{- if and (include "offhours.servers" .) (include "offhours.clusterWide" .) .Values.webhook.enabled }}yes{{ end -}}
{{- end -}}
{{- define "offhours.ownCertificates" -}}
{{- if and (include "offhours.webhook" .) (eq .Values.webhook.certificates.source "own") }}yes{{ end -}}
{{- end -}}
{{/* A settings file is needed. */}}
{{- define "offhours.settings" -}}
{{- if or .Values.schedules .Values.settings .Values.addedKinds }}yes{{ end -}}
{{- end -}}

{{- define "offhours.options" -}}{{ .Files.Get "files/options.yaml" }}{{- end -}}

{{/* Roles and webhooks, as the product's own table says. */}}
{{- define "offhours.table" -}}
{{- $name := include "offhours.fullname" . -}}
{{- .Files.Get "files/rules.yaml" | replace "$(LEASE)" (printf "%s-scheduler" $name) | replace "$(CERTIFICATE)" (printf "%s-webhook-ca" $name) | replace "$(CONFIGURATION)" $name -}}
{{- end -}}

{{/* Rules of a role: {root, parts, places}. Rights on the same objects are one rule. */}}
{{- define "offhours.rules" -}}
{{- $values := .root.Values -}}
{{- $parts := .parts -}}
{{- $places := .places -}}
{{- $byApi := and (eq $values.mode "cronjob") $values.cronjob.argoServer -}}
{{- $features := dict "hpaDelete" $values.hpa.delete "argo" (and $values.argo.enabled (not $byApi)) "flux" $values.flux.enabled "ownCertificates" (include "offhours.ownCertificates" .root) -}}
{{- $merged := dict -}}
{{- range $right := (include "offhours.table" .root | fromYaml).rights -}}
  {{- $ours := has $right.place $places -}}
  {{- $needed := not $right.needs -}}
  {{- range $right.needs }}{{ if get $features . }}{{ $needed = true }}{{ end }}{{ end -}}
  {{- if $right.kind }}{{ if not (has $right.kind $values.kinds) }}{{ $needed = false }}{{ end }}{{ end -}}
  {{- $held := false -}}
  {{- range $right.parts }}{{ if has . $parts }}{{ $held = true }}{{ end }}{{ end -}}
  {{- if and $ours $needed $held -}}
    {{- $key := printf "%s/%s/%s" $right.group $right.resource (join "," $right.names) -}}
    {{- $rule := default (dict "group" $right.group "resource" $right.resource "names" $right.names "verbs" list) (get $merged $key) -}}
    {{- $_ := set $rule "verbs" (concat $rule.verbs $right.verbs | uniq | sortAlpha) -}}
    {{- $_ := set $merged $key $rule -}}
  {{- end -}}
{{- end -}}
{{- if has "workloads" $places -}}
  {{- range $kind := $values.addedKinds -}}
    {{- $verbs := list "list" "watch" -}}
    {{- if or (has "scheduler" $parts) (has "onePass" $parts) (has "uninstall" $parts) }}{{ $verbs = append $verbs "patch" }}{{ end -}}
    {{- if and $kind.scale (has "webhook" $parts) }}{{ $verbs = concat $verbs (list "get" "patch") }}{{ end -}}
    {{- $_ := set $merged (printf "%s/%s/" (default "" $kind.group) $kind.plural) (dict "group" (default "" $kind.group) "resource" $kind.plural "verbs" ($verbs | uniq | sortAlpha)) -}}
  {{- end -}}
{{- end -}}
{{- range $key, $rule := $merged }}
- apiGroups: [{{ $rule.group | quote }}]
  resources: [{{ $rule.resource | quote }}]
  {{- with $rule.names }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: {{ toJson $rule.verbs }}
{{- end }}
{{- end -}}

{{/* Roles and bindings of one account: {root, name, parts, annotations (of hooks)}. */}}
{{- define "offhours.roles" -}}
{{- $root := .root -}}
{{- $name := .name -}}
{{- $parts := .parts -}}
{{- $annotations := .annotations -}}
{{- $placed := list -}}
{{- if include "offhours.clusterWide" $root -}}
  {{- $placed = append $placed (dict "namespace" "" "places" (list "cluster" "workloads")) -}}
{{- else -}}
  {{- range $root.Values.namespaces }}{{ $placed = append $placed (dict "namespace" . "places" (list "workloads")) }}{{ end -}}
{{- end -}}
{{- $placed = append $placed (dict "namespace" $root.Release.Namespace "places" (list "own")) -}}
{{- if and (include "offhours.clusterWide" $root) $root.Values.k8sOffhours.backups (ne $root.Release.Namespace "offhours-system") -}}
  {{- $placed = append $placed (dict "namespace" "offhours-system" "places" (list "foreign")) -}}
{{- end -}}
{{- range $place := $placed -}}
{{- $kind := ternary "Role" "ClusterRole" (ne $place.namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with $place.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "offhours.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
rules: {{- include "offhours.rules" (dict "root" $root "parts" $parts "places" $place.places) | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with $place.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "offhours.labels" $root | nindent 4 }}
  {{- with $annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}
{{- end -}}

{{- define "offhours.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "offhours.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What every process of the product is told. */}}
{{- define "offhours.environment" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
- name: OFFHOURS_LEASE_NAME
  value: {{ include "offhours.fullname" . }}-scheduler
- name: OFFHOURS_WEBHOOK_NAME
  value: {{ include "offhours.fullname" . }}
{{- if .Values.namespaces }}
- name: OFFHOURS_NAMESPACES
  value: {{ join "," .Values.namespaces | quote }}
{{- end }}
{{- with .Values.argo.clusterNames }}
- name: OFFHOURS_ARGO_CLUSTER_NAMES
  value: {{ join "," . | quote }}
{{- end }}
{{- if include "offhours.settings" . }}
- name: OFFHOURS_SETTINGS
  value: /etc/offhours/settings.yaml
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts and volumes of the settings file. */}}
{{- define "offhours.settingsMount" -}}
- name: settings
  mountPath: /etc/offhours
  readOnly: true
{{- end -}}
{{- define "offhours.settingsVolume" -}}
- name: settings
  configMap:
    name: {{ include "offhours.fullname" . }}-settings
{{- end -}}

{{/* Where pods go: {root}. */}}
{{- define "offhours.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Our own accounts, whose requests the webhook lets pass. */}}
{{- define "offhours.accounts" -}}
{{- $name := include "offhours.fullname" . -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ $name }},system:serviceaccount:{{ .Release.Namespace }}:{{ $name }}-uninstall
{{- end -}}
