{{/* What would not start or would not be obeyed is refused here where it is wrong together; what is wrong alone, by the schema. */}}
{{- define "offhours.check" -}}
{{- if regexMatch "[.]" .Release.Name -}}
  {{- if not .Values.fullnameOverride -}}
    {{- fail (printf "the release's name %q has a dot, which no Service may have; set fullnameOverride, such as %s" .Release.Name (.Release.Name | replace "." "-")) -}}
  {{- end -}}
{{- end -}}
{{- if regexMatch "^[0-9]" (include "offhours.fullname" .) -}}
  {{- fail (printf "%q begins with a digit, which no Service may; set fullnameOverride, such as offhours-%s" (include "offhours.fullname" .) (include "offhours.fullname" .)) -}}
{{- end -}}
{{- if has .Release.Namespace (list "kube-system" "kube-public" "kube-node-lease") -}}
  {{- fail (printf "install into a namespace of its own, such as offhours-system, not into %s" .Release.Namespace) -}}
{{- end -}}
{{- range .Values.namespaces -}}
  {{- if has . (list "kube-system" "kube-public" "kube-node-lease" $.Release.Namespace) -}}
    {{- fail (printf "namespaces: %s is never put to sleep; leave it out" .) -}}
  {{- end -}}
{{- end -}}
{{- include "offhours.checkMode" . -}}
{{- include "offhours.checkPods" . -}}
{{- include "offhours.checkKinds" . -}}
{{- include "offhours.checkSchedules" . -}}
{{- include "offhours.checkOptions" . -}}
{{- end -}}

{{- define "offhours.checkMode" -}}
{{- $names := list -}}
{{- if eq .Values.mode "cronjob" -}}
  {{- if not .Values.cronjob.schedules -}}
    {{- fail "mode cronjob needs cronjob.schedules, such as [{name: default, shutdown: '0 20 * * 1-5', startup: '0 8 * * 1-5', timeZone: UTC}]" -}}
  {{- end -}}
  {{- if .Values.schedules -}}
    {{- fail "schedules are those of mode controller; in mode cronjob write cronjob.schedules" -}}
  {{- end -}}
  {{- if and .Values.cronjob.argoServer (not .Values.cronjob.argoTokenSecret.name) -}}
    {{- fail "cronjob.argoServer needs cronjob.argoTokenSecret.name, the Secret with the bearer token" -}}
  {{- end -}}
  {{- if and .Values.cronjob.argoServer (not .Values.argo.enabled) -}}
    {{- fail "cronjob.argoServer is of no use while argo.enabled is false; leave one of them out" -}}
  {{- end -}}
  {{- if and .Values.cronjob.argoTokenSecret.name (not .Values.cronjob.argoServer) -}}
    {{- fail "cronjob.argoTokenSecret is of no use without cronjob.argoServer; write host:port of the Argo CD API there" -}}
  {{- end -}}
  {{- range $schedule := .Values.cronjob.schedules -}}
    {{- if has .name $names -}}
      {{- fail (printf "cronjob.schedules: two are named %q; rename one" .name) -}}
    {{- end -}}
    {{- $names = append $names .name -}}
    {{- range $field := list "shutdown" "startup" -}}
      {{- include "offhours.checkText" (dict "root" $ "form" "cronJob" "place" (printf "cronjob.schedules: %s of %s" $field $schedule.name) "text" (get $schedule $field)) -}}
    {{- end -}}
    {{- $full := printf "%s-%s" (include "offhours.fullname" $) .name -}}
    {{- if gt (len $full) 42 -}}
      {{- fail (printf "cronjob.schedules: %s-shutdown is too long for the name of a CronJob; shorten %q, or set fullnameOverride" $full .name) -}}
    {{- end -}}
    {{- if and $.Values.namespaces (ne (default "namespace" .scope) "deployment") -}}
      {{- fail (printf "cronjob.schedules: %q has the scope namespace, but with namespaces there are no rights to read their labels; write scope: deployment, and label workloads" .name) -}}
    {{- end -}}
  {{- end -}}
{{- else if .Values.cronjob.schedules -}}
  {{- fail "cronjob.schedules need mode cronjob; in mode controller write schedules, or apply OffHoursSchedules" -}}
{{- else if or .Values.cronjob.argoServer .Values.cronjob.argoTokenSecret.name -}}
  {{- fail "cronjob.argoServer and cronjob.argoTokenSecret need mode cronjob; servers write Applications through their custom resources" -}}
{{- end -}}
{{- if and (include "offhours.webhook" .) (eq .Values.webhook.certificates.source "certManager") (not .Values.webhook.certificates.issuerRef.name) -}}
  {{- fail "webhook.certificates.source certManager needs webhook.certificates.issuerRef.name" -}}
{{- end -}}
{{- if eq (int .Values.webhook.port) 8080 -}}
  {{- fail "webhook.port 8080 is that of probes and metrics; write another one, such as 9443" -}}
{{- end -}}
{{- end -}}

