{{/* A cluster has one release, because each node runs one agent. Names are fixed: Helm refuses a second release that owns the same objects. */}}

{{- define "seawall.labels" -}}
app.kubernetes.io/name: seawall-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels of the uninstall hook's objects. */}}
{{- define "seawall.uninstallLabels" -}}
app.kubernetes.io/name: seawall-uninstall
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Not empty if the agent serves the credentials endpoint for containers. With `auto`, it does where the redirect captures that address and pods can
have EKS Pod Identity associations, because such pods would otherwise be refused. */}}
{{- define "seawall.containersEndpoint" -}}
{{- $wanted := toString .Values.containersEndpoint -}}
{{- $aws := (.Values.config | default dict).aws | default dict -}}
{{- if eq $wanted "true" -}}true
{{- else if and (eq $wanted "auto") (has .Values.mode (list "kernel" "nft")) (has "pod-identity" ($aws.roleSources | default list)) -}}true
{{- end -}}
{{- end }}

{{/* The labels that select the agents' pods, but not the pods of the uninstall hook. */}}
{{- define "seawall.selector" -}}
app.kubernetes.io/name: seawall-agent
app.kubernetes.io/component: agent
{{- end }}

{{- define "seawall.image" -}}
{{- $repository := required "image.repository: expected the name of the image in your registry; build the image with `make image`" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Set if two agents can run on one node at the same time, because each port has a second one. */}}
{{- define "seawall.hasSurge" -}}
{{- if eq .Values.mode "kernel" }}true{{ end -}}
{{- end }}

{{/* Set if the agent's pod loads nftables rules with the program nft. */}}
{{- define "seawall.loadsRules" -}}
{{- if and .Values.nft.image (eq .Values.mode "nft") }}true{{ end -}}
{{- end }}

{{- define "seawall.sessionTokenKeysDirectory" -}}
{{- if and .Values.config.aws .Values.sessionTokenKeys.hostPath }}/var/lib/seawall{{ end -}}
{{- end }}

{{/* The node's addresses: the first one, and all of them, separated by commas. NODE_IPS is empty while the kubelet reports no list. */}}
{{- define "seawall.nodeAddressEnv" -}}
- name: NODE_IP
  valueFrom:
    fieldRef:
      fieldPath: status.hostIP
- name: NODE_IPS
  valueFrom:
    fieldRef:
      fieldPath: status.hostIPs
{{- end }}

{{/* The flags with the node's addresses. The first must be the address by which `attach` recognises the node's network. */}}
{{- define "seawall.nodeAddresses" -}}
- --node-address=$(NODE_IP)
- --node-address=$(NODE_IPS)
{{- $identity := (.Values.config | default dict).identity | default dict }}
{{- if $identity.egressRanges }}
- --find-ipv4
{{- end }}
{{- end }}

{{/* The API server's address, for each container that reads it. The kubelet sets these variables to the address of the
Service `kubernetes`, except in containers that set them. */}}
{{- define "seawall.apiServerEnv" -}}
{{- if .Values.apiServer.host -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ int .Values.apiServer.port | quote }}
{{- end }}
{{- end }}

{{/* The environment variables of the agent, and of the container that checks its configuration. */}}
{{- define "seawall.agentEnv" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{ include "seawall.nodeAddressEnv" . }}
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
{{- with include "seawall.apiServerEnv" . }}
{{ . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The files of the agent, and of the container that checks its configuration. */}}
{{- define "seawall.agentMounts" -}}
- name: config
  mountPath: /etc/seawall
  readOnly: true
- name: run
  mountPath: /run/seawall
{{- with include "seawall.sessionTokenKeysDirectory" . }}
- name: keys
  mountPath: {{ . }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Paths of the BPF file system and of the cgroup tree in the containers. AppArmor profiles of runtimes deny writing below /sys. */}}
{{- define "seawall.redirectPlaces" -}}
- --bpffs=/bpf
- --cgroup-root=/host/cgroup
{{- with .Values.redirect.kubepodsCgroup }}
- --kubepods-cgroup={{ . }}
{{- end }}
{{- end }}

{{/* The flags with the agents' fixed ports, which no other translation of the node may lead elsewhere. */}}
{{- define "seawall.agentPorts" -}}
{{ include "seawall.nodeAddresses" . }}
- --agent-ports={{ include "seawall.ports" . }}
{{- end }}

