{{/*
What the chart of an application takes, with `.Subcharts.dwell` as the context:

  template:
    metadata:
      labels:
        {{- include "dwell.sidecarLabels" .Subcharts.dwell | nindent 8 }}
      annotations:
        {{- include "dwell.sidecarAnnotations" .Subcharts.dwell | nindent 8 }}
    spec:
      securityContext: {fsGroup: 65532}
      initContainers:
        {{- include "dwell.sidecar" .Subcharts.dwell | nindent 8 }}
      volumes:
        {{- include "dwell.sidecarVolumes" .Subcharts.dwell | nindent 8 }}
*/}}

{{/*
A native sidecar: starts before the application and stops after it. No readiness probe: it would take
the application out of service while Redis or the broker is away.
*/}}
{{- define "dwell.sidecar" -}}
- name: dwell
  restartPolicy: Always
  {{- include "dwell.running" . | nindent 2 }}
{{- end -}}

{{- define "dwell.sidecarVolumes" -}}
{{ include "dwell.volumesOf" (dict "root" . "settings" (include "dwell.fullname" .)) }}
{{- end -}}

{{/* The pod monitor finds the pods by it. */}}
{{- define "dwell.sidecarLabels" -}}
dwell-sidecar: {{ include "dwell.fullname" . }}
{{- end -}}

{{/* New settings replace the pods. */}}
{{- define "dwell.sidecarAnnotations" -}}
checksum/dwell: {{ .Values.config | sha256sum }}
{{- end -}}

{{/* What Dwell takes of the grace period of the pod, after the application has ended. */}}
{{- define "dwell.graceSeconds" -}}
{{- add (int .Values.drainSeconds) (int .Values.graceMarginSeconds) -}}
{{- end -}}
