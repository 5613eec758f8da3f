{{/* One agent stands on each node, so one release in a cluster: names are fixed, and helm refuses a second owner of what is the cluster's. */}}

{{- define "seawall.labels" -}}
app.kubernetes.io/name: seawall-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What the agents' pods are selected by, and of the removal's none. */}}
{{- define "seawall.selector" -}}
app.kubernetes.io/name: seawall-agent
app.kubernetes.io/component: agent
{{- end }}

{{- define "seawall.image" -}}
{{- $repository := required "image.repository: expected the name of the image in a registry of yours (`make image` builds it)" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Two agents can stand beside each other on a node where neither needs a port that the other has. */}}
{{- define "seawall.hasSurge" -}}
{{- if eq .Values.mode "kernel" }}true{{ end -}}
{{- end }}

{{/* Whether nft's rules are loaded by the agent's pod. */}}
{{- define "seawall.loadsRules" -}}
{{- if and .Values.nft.image (has .Values.mode (list "kernel" "nft")) }}true{{ end -}}
{{- end }}

{{- define "seawall.keysDirectory" -}}
{{- if and .Values.config.aws .Values.keys.hostPath }}/var/lib/seawall{{ end -}}
{{- end }}

{{/* Where the redirect's programs and the pods' groups are in the containers. Not below /sys, where runtimes' AppArmor profiles deny writing. */}}
{{- define "seawall.redirectPlaces" -}}
- --bpffs=/bpf
- --cgroup=/host/cgroup
{{- with .Values.redirect.kubepods }}
- --kubepods={{ . }}
{{- end }}
{{- end }}

{{- define "seawall.redirectMounts" -}}
{{- if eq .Values.mode "kernel" }}
- name: bpf
  mountPath: /bpf
{{- end }}
- name: cgroup
  mountPath: /host/cgroup
  readOnly: true
{{- end }}

{{- define "seawall.redirectVolumes" -}}
{{- if eq .Values.mode "kernel" }}
- name: bpf
  hostPath:
    path: {{ .Values.redirect.bpffs }}
    type: Directory
{{- end }}
- name: cgroup
  hostPath:
    path: {{ .Values.redirect.cgroups }}
    type: Directory
{{- end }}