{{/* Keys that the chart itself writes would stand there twice. */}}
{{- define "offhours.checkPods" -}}
{{- range $key := keys .Values.podLabels -}}
  {{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component") -}}
    {{- fail (printf "podLabels: %s is written by the chart, and its selectors rely on it; leave it out" $key) -}}
  {{- end -}}
{{- end -}}
{{- range $key := keys .Values.podAnnotations -}}
  {{- if or (hasPrefix "helm.sh/" $key) (has $key (list "kubectl.kubernetes.io/default-container" "offhours.platform.io/settings-checksum")) -}}
    {{- fail (printf "podAnnotations: %s is written by the chart; leave it out" $key) -}}
  {{- end -}}
{{- end -}}
{{- $patience := include "offhours.seconds" .Values.uninstall.patience -}}
{{- if or (not $patience) (gt (float64 $patience) 3600.0) -}}
  {{- fail (printf "uninstall.patience is %q: allowed is a duration of at most an hour, such as 10m" .Values.uninstall.patience) -}}
{{- end -}}
{{- end -}}

{{/* A duration such as 2h30m in seconds; empty if it is none. */}}
{{- define "offhours.seconds" -}}
{{- if and . (regexMatch "^([0-9]{1,6}w)?([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$" .) -}}
{{- $units := dict "w" 604800.0 "d" 86400.0 "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
  {{- $sum = addf $sum (mulf (float64 (regexFind "[0-9]+" .)) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{- printf "%.3f" $sum -}}
{{- end -}}
{{- end -}}

{{- define "offhours.checkKinds" -}}
{{- $seen := list -}}
{{- range $kind := .Values.addedKinds -}}
  {{- $place := printf "addedKinds: %s" $kind.kind -}}
  {{- $full := printf "%s/%s" (default "" $kind.group) $kind.plural -}}
  {{- if has $full (list "/pods" "/nodes" "/namespaces" "/secrets" "/configmaps" "coordination.k8s.io/leases") -}}
    {{- fail (printf "%s cannot be put to sleep, and a webhook on it could break the cluster; leave it out" $place) -}}
  {{- end -}}
  {{- if has $full $seen -}}
    {{- fail (printf "%s of group %q is there twice; leave one out" $place (default "" $kind.group)) -}}
  {{- end -}}
  {{- $seen = append $seen $full -}}
  {{- $names := list -}}
  {{- range $kind.knobs -}}
    {{- $last := regexReplaceAll "^.*(/|~1)" .path "" -}}
    {{- $name := default (regexReplaceAll "([A-Z])" $last "-${1}" | lower | trimPrefix "-") .name -}}
    {{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$" $name) -}}
      {{- fail (printf "%s: %q of the knob %s cannot be part of an annotation's key; write a name of a-z, 0-9 and -" $place $name .path) -}}
    {{- end -}}
    {{- if has $name $names -}}
      {{- fail (printf "%s: two knobs have the name %q; give each a name of its own" $place $name) -}}
    {{- end -}}
    {{- $names = append $names $name -}}
    {{- if and (kindIs "bool" .down) .text -}}
      {{- fail (printf "%s: down of the knob %s is a boolean and text is true; leave one of them out" $place .path) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* {root, place, zone} */}}
{{- define "offhours.checkZone" -}}
{{- if not (has (lower .zone) (include "offhours.options" .root | fromYaml).zones) -}}
  {{- fail (printf "%s: %q is no time zone; write an IANA name such as Europe/Berlin" .place .zone) -}}
{{- end -}}
{{- end -}}

{{- define "offhours.checkSchedules" -}}
{{- $names := list -}}
{{- range $schedule := .Values.schedules -}}
  {{- $place := printf "schedules: %s" $schedule.name -}}
  {{- $spec := $schedule.spec -}}
  {{- if has $schedule.name $names -}}
    {{- fail (printf "schedules: two are named %q; rename one" $schedule.name) -}}
  {{- end -}}
  {{- $names = append $names $schedule.name -}}
  {{- if and $.Values.namespaces (or (eq (default "Any" $schedule.scope) "Namespace") (dig "selector" "namespaceSelector" dict $spec)) -}}
    {{- fail (printf "%s looks at the labels of namespaces, and with the value namespaces there are no rights to read them; write scope: Workload, and label workloads" $place) -}}
  {{- end -}}
  {{- if hasKey $spec "cron" -}}
    {{- if or (hasKey $spec "uptime") (hasKey $spec "downtime") -}}
      {{- fail (printf "%s: cron and uptime/downtime exclude each other; keep one of the two forms" $place) -}}
    {{- end -}}
    {{- if not (or $spec.cron.shutdown $spec.cron.startup) -}}
      {{- fail (printf "%s: cron needs at least one expression in shutdown or startup" $place) -}}
    {{- end -}}
  {{- end -}}
  {{- with $spec.selector -}}
    {{- if not (or (dig "namespaceSelector" "matchLabels" dict .) (dig "namespaceSelector" "matchExpressions" list .) (dig "labelSelector" "matchLabels" dict .) (dig "labelSelector" "matchExpressions" list .)) -}}
      {{- fail (printf "%s: an empty selector would match everything; write a namespaceSelector or a labelSelector that is not empty" $place) -}}
    {{- end -}}
  {{- else -}}
    {{- if hasKey $spec "selector" -}}
      {{- fail (printf "%s: an empty selector would match everything; write a namespaceSelector or a labelSelector that is not empty" $place) -}}
    {{- end -}}
  {{- end -}}
  {{- include "offhours.checkTimes" (dict "root" $ "place" $place "spec" $spec) -}}
  {{- $mode := dig "hpa" "mode" "" $spec -}}
  {{- if and (has $mode (list "DeleteRestore" "DeleteOnly")) (not $.Values.hpa.delete) -}}
    {{- fail (printf "%s: hpa.mode %s deletes HPAs, for which there are no rights; set hpa.delete=true" $place $mode) -}}
  {{- end -}}
  {{- if and (hasKey $spec "argo") (dig "argo" "pause" true $spec) (not $.Values.argo.enabled) -}}
    {{- fail (printf "%s: argo pauses Applications, for which there are no rights; set argo.enabled=true" $place) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* A text of a schedule: {root, form, place, text} */}}
{{- define "offhours.checkText" -}}
{{- $form := get (include "offhours.options" .root | fromYaml).forms .form -}}
{{- if or (not .text) (not (regexMatch $form.pattern .text)) -}}
  {{- fail (printf "%s is %q: allowed is %s" .place .text $form.allowed) -}}
{{- end -}}
{{- end -}}

{{/* Days, hours and zones of a schedule: {root, place, spec} */}}
{{- define "offhours.checkTimes" -}}
{{- $root := .root -}}
{{- $place := .place -}}
{{- $spec := .spec -}}
{{- with $spec.timeZone -}}
  {{- include "offhours.checkZone" (dict "root" $root "place" (printf "%s: timeZone" $place) "zone" .) -}}
{{- end -}}
{{- range $fields := list (list "gracePeriod") (list "enforcement" "maxWake") (list "startup" "timeout") -}}
  {{- $text := get $spec (first $fields) -}}
  {{- if and $text (gt (len $fields) 1) }}{{ $text = get $text (last $fields) }}{{ end -}}
  {{- with $text -}}
    {{- include "offhours.checkText" (dict "root" $root "form" "duration" "place" (printf "%s: %s" $place (join "." $fields)) "text" .) -}}
  {{- end -}}
{{- end -}}
{{- range $field := list "uptime" "downtime" -}}
  {{- range $text := default list (get $spec $field) -}}
    {{- include "offhours.checkText" (dict "root" $root "form" "window" "place" (printf "%s: %s" $place $field) "text" $text) -}}
    {{- range regexSplit "[,;]" $text -1 -}}
      {{- $zone := regexFind "[0-9]\\s+[A-Za-z][^\\s]*\\s*$" . | regexFind "[A-Za-z].*" | trim -}}
      {{- if and $zone (not (regexMatch "(?i)^(mon|tue|wed|thu|fri|sat|sun)" $zone)) -}}
        {{- include "offhours.checkZone" (dict "root" $root "place" (printf "%s: %s %q" $place $field $text) "zone" $zone) -}}
      {{- end -}}
    {{- end -}}
    {{- $daily := regexFindAll "[0-9]{2}:[0-9]{2}\\s*-\\s*[0-9]{2}:[0-9]{2}" $text -1 -}}
    {{- $spanning := regexFindAll "(?i)[a-z]+\\s+[0-9]{2}:[0-9]{2}\\s*-\\s*[a-z]+\\s+[0-9]{2}:[0-9]{2}" $text -1 -}}
    {{- range concat $daily $spanning -}}
      {{- $ends := splitList "-" (lower . | nospace) -}}
      {{- if eq (index $ends 0) (index $ends 1) -}}
        {{- fail (printf "%s: %s %q starts and ends at the same time; write always or never" $place $field $text) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $field := list "shutdown" "startup" -}}
  {{- range $text := default list (dig "cron" $field list $spec) -}}
    {{- include "offhours.checkText" (dict "root" $root "form" "cron" "place" (printf "%s: cron.%s" $place $field) "text" $text) -}}
    {{- $zone := regexFind "TZ=[^\\s]+" $text | trimPrefix "TZ=" -}}
    {{- if $zone -}}
      {{- include "offhours.checkZone" (dict "root" $root "place" (printf "%s: cron.%s %q" $place $field $text) "zone" $zone) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $exception := $spec.exceptions -}}
  {{- if and .date (or .from .to) -}}
    {{- fail (printf "%s: an exception needs either date, or from and to" $place) -}}
  {{- else if not (or .date .from .to) -}}
    {{- fail (printf "%s: an exception needs either date, or from and to" $place) -}}
  {{- else if and (not .date) (not (and .from .to)) -}}
    {{- fail (printf "%s: from and to of an exception go together; write both" $place) -}}
  {{- end -}}
  {{- range $field, $form := dict "date" "date" "from" "end" "to" "end" "hours" "hours" -}}
    {{- with get $exception $field -}}
      {{- include "offhours.checkText" (dict "root" $root "form" $form "place" (printf "%s: %s of an exception" $place $field) "text" .) -}}
    {{- end -}}
  {{- end -}}
  {{- range $text := compact (list (default "" .date) (default "" .from) (default "" .to)) -}}
    {{- $day := regexFind "^(-|[0-9]{4})-[0-9]{2}-[0-9]{2}" (trim $text) -}}
    {{- /* any leap year will do to ask whether the day exists */}}
    {{- if and $day (toDate "2006-01-02" (replace "--" "2024-" $day)).IsZero -}}
      {{- fail (printf "%s: exception %q: there is no such day" $place $text) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Options of settings and variables have the forms that the pods ask for. */}}
{{- define "offhours.checkOptions" -}}
{{- $table := (include "offhours.options" . | fromYaml).options -}}
{{- $byKey := dict -}}
{{- $byVariable := dict -}}
{{- range $table -}}
  {{- $_ := set $byKey .key . -}}
  {{- $_ := set $byVariable .variable . -}}
{{- end -}}
{{- range $key, $value := .Values.settings -}}
  {{- if has $key (list "schedules" "kinds") -}}
    {{- fail (printf "settings.%s: write the value %s" $key (ternary "schedules" "addedKinds" (eq $key "schedules"))) -}}
  {{- end -}}
  {{- $row := get $byKey $key -}}
  {{- if not $row -}}
    {{- fail (printf "settings.%s: there is no such option; docs/reference/options.md has all" $key) -}}
  {{- end -}}
  {{- $text := ternary $value (toJson $value) (kindIs "string" $value) -}}
  {{- if kindIs "slice" $value -}}
    {{- $text = join (ternary ";" "," (hasPrefix "schedule" $key)) $value -}}
  {{- end -}}
  {{- include "offhours.checkOption" (dict "root" $ "row" $row "name" (printf "settings.%s" $key) "text" $text) -}}
  {{- if eq $key "scheduleTimezone" -}}
    {{- include "offhours.checkZone" (dict "root" $ "place" "settings.scheduleTimezone" "zone" $text) -}}
  {{- end -}}
{{- end -}}
{{- include "offhours.checkVariables" (dict "root" $ "byVariable" $byVariable "place" "extraEnv" "variables" .Values.extraEnv) -}}
{{- $extra := list -}}
{{- range .Values.extraEnv }}{{ $extra = append $extra .name }}{{ end -}}
{{- range $schedule := .Values.cronjob.schedules -}}
  {{- $place := printf "cronjob.schedules: env of %s" $schedule.name -}}
  {{- $variables := list -}}
  {{- range $name, $value := $schedule.env -}}
    {{- if has $name $extra }}{{ fail (printf "%s: %s is in extraEnv, too; leave one of them out" $place $name) }}{{ end -}}
    {{- $variables = append $variables (dict "name" $name "value" $value) -}}
  {{- end -}}
  {{- include "offhours.checkVariables" (dict "root" $ "byVariable" $byVariable "place" $place "variables" $variables) -}}
{{- end -}}
{{- include "offhours.checkLease" . -}}
{{- end -}}

{{/* Variables of pods: {root, byVariable, place, variables: [{name, value}]} */}}
{{- define "offhours.checkVariables" -}}
{{- $all := . -}}
{{- $seen := list -}}
{{- range $variable := .variables -}}
  {{- $name := $variable.name -}}
  {{- if has $name $seen -}}
    {{- fail (printf "%s: %s is there twice; leave one of them out" $all.place $name) -}}
  {{- end -}}
  {{- $seen = append $seen $name -}}
  {{- $row := get $all.byVariable $name -}}
  {{- if $row -}}
    {{- $text := default "" $variable.value -}}
    {{- /* one that comes from a Secret or a field is known when the pod starts */}}
    {{- $known := not (hasKey $variable "valueFrom") -}}
    {{- include "offhours.checkOption" (dict "root" $all.root "row" $row "name" (printf "%s: %s" $all.place $name) "text" $text "unknown" (not $known) "variable" true) -}}
    {{- if and $text (eq $name "SCHEDULE_TIMEZONE") -}}
      {{- include "offhours.checkZone" (dict "root" $all.root "place" (printf "%s: %s" $all.place $name) "zone" $text) -}}
    {{- end -}}
    {{- if and (eq $text "true") (has $name (list "HPA_DELETE_RESTORE_ENABLED" "HPA_DELETE_ONLY_ENABLED")) (not $all.root.Values.hpa.delete) -}}
      {{- fail (printf "%s: %s deletes HPAs, for which there are no rights; set hpa.delete=true" $all.place $name) -}}
    {{- end -}}
  {{- else if eq $name "OFFHOURS_SETTINGS" -}}
    {{- fail (printf "%s: OFFHOURS_SETTINGS is written by the chart; write the value settings" $all.place) -}}
  {{- else if regexMatch "^(OFFHOURS|SCHEDULE|ARGO|HPA|PROTECTED_APP|ENFORCEMENT|DEFAULT_STARTUP)_" $name -}}
    {{- fail (printf "%s: there is no variable %s; docs/reference/options.md has all" $all.place $name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* One option: {root, row, name, text, unknown, variable} */}}
{{- define "offhours.checkOption" -}}
{{- $row := .row -}}
{{- if has .root.Values.mode (default list $row.not) -}}
  {{- fail (printf "%s is not for a release to say; %s" .name $row.instead) -}}
{{- end -}}
{{- $skip := or .unknown (and .variable $row.mayBeEmpty (not (trim .text))) -}}
{{- if not $skip -}}
  {{- $wrong := or (not .text) (not (regexMatch $row.pattern .text)) -}}
  {{- if and (not $wrong) (hasKey $row "most") -}}
    {{- $wrong = or (gt (int64 .text) (int64 $row.most)) (lt (int64 .text) (int64 $row.least)) -}}
  {{- end -}}
  {{- if hasPrefix "a duration" $row.allowed }}{{ if eq (include "offhours.seconds" .text | default "0.000") "0.000" }}{{ $wrong = true }}{{ end }}{{ end -}}
  {{- if hasPrefix "a number of seconds" $row.allowed }}{{ if not $wrong }}{{ if gt (float64 .text) 3600.0 }}{{ $wrong = true }}{{ end }}{{ end }}{{ end -}}
  {{- if $wrong -}}
    {{- fail (printf "%s is %q: allowed is %s" .name .text $row.allowed) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* The times of the lease fit each other, as the scheduler asks for; and pods are left the time to finish. */}}
{{- define "offhours.checkLease" -}}
{{- if include "offhours.servers" . -}}
{{- $given := dict "leaseDuration" "15s" "leaseRenewDeadline" "10s" "leaseCallTimeout" "3s" "writeTimeout" "5s" "drainTimeout" "10s" -}}
{{- $variables := dict "OFFHOURS_LEASE_DURATION" "leaseDuration" "OFFHOURS_LEASE_RENEW_DEADLINE" "leaseRenewDeadline" "OFFHOURS_LEASE_CALL_TIMEOUT" "leaseCallTimeout" "OFFHOURS_WRITE_TIMEOUT" "writeTimeout" "OFFHOURS_DRAIN_TIMEOUT" "drainTimeout" -}}
{{- range $key, $_ := $given -}}
  {{- with get $.Values.settings $key }}{{ $_ := set $given $key . }}{{ end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if and (hasKey $variables .name) .value }}{{ $_ := set $given (get $variables .name) .value }}{{ end -}}
{{- end -}}
{{- $seconds := dict -}}
{{- range $key, $text := $given }}{{ $_ := set $seconds $key (float64 (include "offhours.seconds" $text)) }}{{ end -}}
{{- $lease := $seconds.leaseDuration -}}
{{- $end := mulf $lease 0.9 -}}
{{- if or (lt $lease 1.0) (gt $lease 600.0) -}}
  {{- fail (printf "settings.leaseDuration is %q: allowed are 1s to 10m" $given.leaseDuration) -}}
{{- end -}}
{{- if ge $seconds.leaseRenewDeadline $end -}}
  {{- fail (printf "settings.leaseRenewDeadline %s has to be below %.1fs, nine tenths of leaseDuration %s" $given.leaseRenewDeadline $end $given.leaseDuration) -}}
{{- end -}}
{{- if lt $seconds.leaseRenewDeadline (addf (divf $lease 3.0) $seconds.leaseCallTimeout) -}}
  {{- fail (printf "settings.leaseRenewDeadline %s has to be at least a third of leaseDuration %s and leaseCallTimeout %s together" $given.leaseRenewDeadline $given.leaseDuration $given.leaseCallTimeout) -}}
{{- end -}}
{{- if ge $seconds.writeTimeout (subf $end (divf $lease 3.0)) -}}
  {{- fail (printf "settings.writeTimeout %s has to be below %.1fs with leaseDuration %s" $given.writeTimeout (subf $end (divf $lease 3.0)) $given.leaseDuration) -}}
{{- end -}}
{{- if ge $seconds.drainTimeout (float64 .Values.terminationGracePeriodSeconds) -}}
  {{- fail (printf "terminationGracePeriodSeconds %v has to be more than settings.drainTimeout %s, or pods are killed while they finish" .Values.terminationGracePeriodSeconds $given.drainTimeout) -}}
{{- end -}}
{{- end -}}
{{- end -}}
