{{- define "sailplane.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels that never change: a StatefulSet may not change its selector. */}}
{{- define "sailplane.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Those of pods that take backups, which are not the server's: neither its Service nor its budget selects them. */}}
{{- define "sailplane.backupLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 56 | trimSuffix "-" }}-backup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* A CronJob may have 52 characters: its Jobs add the time. */}}
{{- define "sailplane.backupName" -}}
{{- include "sailplane.fullname" . | trunc 45 | trimSuffix "-" }}-backup
{{- end }}

{{- define "sailplane.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sailplane.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "sailplane.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "sailplane.labels" . | nindent 2 }}
{{- end }}

{{- define "sailplane.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}
{{- else }}{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sailplane.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "sailplane.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The Service's name for the whole cluster. */}}
{{- define "sailplane.host" -}}
{{ include "sailplane.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* A host of advertise without its port; an IPv6 address without brackets. */}}
{{- define "sailplane.hostOnly" -}}
{{- if hasPrefix "[" . }}{{ regexReplaceAll "^\\[(.*)\\].*$" . "${1}" }}
{{- else if eq (len (splitList ":" .)) 2 }}{{ splitList ":" . | first }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{- /* Secret of the serving certificate; empty for the server's own. */}}
{{- define "sailplane.tlsSecret" -}}
{{- $cm := .Values.tls.certManager }}
{{- if and .Values.tls.existingSecret $cm.enabled }}
{{- fail "tls: give existingSecret or certManager, not both" }}
{{- else if .Values.tls.existingSecret }}{{ .Values.tls.existingSecret }}
{{- else if $cm.enabled }}
{{- if eq (empty $cm.issuerRef.name) (not $cm.selfSigned) }}
{{- fail "tls.certManager: give the name of an issuer in issuerRef, or selfSigned, and not both" }}
{{- end }}
{{- include "sailplane.fullname" . }}-tls
{{- end }}
{{- end }}

{{- /* The claim that the pod uses; empty where the StatefulSet makes one or there is none. */}}
{{- define "sailplane.template" -}}
{{- and .Values.persistence.enabled (not .Values.persistence.existingClaim) | ternary "true" "" }}
{{- end }}
