{{- define "postroad.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "postroad.labels" -}}
app.kubernetes.io/name: postroad
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "postroad.allLabels" -}}
{{ include "postroad.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "postroad.checked" -}}
{{- if not (has (int .Values.nodes) (list 1 3 5)) -}}
{{- fail "nodes must be 1, 3 or 5: of two nodes both would have to be there, and of four three" -}}
{{- end -}}
{{- end -}}

{{- define "postroad.adminSecret" -}}
{{- .Values.admin.existingSecret | default (printf "%s-admin" (include "postroad.name" .)) -}}
{{- end -}}

{{- define "postroad.peerSecret" -}}
{{- .Values.peers.existingSecret | default (printf "%s-peers" (include "postroad.name" .)) -}}
{{- end -}}

{{/* The name of a node for other nodes and clients. */}}
{{- define "postroad.domain" -}}
{{ include "postroad.name" . }}-nodes.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "postroad.seeds" -}}
{{- $name := include "postroad.name" . -}}
{{- $domain := include "postroad.domain" . -}}
{{- $seeds := list -}}
{{- range until (int .Values.nodes) -}}
{{- $seeds = append $seeds (printf "%s-%d.%s:7700" $name . $domain) -}}
{{- end -}}
{{- join "," $seeds -}}
{{- end -}}
