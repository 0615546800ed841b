{{/* Names: the release, unless it is called after the chart. */}}
{{- define "belvedere.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "belvedere.operator" -}}{{ include "belvedere.name" . | trunc 50 | trimSuffix "-" }}-operator{{- end }}
{{- define "belvedere.gatewayRole" -}}{{ include "belvedere.name" . | trunc 50 | trimSuffix "-" }}-gateway{{- end }}
{{- define "belvedere.sparkRole" -}}{{ include "belvedere.name" . | trunc 50 | trimSuffix "-" }}-spark{{- end }}
{{- define "belvedere.zookeeper" -}}{{ include "belvedere.name" . | trunc 50 | trimSuffix "-" }}-zookeeper{{- end }}

{{- define "belvedere.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: belvedere
{{- end }}

{{/* Of one component: (dict "of" . "component" "operator"). They never change, since a selector cannot. */}}
{{- define "belvedere.selector" -}}
app.kubernetes.io/name: {{ .of.Chart.Name }}
app.kubernetes.io/instance: {{ .of.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "belvedere.image" -}}{{ .image.repository }}:{{ .image.tag | default .of.Chart.AppVersion }}{{- end }}

{{/* How jobs of Spark are set up in pools that say nothing else, as JSON. */}}
{{- define "belvedere.spark" -}}
{{- $image := .Values.spark.image }}
{{- $named := ternary (dict "image" (include "belvedere.image" (dict "of" . "image" $image))) dict (ne $image.repository "") }}
{{- merge $named (deepCopy .Values.spark.defaults) | toJson }}
{{- end }}

{{/* ZooKeeper for pools that name none. */}}
{{- define "belvedere.zookeeperHosts" -}}
{{- if .Values.zookeeper.hosts }}{{ .Values.zookeeper.hosts }}
{{- else if .Values.zookeeper.bundled.enabled }}{{ include "belvedere.zookeeper" . }}.{{ .Release.Namespace }}.svc:2181
{{- else }}{{ fail "zookeeper: give its hosts in zookeeper.hosts, or set zookeeper.bundled.enabled" }}
{{- end }}
{{- end }}

{{/* What the restricted Pod Security standard wants. */}}
{{- define "belvedere.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "belvedere.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Rules for what lies in the namespaces that are watched; see docs/howto/kubernetes-security.md. */}}
{{- define "belvedere.namespacedRules" -}}
- apiGroups: [belvedere.dev]
  resources: [viewpools]
  verbs: [get, list, watch, create, patch]
- apiGroups: [belvedere.dev]
  resources: [basetables, materializedviews]
  verbs: [list, watch, patch]
# What gateways want to see before they change definitions, and before they tell the status of a whole pool: to them
# that is reading all of it. The API server serves nothing under these names.
- apiGroups: [belvedere.dev]
  resources: [viewpools/admin]
  verbs: [update]
- apiGroups: [belvedere.dev]
  resources: [basetables/rows, materializedviews/rows]
  verbs: [get]
- apiGroups: [belvedere.dev]
  resources: [viewpools/status, basetables/status, materializedviews/status]
  verbs: [patch]
# An owner that blocks its own deletion asks for this where OwnerReferencesPermissionEnforcement is on (OpenShift).
- apiGroups: [belvedere.dev]
  resources: [viewpools/finalizers, materializedviews/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [create, patch]
# Certificates of pools, and their credentials in ZooKeeper. Who may make Deployments can mount every Secret anyway.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [list, create, patch]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [list, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create, patch]
# Drivers of Spark get the role of the chart for them, and no other one: see `bind`.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [create, patch]
{{- end }}

{{- define "belvedere.askCompiler" -}}
import urllib.request; urllib.request.urlopen('http://127.0.0.1:8090/readyz', timeout=5)
{{- end }}