{{/* The agents' ports in mode kernel. */}}
{{- define "seawall.ports" -}}
{{ int .Values.port }},{{ int .Values.secondPort }}{{ if include "seawall.containersEndpoint" . }},{{ int .Values.containersPort }},{{ int .Values.secondContainersPort }}{{ end }}
{{- end }}

{{/* The ports that a network policy of a mode opens. */}}
{{- define "seawall.policyPorts" -}}
{{- if eq .Values.mode "address" }}80
{{- else if eq .Values.mode "kernel" }}{{ include "seawall.ports" . }}
{{- else }}{{ int .Values.port }}{{ if include "seawall.containersEndpoint" . }},{{ int .Values.containersPort }}{{ end }}
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
    path: {{ .Values.redirect.cgroupRoot }}
    type: Directory
{{- end }}

{{/* The security context of a container with only these capabilities. */}}
{{- define "seawall.rights" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with . }}
  add: {{ toJson . }}
  {{- end }}
{{- end }}

{{/* The pod settings that all pods of the chart share: the node's network, and root for the node's files. */}}
{{- define "seawall.pod" -}}
hostNetwork: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# The agent resolves the names of cloud services with the node's name servers, so it does not wait for the cluster's DNS.
dnsPolicy: Default
enableServiceLinks: false
securityContext:
  # Root owns the pins and the key folder that the kubelet creates. The pod's root has only the capabilities that its containers list.
  runAsUser: 0
  seccompProfile:
    type: RuntimeDefault
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions: {{ toJson . }}
  {{- end }}
{{- end }}

