{{- define "bundle.state" -}}
{{- if eq .Values.stateNamespace .Values.namespace }}{{ fail "stateNamespace must differ from namespace, whose Secrets others manage" }}{{ end -}}
{{- .Values.stateNamespace | default (printf "%s-state" .Values.namespace) -}}
{{- end }}

{{- define "bundle.image" -}}
{{- $repository := required "image.repository is required: no image of bundle-webhook is published yet. Build one, push it, and set image.repository and image.digest." .Values.image.repository -}}
{{- $tag := .Values.image.tag -}}
{{- with .Values.image.variant }}{{ if $tag }}{{ $tag = printf "%s-%s" $tag . }}{{ end }}{{ end -}}
{{- $digest := .Values.image.digest -}}
{{- if not (or $tag $digest) }}{{ fail "image.digest (recommended) or image.tag is required" }}{{ end -}}
{{- $repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $digest }}@{{ . }}{{ end -}}
{{- end }}

{{- /* Annotation for what outlives the release. */ -}}
{{- define "bundle.keep" -}}
{{- if .Values.keepOnUninstall }}
  annotations:
    helm.sh/resource-policy: keep
{{- end }}
{{- end }}

{{- /* Service of a registration's clientConfig. */ -}}
{{- define "bundle.service" -}}
service:
  namespace: {{ .Values.namespace }}
  name: bundle-webhook
  port: 443
{{- end }}

{{- /* Namespaces with ServiceAccounts of classes other than the installer: namespace -> names. */ -}}
{{- define "bundle.accounts" -}}
{{- $found := dict -}}
{{- range $name, $class := .Values.classes.items -}}
{{- with ($class | default dict).serviceAccount -}}
{{- if not (and (eq .namespace $.Values.namespace) (eq .name $.Values.installer.name)) -}}
{{- $names := append (get $found .namespace | default list) .name | uniq -}}
{{- $_ := set $found .namespace $names -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{- /* Flags that differ from the program's defaults. */ -}}
{{- define "bundle.args" -}}
{{- with .Values.stateNamespace }}
- --state-namespace={{ . }}
{{- end }}
{{- if .Values.registries.ca }}
- --registry-ca=/etc/bundle-webhook/registries/ca.crt
{{- end }}
{{- if .Values.registries.conf }}
- --registries-conf=/etc/bundle-webhook/registries/registries.conf
{{- end }}
{{- if .Values.admission.clientCA.configMap }}
- --client-ca-file=/etc/bundle-webhook/client-ca/{{ .Values.admission.clientCA.key }}
{{- end }}
{{- if ne .Values.log.format "json" }}
- --log-format={{ .Values.log.format }}
{{- end }}
{{- if ne .Values.log.level "info" }}
- --log-level={{ .Values.log.level }}
{{- end }}
{{- if ne .Values.cache.limit "512Mi" }}
- --cache-limit={{ .Values.cache.limit }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- with $value }}
- --{{ kebabcase $name }}={{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The mirrors and authorities are read once, at the start: other content means other pods. */ -}}
{{- define "bundle.podAnnotations" -}}
{{- $annotations := deepCopy .Values.podAnnotations -}}
{{- if or .Values.registries.ca .Values.registries.conf -}}
{{- $_ := set $annotations "core.rukpak.io/registries-checksum" (sha256sum (print .Values.registries.ca "\n" .Values.registries.conf)) -}}
{{- end -}}
{{- with $annotations }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* Defaults of classes, from the preset to the values. */ -}}
{{- define "bundle.classDefaults" -}}
{{- $defaults := deepCopy .Values.classes.defaults -}}
{{- if eq .Values.preset "rukpak" -}}{{- $_ := set $defaults "authorization" "Class" -}}{{- end -}}
{{- if not .Values.rbac.impersonatePeople -}}{{- $_ := set $defaults "requesterCheck" "AccessReview" -}}{{- end -}}
{{- $_ := set $defaults "serviceAccount" (dict "namespace" .Values.namespace "name" .Values.installer.name) -}}
{{- $defaults | toJson -}}
{{- end }}
