{{- define "aggregated.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Name of what is not in a namespace. */}}
{{- define "aggregated.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "aggregated.fullname" .) }}
{{- end }}

{{- /* An EtcdStorage has at most 63 characters: a longer name ends in a part of its hash, so that two stay two. */}}
{{- define "aggregated.storageName" -}}
{{- $name := default (include "aggregated.clusterName" .) .Values.etcdStorage.name }}
{{- if gt (len $name) 63 }}{{ printf "%s-%s" (trunc 54 $name | trimSuffix "-") (sha256sum $name | trunc 8) }}
{{- else }}{{ $name }}
{{- end }}
{{- end }}

{{- /* Labels that never change: a Deployment may not change its selector. */}}
{{- define "aggregated.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "aggregated.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "aggregated.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "aggregated.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "aggregated.labels" . | nindent 2 }}
{{- end }}

{{- define "aggregated.image" -}}
{{- with .Values.image }}
{{- $repository := required "image.repository: give the image of the aggregated server" .repository }}
{{- if .digest }}{{ printf "%s@%s" $repository .digest }}
{{- else }}{{ printf "%s:%s" $repository (default "latest" .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "aggregated.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "aggregated.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "aggregated.tlsSecret" -}}
{{ default (printf "%s-serving" (include "aggregated.fullname" .)) .Values.tls.existingSecret }}
{{- end }}

{{- /* Where Sailplane writes the certificate of the client and the authority of the endpoint. */}}
{{- define "aggregated.clientSecret" -}}
{{ include "aggregated.fullname" . }}-etcd-client
{{- end }}
{{- define "aggregated.authority" -}}
{{ include "aggregated.fullname" . }}-etcd-ca
{{- end }}

{{- define "aggregated.endpoint" -}}
{{- if .Values.etcdStorage.endpoint }}{{ .Values.etcdStorage.endpoint }}
{{- else }}
{{- $there := lookup "storage.sailplane.dev/v1alpha1" "EtcdStorage" "" (include "aggregated.storageName" .) | default dict }}
{{- dig "status" "endpoint" "" $there | required "etcdStorage.endpoint: give the URL of the Sailplane that lends the storage, https://HOST:PORT" }}
{{- end }}
{{- end }}
