{{- /* Name of the system namespace. With preset `rukpak`, the default is the name in RukPak: rukpak-system. */ -}}
{{- define "bundle.namespace" -}}
{{- .Values.namespace | default (ternary "rukpak-system" "bundle-system" (eq .Values.preset "rukpak")) -}}
{{- end }}

{{- /* Number of replicas. With preset `rukpak`, the default is 1, because RukPak's clients do not retry requests that a replica rejects because it is not the leader. */ -}}
{{- define "bundle.replicas" -}}
{{- if eq (toString .Values.replicas) "" }}{{ ternary 1 2 (eq .Values.preset "rukpak") }}{{ else }}{{ .Values.replicas }}{{ end -}}
{{- end }}

{{- /* Name and port name of the Service of the content service. */ -}}
{{- define "bundle.contentService" -}}
{{- .Values.content.service.name | default (ternary "core" "bundle-webhook-content" (eq .Values.preset "rukpak")) -}}
{{- end }}
{{- define "bundle.contentPortName" -}}
{{- .Values.content.service.portName | default (ternary "https" "content" (eq .Values.preset "rukpak")) -}}
{{- end }}

{{- /* "true" if ConfigMaps of the system namespace are reviewed. */ -}}
{{- define "bundle.guardsConfigMaps" -}}
{{- or .Values.admission.guardConfigMaps (eq .Values.preset "rukpak") -}}
{{- end }}

{{- /* Name of the Secret with the certificate authorities of the content service. If empty, this Secret does not exist. */ -}}
{{- define "bundle.caSecret" -}}
{{- .Values.content.caSecret | default (ternary "rukpak-ca" "" (eq .Values.preset "rukpak")) -}}
{{- end }}

{{- /* URL of the content service. If empty, the program uses its default. */ -}}
{{- define "bundle.contentURL" -}}
{{- $port := int .Values.content.service.port -}}
{{- if .Values.content.url }}{{ .Values.content.url }}
{{- else if ne $port 443 }}https://{{ include "bundle.contentService" . }}.{{ include "bundle.namespace" . }}.svc:{{ $port }}
{{- end -}}
{{- end }}

{{- define "bundle.state" -}}
{{- $namespace := include "bundle.namespace" . -}}
{{- if eq .Values.stateNamespace $namespace }}{{ fail "stateNamespace must differ from namespace, whose Secrets others manage" }}{{ end -}}
{{- .Values.stateNamespace | default (printf "%s-state" $namespace) -}}
{{- end }}

{{- define "bundle.image" -}}
{{- $repository := required "image.repository is required: no image of bundle-webhook is published yet. Build one, push it, and set image.repository and image.digest." .Values.image.repository -}}
{{- $tag := .Values.image.tag -}}
{{- with .Values.image.variant }}{{ if $tag }}{{ $tag = printf "%s-%s" $tag . }}{{ end }}{{ end -}}
{{- $digest := .Values.image.digest -}}
{{- if not (or $tag $digest) }}{{ fail "image.digest (recommended) or image.tag is required" }}{{ end -}}
{{- $repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with $digest }}@{{ . }}{{ end -}}
{{- end }}

{{- /* Annotation of objects that Helm keeps when the release is uninstalled. */ -}}
{{- define "bundle.keep" -}}
{{- if .Values.keepOnUninstall }}
  annotations:
    helm.sh/resource-policy: keep
{{- end }}
{{- end }}

{{- /* The Service in `clientConfig` of each webhook. */ -}}
{{- define "bundle.service" -}}
service:
  namespace: {{ include "bundle.namespace" . }}
  name: bundle-webhook
  port: 443
{{- end }}

{{- /* ServiceAccounts of the classes, except the installer: a map from each namespace to the names of its ServiceAccounts. */ -}}
{{- define "bundle.accounts" -}}
{{- $found := dict -}}
{{- range $name, $class := .Values.classes.items -}}
{{- with ($class | default dict).serviceAccount -}}
{{- if not (and (eq .namespace (include "bundle.namespace" $)) (eq .name $.Values.installer.name)) -}}
{{- $names := append (get $found .namespace | default list) .name | uniq -}}
{{- $_ := set $found .namespace $names -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{- /* Flags whose values differ from the defaults of the program. */ -}}
{{- define "bundle.args" -}}
{{- with .Values.stateNamespace }}
- --state-namespace={{ . }}
{{- end }}
{{- $service := include "bundle.contentService" . }}
{{- if ne $service "bundle-webhook-content" }}
- --content-service={{ $service }}
{{- end }}
{{- with include "bundle.contentURL" . }}
- --content-url={{ . }}
{{- end }}
{{- with include "bundle.caSecret" . }}
- --ca-secret={{ . }}
{{- end }}
{{- if ne .Values.content.downloadPath "/bundles/" }}
- --download-path={{ .Values.content.downloadPath }}
{{- end }}
{{- if ne .Values.content.uploadPath "/uploads/" }}
- --upload-path={{ .Values.content.uploadPath }}
{{- end }}
{{- if ne .Values.rbac.readerRole "bundle-reader" }}
- --reader-role={{ .Values.rbac.readerRole }}
{{- end }}
{{- if ne .Values.rbac.uploaderRole "bundle-uploader" }}
- --uploader-role={{ .Values.rbac.uploaderRole }}
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

{{- /* Annotations of the pods. The program reads mirrors and authorities only at its start, so a changed checksum replaces the pods. */ -}}
{{- define "bundle.podAnnotations" -}}
{{- $annotations := deepCopy .Values.podAnnotations -}}
{{- if or .Values.registries.ca .Values.registries.conf -}}
{{- $_ := set $annotations "core.rukpak.io/registries-checksum" (sha256sum (print .Values.registries.ca "\n" .Values.registries.conf)) -}}
{{- end -}}
{{- with $annotations }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* Default fields of `spec` of each class, from the values and the preset. */ -}}
{{- define "bundle.classDefaults" -}}
{{- $defaults := deepCopy .Values.classes.defaults -}}
{{- if not $defaults.authorization -}}
{{- $_ := set $defaults "authorization" (ternary "Class" "Requester" (eq .Values.preset "rukpak")) -}}
{{- end -}}
{{- if eq .Values.preset "rukpak" -}}
{{- $_ := set $defaults "sources" (merge (dict) ($defaults.sources | default dict) (dict "privateAddresses" "Allow")) -}}
{{- end -}}
{{- if not .Values.rbac.impersonatePeople -}}{{- $_ := set $defaults "requesterCheck" "AccessReview" -}}{{- end -}}
{{- $_ := set $defaults "serviceAccount" (dict "namespace" (include "bundle.namespace" .) "name" .Values.installer.name) -}}
{{- $defaults | toJson -}}
{{- end }}