{{/* A container with these capabilities and no others. */}}
{{- define "seawall.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with . }}
  add: {{ toJson . }}
  {{- end }}
{{- end }}

{{/* The node's own network, wherever it is, root's files there. */}}
{{- define "seawall.pod" -}}
hostNetwork: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# The cloud's names, without waiting for the cluster's DNS.
dnsPolicy: Default
enableServiceLinks: false
securityContext:
  # Pins, and what the kubelet makes on a node for keys, are root's. It is root without a right but those that containers are given.
  runAsUser: 0
  seccompProfile:
    type: RuntimeDefault
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions: {{ toJson . }}
  {{- end }}
{{- end }}

{{/* Rules for nft's program in another image, written by ours, which has no other program. Needs (list root words-to-print more-arguments). */}}
{{- define "seawall.rules" -}}
{{- $root := index . 0 -}}
- name: write-rules
  image: {{ include "seawall.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
    - redirect
    - print
    - {{ index . 1 }}
    - --into=/rules/seawall.nft
    {{- range index . 2 }}
    - {{ . }}
    {{- end }}
  env:
    - name: NODE_IP
      valueFrom:
        fieldRef:
          fieldPath: status.hostIP
    - name: POD_UID
      valueFrom:
        fieldRef:
          fieldPath: metadata.uid
  securityContext:
    {{- include "seawall.rights" nil | nindent 4 }}
  volumeMounts:
    - name: rules
      mountPath: /rules
    {{- if index . 2 }}
    - name: cgroup
      mountPath: /host/cgroup
      readOnly: true
    {{- end }}
- name: load-rules
  image: {{ $root.Values.nft.image }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [nft, -f, /rules/seawall.nft]
  securityContext:
    {{- include "seawall.rights" (list "NET_ADMIN") | nindent 4 }}
  volumeMounts:
    - name: rules
      mountPath: /rules
      readOnly: true
    {{- if index . 2 }}
    # nft looks the pods' group up there, and a container's own view has none.
    - name: cgroup
      mountPath: /sys/fs/cgroup
      readOnly: true
    {{- end }}
{{- end }}

{{/* The agent's configuration: the user's, and what the mode decides. */}}
{{- define "seawall.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $identity := dict "strategy" "source-ip" -}}
{{- $port := printf "node:%d" (int .Values.port) -}}
{{- $containers := printf "node:%d" (int .Values.containersPort) -}}
{{- $redirect := dict "cgroups" "/host/cgroup" -}}
{{- with .Values.redirect.kubepods }}{{ $_ := set $redirect "kubepods" . }}{{ end -}}
{{- if eq .Values.mode "kernel" -}}
  {{- $identity = dict "strategy" "kernel" "redirect" (set $redirect "bpffs" "/bpf") -}}
  {{- $port = "node:0" -}}
  {{- $containers = "node:0" -}}
{{- else if eq .Values.mode "address" -}}
  {{- $port = "169.254.169.254:80" -}}
  {{- $containers = "169.254.170.23:80" -}}
{{- end -}}
{{- with .Values.taint }}{{ $_ := set $identity "taint" . }}{{ end -}}
{{- $listen := list $port -}}
{{- if .Values.containersEndpoint -}}
  {{- $listen = append $listen (dict "address" $containers "dialects" (list "aws-containers")) -}}
{{- end -}}
{{- $decided := dict "listen" $listen "admin" .Values.metrics.address "adminSocket" "/run/seawall/admin.sock" "identity" $identity -}}
{{- if include "seawall.keysDirectory" . -}}
  {{- $defaults := dict "aws" (dict "imds" (dict "keyFile" (printf "%s/session-tokens" (include "seawall.keysDirectory" .)))) -}}
  {{- $config = mergeOverwrite $defaults $config -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config $decided) -}}
{{- end }}

{{/* Of the configuration, what a running agent refuses to change (crates/agent/agent/src/config/reloadable.rs). */}}
{{- define "seawall.ofTheProcess" -}}
{{- $config := include "seawall.config" . | fromYaml -}}
{{- $imds := dig "aws" "imds" dict $config -}}
{{- $kept := dict "clouds" (list (empty (get $config "aws")) (empty (get $config "google"))) "keyFile" $imds.keyFile "ways" (dig "aws" "ways" list $config) -}}
{{- range list "listen" "admin" "adminSocket" "identity" "threads" "seccomp" -}}
  {{- $_ := set $kept . (get $config .) -}}
{{- end -}}
{{- range list "connections" "forwards" "longPolls" -}}
  {{- $_ := set $kept . (dig "limits" . "" $config) -}}
{{- end -}}
{{- toJson $kept -}}
{{- end }}

{{/* What cannot work is refused before anything is made: where, why, and what was expected. */}}
{{- define "seawall.refusals" -}}
{{- $config := .Values.config -}}
{{- range list "listen" "admin" "adminSocket" -}}
  {{- if hasKey $config . -}}
    {{- fail (printf "config.%s: mode %s decides it; expected no such key (ports: `port`, `containersPort`; admin: `metrics.address`)" . $.Values.mode) -}}
  {{- end -}}
{{- end -}}
{{- range list "strategy" "redirect" "file" "node" -}}
  {{- if hasKey ($config.identity | default dict) . -}}
    {{- fail (printf "config.identity.%s: mode %s decides it; expected no such key (groups and mounts: `redirect`)" . $.Values.mode) -}}
  {{- end -}}
{{- end -}}
{{- if hasKey ($config.identity | default dict) "taint" -}}
  {{- fail "config.identity.taint: it takes a permission, too; expected the key in `taint`" -}}
{{- end -}}
{{- if not (or $config.google $config.aws) -}}
  {{- fail "config: expected the section google or aws, with what it requires (see `seawall-agent config-default`)" -}}
{{- end -}}
{{- if and .Values.containersEndpoint (not $config.aws) -}}
  {{- fail "containersEndpoint: it is AWS's; expected the section config.aws beside it" -}}
{{- end -}}
{{- if and .Values.nft.image (not (has .Values.mode (list "kernel" "nft"))) -}}
  {{- fail (printf "nft.image: mode %s loads no rules; expected mode kernel or nft beside it" .Values.mode) -}}
{{- end -}}
{{- if eq (int .Values.port) (int .Values.containersPort) -}}
  {{- fail (printf "containersPort: %d is `port`, too; expected another" (int .Values.port)) -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (hasPrefix "127." .Values.metrics.address) -}}
  {{- fail (printf "metrics.serviceMonitor: nobody reaches %s from elsewhere; expected a metrics.address that Prometheus reaches, such as 0.0.0.0:8989 (it names pods and accounts to everybody who reaches it)" .Values.metrics.address) -}}
{{- end -}}
{{- if and .Values.networkPolicy.namespaces (not .Values.networkPolicy.nodes) -}}
  {{- fail "networkPolicy.nodes: expected the networks of the nodes, such as [10.0.0.0/16]" -}}
{{- end -}}
{{- if lookup "apps/v1" "DaemonSet" .Release.Namespace "seawall-removal" -}}
  {{- fail "the DaemonSet seawall-removal of an uninstallation that failed is there, and would take the programs off nodes again; expected `helm uninstall` once more, or that it is deleted" -}}
{{- end -}}
{{- $running := lookup "apps/v1" "DaemonSet" .Release.Namespace "seawall-agent" -}}
{{- $before := dig "metadata" "annotations" "seawall.dev/mode" .Values.mode ($running | default dict) -}}
{{- if ne $before .Values.mode -}}
  {{- fail (printf "mode: this release runs with %s, and what that left on the nodes would go on sending pods to where no agent of mode %s listens; expected `helm uninstall` before" $before .Values.mode) -}}
{{- end -}}
{{- end }}

{{/* A step of the removal at the API server. Needs (list root step weight arguments hook). */}}
{{- define "seawall.removalJob" }}
{{- $root := index . 0 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: seawall-removal-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  annotations:
    {{- toYaml (set (deepCopy (index . 4)) "helm.sh/hook-weight" (toString (index . 2))) | nindent 4 }}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: seawall-removal
        app.kubernetes.io/component: {{ index . 1 }}
    spec:
      {{- include "seawall.pod" $root | nindent 6 }}
      tolerations: [{ operator: Exists }]
      nodeSelector: { kubernetes.io/os: linux }
      {{- with $root.Values.affinity }}
      affinity: {{ toJson . }}
      {{- end }}
      restartPolicy: Never
      serviceAccountName: seawall-removal
      containers:
        - name: retire
          image: {{ include "seawall.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - retire
            - {{ index . 1 }}
            - --namespace={{ $root.Release.Namespace }}
            - --within={{ $root.Values.removal.patience }}
            {{- range index . 3 }}
            - {{ . }}
            {{- end }}
          {{- with $root.Values.env }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- include "seawall.rights" nil | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
{{- end }}