{{/* Two containers: the agent's image writes nftables rules, and an image with nft loads them. Needs (list root words-to-print more-arguments). */}}
{{- define "seawall.rules" -}}
{{- $root := index . 0 -}}
- name: write-rules
  image: {{ include "seawall.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
    - redirect
    - print
    - {{ index . 1 }}
    - --output=/rules/seawall.nft
    {{- range index . 2 }}
    - {{ . }}
    {{- end }}
  env:
    {{- include "seawall.nodeAddressEnv" $root | nindent 4 }}
    - name: POD_UID
      valueFrom:
        fieldRef:
          fieldPath: metadata.uid
  securityContext:
    {{- include "seawall.rights" nil | nindent 4 }}
  volumeMounts:
    - name: rules
      mountPath: /rules
    - name: cgroup
      mountPath: /host/cgroup
      readOnly: true
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
    # nft looks up the pods' cgroup below /sys/fs/cgroup. The container's own cgroup tree does not contain the pods' cgroup.
    - name: cgroup
      mountPath: /sys/fs/cgroup
      readOnly: true
{{- end }}

{{/* The agent's configuration: the user's keys and the keys that the mode sets. */}}
{{- define "seawall.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $identity := dict "strategy" "source-ip" -}}
{{- $port := printf "node:%d" (int .Values.port) -}}
{{- $containers := dict "address" (printf "node:%d" (int .Values.containersPort)) -}}
{{- $redirect := dict "cgroupRoot" "/host/cgroup" -}}
{{- with .Values.redirect.kubepodsCgroup }}{{ $_ := set $redirect "kubepodsCgroup" . }}{{ end -}}
{{- if eq .Values.mode "kernel" -}}
  {{- $identity = dict "strategy" "kernel" "redirect" (set $redirect "bpffs" "/bpf") -}}
  {{- $port = dict "address" $port "secondPort" (int .Values.secondPort) -}}
  {{- $_ := set $containers "secondPort" (int .Values.secondContainersPort) -}}
{{- else if eq .Values.mode "address" -}}
  {{- $port = "169.254.169.254:80" -}}
  {{- $containers = dict "address" "169.254.170.23:80" -}}
{{- end -}}
{{- with .Values.startupTaint }}{{ $_ := set $identity "startupTaint" . }}{{ end -}}
{{- $listen := list $port -}}
{{- if include "seawall.containersEndpoint" . -}}
  {{- $listen = append $listen (set $containers "dialects" (list "aws-containers")) -}}
{{- end -}}
{{- $decided := dict "listen" $listen "admin" .Values.adminAddress "adminSocket" "/run/seawall/admin.sock" "identity" $identity -}}
{{- if include "seawall.sessionTokenKeysDirectory" . -}}
  {{- $defaults := dict "aws" (dict "imds" (dict "tokenKeyFile" (printf "%s/session-tokens" (include "seawall.sessionTokenKeysDirectory" .)))) -}}
  {{- $config = mergeOverwrite $defaults $config -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config $decided) -}}
{{- end }}

{{/* The part of the configuration that needs a restart of the agent (crates/agent/agent/src/config/reloadable.rs). */}}
{{- define "seawall.restartConfig" -}}
{{- $config := include "seawall.config" . | fromYaml -}}
{{- $aws := get $config "aws" | default dict -}}
{{- $imds := get $aws "imds" | default dict -}}
{{- $kept := dict "clouds" (list (empty (get $config "aws")) (empty (get $config "google"))) "tokenKeyFile" $imds.tokenKeyFile "roleSources" (get $aws "roleSources" | default list) "irsaAnnotationPrefix" $aws.irsaAnnotationPrefix -}}
{{- range list "listen" "admin" "adminSocket" "identity" "threads" "seccomp" -}}
  {{- $_ := set $kept . (get $config .) -}}
{{- end -}}
{{- range list "connections" "longPolls" "upstreamRequests" -}}
  {{- $_ := set $kept . (dig . "" (get $config "limits" | default dict)) -}}
{{- end -}}
{{- toJson $kept -}}
{{- end }}

{{/* Fails for values that cannot work, before Helm creates anything. Each message has the value, the reason and what was expected. */}}
{{- define "seawall.refusals" -}}
{{- $config := .Values.config -}}
{{- range list "listen" "admin" "adminSocket" -}}
  {{- if hasKey $config . -}}
    {{- fail (printf "config.%s: mode %s sets this key; expected it to be absent (set `port`, `containersPort` and `adminAddress` instead)" . $.Values.mode) -}}
  {{- end -}}
{{- end -}}
{{- range list "strategy" "redirect" "file" "nodeName" -}}
  {{- if hasKey ($config.identity | default dict) . -}}
    {{- fail (printf "config.identity.%s: mode %s sets this key; expected it to be absent (set the values of `redirect` instead)" . $.Values.mode) -}}
  {{- end -}}
{{- end -}}
{{- if hasKey ($config.identity | default dict) "startupTaint" -}}
  {{- fail "config.identity.startupTaint: the chart must also add a permission; expected the taint in the value `startupTaint`" -}}
{{- end -}}
{{- if not (or $config.google $config.aws) -}}
  {{- fail "config: expected a section google or aws with its required keys (see `seawall-agent config-default`)" -}}
{{- end -}}
{{- if .Values.admission.enabled -}}
  {{- $google := $config.google | default dict -}}
  {{- $aws := $config.aws | default dict -}}
  {{- $wanted := list $google.tokenAudience $aws.irsaAudience ($aws.credentials | default dict).audience -}}
  {{- if and (eq (toString $google.exchange) "identitybindingtoken") (not $google.tokenAudience) -}}
    {{- $wanted = append $wanted ($google.workloadPool | default (printf "%v.svc.id.goog" $google.projectId)) -}}
  {{- end -}}
  {{- range compact $wanted -}}
    {{- $isOfCloud := or (regexMatch "^(https:)?//iam[.]googleapis[.]com/projects/[0-9]+/locations/global/workloadIdentityPools/" .) (has . (list "sts.amazonaws.com" "pods.eks.amazonaws.com" "api://AzureADTokenExchange")) -}}
    {{- if not (or $isOfCloud (has . $.Values.admission.extraAudiences)) -}}
      {{- fail (printf "admission.extraAudiences: config needs tokens for the audience %s, and the admission policy would refuse them; expected it in this list. If the API server accepts the audience, as GKE's does for PROJECT.svc.id.goog, whoever steals the agent's token can make tokens for the API server" .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (include "seawall.containersEndpoint" .) (not $config.aws) -}}
  {{- fail "containersEndpoint: this is an endpoint of AWS; expected a section config.aws" -}}
{{- end -}}
{{- if and .Values.nft.image (ne .Values.mode "nft") -}}
  {{- fail (printf "nft.image: mode %s does not use it (in mode kernel, `redirect.dropRules` needs no image); expected mode nft" .Values.mode) -}}
{{- end -}}
{{- $ports := list (int .Values.port) (int .Values.secondPort) (int .Values.containersPort) (int .Values.secondContainersPort) -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
  {{- fail (printf "port, secondPort, containersPort, secondContainersPort: found %s; expected four different ports" (toJson $ports)) -}}
{{- end -}}
{{- if and (not .Values.apiServer.host) (ne (int .Values.apiServer.port) 443) -}}
  {{- fail (printf "apiServer.port: found %d without apiServer.host; expected both, such as 10.0.0.5 and 6443" (int .Values.apiServer.port)) -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if and $.Values.apiServer.host (has .name (list "KUBERNETES_SERVICE_HOST" "KUBERNETES_SERVICE_PORT")) -}}
    {{- fail (printf "extraEnv: %s is set by `apiServer`, too; expected it in one of the two" .name) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (hasPrefix "127." .Values.adminAddress) -}}
  {{- fail (printf "metrics.serviceMonitor: Prometheus cannot reach the adminAddress %s; expected an address such as 0.0.0.0:8989 (warnings of /readyz can name accounts, so let only Prometheus reach it)" .Values.adminAddress) -}}
{{- end -}}
{{- if and .Values.networkPolicy.namespaces (not .Values.networkPolicy.cilium) (not .Values.networkPolicy.nodeCidrs) -}}
  {{- fail "networkPolicy.nodeCidrs: expected the networks of the nodes, such as [10.0.0.0/16]" -}}
{{- end -}}
{{- /* Without a cluster, as in `helm template`, there is nothing to look up. */ -}}
{{- if .Values.checkHook.enabled -}}
  {{- $labels := dig "metadata" "labels" dict (lookup "v1" "Namespace" "" .Release.Namespace | default dict) -}}
  {{- $enforced := get $labels "pod-security.kubernetes.io/enforce" | default "privileged" -}}
  {{- if ne $enforced "privileged" -}}
    {{- $other := ternary "" ", or install into a namespace of its own" .Release.IsUpgrade -}}
    {{- fail (printf "the namespace %s enforces the Pod Security level %s, which refuses the agent's pods (they use the node's network and paths of the node); run `kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged`%s" .Release.Namespace $enforced .Release.Namespace $other) -}}
  {{- end -}}
{{- end -}}
{{- if lookup "apps/v1" "DaemonSet" .Release.Namespace "seawall-uninstall" -}}
  {{- fail "an earlier uninstall failed and left the DaemonSet seawall-uninstall, which would remove the programs from nodes again; run `helm uninstall` again, or delete that DaemonSet" -}}
{{- end -}}
{{- $running := lookup "apps/v1" "DaemonSet" .Release.Namespace "seawall-agent" -}}
{{- $before := dig "metadata" "annotations" "seawall.dev/mode" .Values.mode ($running | default dict) -}}
{{- if ne $before .Values.mode -}}
  {{- fail (printf "mode: this release runs in mode %s, and its programs or rules on the nodes would send pods to a port where no agent of mode %s listens; run `helm uninstall` first" $before .Values.mode) -}}
{{- end -}}
{{- end }}

{{/* A Job that runs one step of the uninstall hook. Needs (list root step weight arguments hook). */}}
{{- define "seawall.uninstallJob" }}
{{- $root := index . 0 }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: seawall-uninstall-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "seawall.uninstallLabels" $root | nindent 4 }}
  annotations:
    {{- toYaml (set (deepCopy (index . 4)) "helm.sh/hook-weight" (toString (index . 2))) | nindent 4 }}
spec:
  backoffLimit: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: seawall-uninstall
        app.kubernetes.io/component: {{ index . 1 }}
    spec:
      {{- include "seawall.pod" $root | nindent 6 }}
      tolerations: [{ operator: Exists }]
      nodeSelector: { kubernetes.io/os: linux }
      {{- with $root.Values.affinity }}
      affinity: {{ toJson . }}
      {{- end }}
      restartPolicy: Never
      serviceAccountName: seawall-uninstall
      containers:
        - name: uninstall
          image: {{ include "seawall.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - uninstall
            - {{ index . 1 }}
            - --namespace={{ $root.Release.Namespace }}
            - --timeout={{ $root.Values.uninstallHook.timeout }}
            {{- range index . 3 }}
            - {{ . }}
            {{- end }}
          {{- with concat (include "seawall.apiServerEnv" $root | fromYamlArray) ($root.Values.extraEnv | default list) }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            {{- include "seawall.rights" nil | nindent 12 }}
          resources:
            {{- toYaml $root.Values.uninstallHook.resources | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
{{- end }}
