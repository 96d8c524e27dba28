{{/* Values that contradict each other, which a schema cannot say. */}}
{{- define "dwell.refusals" -}}
{{- $settings := fromToml .Values.config -}}
{{- if and (hasKey $settings "Error") (not (kindIs "map" (get $settings "Error"))) -}}
{{- fail (printf "config is no TOML: %s" $settings.Error) -}}
{{- end -}}
{{- if hasKey (default dict $settings.shutdown) "drain" -}}
{{- fail "config has shutdown.drain, from which the grace period follows: set drainSeconds instead" -}}
{{- end -}}
{{- if hasKey (default dict $settings.probes) "listen" -}}
{{- fail "config has probes.listen, which the probes must know: set probes.port instead" -}}
{{- end -}}
{{- if and .Values.service.enabled (hasKey (default dict $settings.http) "listen") -}}
{{- fail "config has http.listen, which the service must know: set service.port instead" -}}
{{- end -}}
{{- if and .Values.service.enabled (eq .Values.mode "sidecar") -}}
{{- fail "service.enabled is of deployment mode: the application beside a sidecar reaches the API on loopback" -}}
{{- end -}}
{{- if and .Values.service.enabled (eq (int .Values.service.port) (int .Values.probes.port)) -}}
{{- fail "service.port and probes.port are the same: give each a port of its own" -}}
{{- end -}}
{{- if eq .Values.mode "deployment" -}}
{{- if and .Values.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.scrapers) -}}
{{- fail "podMonitor.enabled, and the network policy lets no Prometheus in: name it in networkPolicy.scrapers" -}}
{{- end -}}
{{- if and .Values.service.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.clients) -}}
{{- fail "service.enabled, and the network policy lets no client in: name them in networkPolicy.clients" -}}
{{- end -}}
{{- end -}}
{{- end -}}
