{{/* What every container of Dwell has in common. */}}

{{/* Variables win over the file: what the chart has to know is said once, by its values. */}}
{{- define "dwell.env" -}}
- name: DWELL_PROBES__LISTEN
  value: {{ printf "[::]:%d" (int .Values.probes.port) | quote }}
- name: DWELL_SHUTDOWN__DRAIN
  value: {{ printf "%ds" (int .Values.drainSeconds) | quote }}
{{- if .Values.service.enabled }}
- name: DWELL_HTTP__LISTEN
  value: {{ printf "[::]:%d" (int .Values.service.port) | quote }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range .Values.secrets.env }}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}
{{- end -}}

{{/* Image, environment, rights and files, which the checks have too. */}}
{{- define "dwell.common" -}}
image: {{ include "dwell.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  {{- include "dwell.env" . | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
volumeMounts:
  - name: dwell-settings
    mountPath: /etc/dwell
    readOnly: true
  {{- if .Values.secrets.files }}
  - name: dwell-secrets
    mountPath: /run/secrets/dwell
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* A Dwell that runs: the common part, its ports, and the probes that hold in both modes. */}}
{{- define "dwell.running" -}}
{{ include "dwell.common" . }}
args: ["run"]
ports:
  - name: probes
    containerPort: {{ .Values.probes.port }}
  {{- if .Values.service.enabled }}
  - name: api
    containerPort: {{ .Values.service.port }}
  {{- end }}
startupProbe:
  httpGet:
    path: /livez
    port: {{ .Values.probes.port }}
  periodSeconds: 1
  failureThreshold: 30
  terminationGracePeriodSeconds: 5
livenessProbe:
  httpGet:
    path: /livez
    port: {{ .Values.probes.port }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 6
  # One that stands still does not drain: it is killed soon. Its jobs are taken over when their leases
  # end.
  terminationGracePeriodSeconds: 5
{{- end -}}

{{/* The group reads the files of the secrets. */}}
{{- define "dwell.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The volumes, with the settings from a config map of this name. */}}
{{- define "dwell.volumesOf" -}}
- name: dwell-settings
  configMap:
    name: {{ .settings }}
{{- with .root.Values.secrets.files }}
- name: dwell-secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret:
          {{- toYaml . | nindent 10 }}
      {{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A pod that runs one command of Dwell and ends: root, settings (the name of a config map), command. */}}
{{- define "dwell.checkPod" -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "dwell.podSecurityContext" .root | nindent 2 }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: check
    args: {{ toJson .command }}
    {{- include "dwell.common" .root | nindent 4 }}
volumes:
  {{- include "dwell.volumesOf" (dict "root" .root "settings" .settings) | nindent 2 }}
{{- end -}}
