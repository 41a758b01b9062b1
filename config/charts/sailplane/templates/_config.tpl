{{- /* The names that clients reach the server by. */}}
{{- define "sailplane.advertise" -}}
{{- $name := include "sailplane.fullname" . }}
{{- $host := include "sailplane.host" . }}
{{- $all := .Values.advertise }}
{{- range list $host (printf "%s.%s" $host .Values.clusterDomain) (printf "%s.%s" $name .Release.Namespace) $name }}
{{- $all = append $all (eq (int $.Values.service.port) 6443 | ternary . (printf "%s:%d" . (int $.Values.service.port))) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{- /* The configuration file: the values, and what the chart knows. */}}
{{- define "sailplane.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $serving := default dict $config.serving }}
{{- $_ := set $serving "drain" (printf "%ds" (int .Values.drainSeconds)) }}
{{- if include "sailplane.tlsSecret" . }}
{{- $_ := set $serving "certFile" "/etc/sailplane-tls/tls.crt" }}
{{- $_ := set $serving "keyFile" "/etc/sailplane-tls/tls.key" }}
{{- end }}
{{- $paths := dig "authentication" "anonymousPaths" (list "/livez" "/readyz") $config }}
{{- if not (or (has "*" $paths) (and (has "/livez" $paths) (has "/readyz" $paths))) }}
{{- fail "config.authentication.anonymousPaths: needs /livez and /readyz, which the kubelet asks for without credentials" }}
{{- end }}
{{- $storage := default dict $config.storage }}
{{- if .Values.sharing.existingSecret }}
{{- $storage = set $storage "shareKeyFile" (printf "/etc/sailplane-share/%s" .Values.sharing.key) }}
{{- $_ := set $config "storage" $storage }}
{{- end }}
{{- if gt (int .Values.replicas) 1 }}
{{- if not (include "sailplane.external" .) }}
{{- fail "replicas: several servers need config.storage.url of a database or an etcd cluster, which they share" }}
{{- end }}
{{- if not $storage.shareKeyFile }}
{{- fail "replicas: several servers need sharing.existingSecret, to accept each other's credentials" }}
{{- end }}
{{- if and .Values.persistence.enabled .Values.persistence.existingClaim }}
{{- fail "replicas: several servers cannot have one claim: leave persistence.existingClaim empty" }}
{{- end }}
{{- end }}
{{- $_ := set $config "apiVersion" "sailplane.dev/v1alpha1" }}
{{- $_ := set $config "kind" "Server" }}
{{- $_ := set $config "listen" ":6443" }}
{{- $_ := set $config "dataDir" "/var/lib/sailplane" }}
{{- $_ := set $config "advertise" (include "sailplane.advertise" . | fromJsonArray) }}
{{- $_ := set $config "serving" $serving }}
{{- toYaml $config }}
{{- end }}

{{- /* What says that the process lives. A storage elsewhere that is away does not come back by a restart. */}}
{{- define "sailplane.livez" -}}
/livez{{ if include "sailplane.external" . }}?exclude=storage-etcd{{ end }}
{{- end }}

{{- /* Whether the storage is elsewhere. */}}
{{- define "sailplane.external" -}}
{{- if regexMatch "^(etcd\\+https?|postgres(ql)?|mysql|nats)://" (dig "storage" "url" "" .Values.config) }}yes{{ end }}
{{- end }}

{{- /*
A pod follows its configuration file, but for what needs a restart. So the template of the pod has a checksum
of the file without the fields that change while the server runs: one of them restarts nothing.
*/}}
{{- define "sailplane.checksum" -}}
{{- $config := include "sailplane.config" . | fromYaml }}
{{- range $section, $fields := dict
  "authentication" (list "jwt")
  "authorization" (list "authorizers")
  "limits" (list "mode" "requestsPerSecond" "burst" "requestsAtOnce" "watches" "writeRate" "writeBurst" "namespaceFactor"
    "objectSize" "objectsPerResource" "storedSize" "storedSizePerUser") }}
{{- if hasKey $config $section }}
{{- $rest := omit (get $config $section) "" }}
{{- range $fields }}{{ $rest = omit $rest . }}{{ end }}
{{- if $rest }}{{ $_ := set $config $section $rest }}{{ else }}{{ $_ := unset $config $section }}{{ end }}
{{- end }}
{{- end }}
{{- toJson $config | sha256sum }}
{{- end }}
