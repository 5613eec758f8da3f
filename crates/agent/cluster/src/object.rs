//! Defines the few fields of Kubernetes objects that the agent reads.
//!
//! Each field costs memory for each pod while the agent decodes a list, so this module has only fields that the agent needs.
//! Sources: the Kubernetes API reference for Pod v1, ServiceAccount v1 and ListMeta. All fields have defaults. A missing field
//! is not an error. The index ignores a pod without a UID.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use seawall_core::annotations::{AnnotationKey, Annotations, LengthCheckedAnnotation};
use seawall_core::credential_variables::CredentialVariables;
use seawall_kube::KubeStatus;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Gives the resource version of an object. Each write raises the version of the collection, and the written object gets the
/// new version.
pub(crate) trait Versioned {
    /// The value of `metadata.resourceVersion`.
    fn version(&self) -> &str;
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct ListPage<T> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) continue_token: Option<String>,
}

/// One event of a watch stream.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(crate) enum WatchEvent<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    /// A bookmark contains no object, only the position (a resource version) that the watch has reached.
    Bookmark(Bookmark),
    /// The server ends the watch with this status.
    Error(KubeStatus),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) metadata: BookmarkMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BookmarkMeta {
    pub(crate) resource_version: String,
    annotations: BookmarkAnnotations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<String>,
}

impl Bookmark {
    /// True if this bookmark ends the objects that existed when a streamed list began.
    pub(crate) fn ends_initial_events(&self) -> bool {
        self.metadata.annotations.initial_events_end.as_deref() == Some("true")
    }
}

/// The metadata fields that the agent reads from every object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMeta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) deletion_timestamp: Option<KubeTimestamp>,
    #[serde(deserialize_with = "selected")]
    pub(crate) annotations: Annotations,
}

/// The annotation keys to keep for one kind of object.
pub(crate) type KeptAnnotationKeys = Arc<[AnnotationKey]>;

thread_local! {
    /// Holds the `keys` argument of [`decode_selected`] during decoding, because derived deserializers take no parameters. If
    /// the agent filtered annotations only after decoding, each object of a list would need up to 256 KiB of memory.
    static SELECTED: RefCell<KeptAnnotationKeys> = RefCell::default();
}

/// Decodes an object, a page or an event, and keeps only the selected annotations. The decoder never stores other annotations.
pub(crate) fn decode_selected<T: DeserializeOwned>(
    text: &[u8],
    keys: &KeptAnnotationKeys,
) -> serde_json::Result<T> {
    let before = SELECTED.replace(keys.clone());
    let read = serde_json::from_slice(text);
    SELECTED.set(before);
    read
}

fn selected<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
    Ok(Option::<SelectedAnnotations>::deserialize(deserializer)?
        .map(|selected| selected.0)
        .unwrap_or_default())
}

struct SelectedAnnotations(Annotations);

impl<'de> Deserialize<'de> for SelectedAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = SELECTED.with_borrow(KeptAnnotationKeys::clone);
        deserializer.deserialize_map(SelectedVisitor(&keys)).map(Self)
    }
}

/// Keeps only the entries of a string map that have one of these keys.
struct SelectedVisitor<'k>(&'k [AnnotationKey]);

impl<'de> Visitor<'de> for SelectedVisitor<'_> {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut kept = Vec::new();
        while let Some(key) = map.next_key_seed(KeySeed(self.0))? {
            match key {
                Some(key) => kept.extend(map.next_value::<Option<BoundedText>>()?.map(|text| (key, text.0))),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(kept.into_iter().collect())
    }
}

/// Reads a map key. Returns the name under which its value is stored if it is one of these keys, and `None` otherwise. Compares the
/// key in place, without a copy.
struct KeySeed<'k>(&'k [AnnotationKey]);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|wanted| wanted.in_metadata == key).map(|wanted| wanted.stored_as))
    }
}

struct BoundedText(LengthCheckedAnnotation);

impl<'de> Deserialize<'de> for BoundedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoundedVisitor;
        impl Visitor<'_> for BoundedVisitor {
            type Value = BoundedText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<BoundedText, E> {
                Ok(BoundedText(text.into()))
            }
        }
        deserializer.deserialize_str(BoundedVisitor)
    }
}

/// A point in time as Kubernetes writes it (RFC 3339).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KubeTimestamp(pub(crate) SystemTime);

impl<'de> Deserialize<'de> for KubeTimestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let parsed: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(parsed.into()))
    }
}

/// The fields that the agent reads from a pod.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PodObject {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) service_account_name: String,
    pub(crate) host_network: bool,
    /// Of these containers, the agent keeps only which credential variables any of them has. Init containers do not count.
    pub(crate) containers: UnionOf<Container>,
}

/// The fields that the agent reads from a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Container {
    env: UnionOf<EnvVar>,
}

/// The fields that the agent reads from an environment variable.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EnvVar {
    #[serde(rename = "name", deserialize_with = "credential_variable")]
    variable: CredentialVariables,
}

impl From<Container> for CredentialVariables {
    fn from(container: Container) -> Self {
        container.env.variables
    }
}

impl From<EnvVar> for CredentialVariables {
    fn from(env: EnvVar) -> Self {
        env.variable
    }
}

fn credential_variable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CredentialVariables, D::Error> {
    Ok(CredentialVariables::of_variable(&Cow::<str>::deserialize(deserializer)?))
}

/// The credential variables of all elements of a list. Decoding keeps one element at a time, because a pod can have thousands of variables.
#[derive(Clone, Debug)]
pub(crate) struct UnionOf<T> {
    pub(crate) variables: CredentialVariables,
    element: PhantomData<T>,
}

impl<T> Default for UnionOf<T> {
    fn default() -> Self {
        Self { variables: CredentialVariables::default(), element: PhantomData }
    }
}

impl<'de, T: Deserialize<'de> + Into<CredentialVariables>> Deserialize<'de> for UnionOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnionVisitor(PhantomData))
    }
}

struct UnionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<CredentialVariables>> Visitor<'de> for UnionVisitor<T> {
    type Value = UnionOf<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(UnionOf::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut variables = CredentialVariables::default();
        while let Some(element) = list.next_element::<T>()? {
            variables = variables | element.into();
        }
        Ok(UnionOf { variables, element: PhantomData })
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodIpEntry>,
    #[serde(rename = "hostIP")]
    pub(crate) host_ip: String,
    #[serde(rename = "hostIPs")]
    pub(crate) host_ips: Vec<PodIpEntry>,
    /// The time at which the kubelet first saw the pod.
    pub(crate) start_time: Option<KubeTimestamp>,
    #[serde(rename = "conditions", deserialize_with = "sandbox")]
    pub(crate) sandbox: SandboxCondition,
    pub(crate) container_statuses: Vec<ContainerStatus>,
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
}

/// The condition `PodReadyToStartContainers`: true if the pod has a sandbox with a configured network.
///
/// Kubelets since 1.29 write the condition by default. The condition and the addresses in the same status come from the same
/// query of the container runtime. The kubelet updates the condition before it creates another sandbox. Source: KEP 3085;
/// kubernetes, pkg/kubelet/status/generate.go and kubelet.go (`SyncPod`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SandboxCondition {
    /// The status lacks the condition.
    #[default]
    Unknown,
    /// The pod has no sandbox, or the kubelet will create another sandbox.
    Absent,
    /// The pod has a sandbox. The value is the sandbox's creation time, if the status contains it.
    Ready(Option<SystemTime>),
}

/// The fields that the agent reads from a container status.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerStatus {
    state: ContainerState,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<Running>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Running {
    started_at: Option<KubeTimestamp>,
}

/// One pod condition. The agent drops the condition after decoding the status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<KubeTimestamp>,
}

fn sandbox<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SandboxCondition, D::Error> {
    let conditions = Option::<Vec<Condition>>::deserialize(deserializer)?.unwrap_or_default();
    let condition = conditions.iter().find(|condition| condition.kind == "PodReadyToStartContainers");
    Ok(match condition {
        None => SandboxCondition::Unknown,
        Some(said) if said.status == "True" => {
            SandboxCondition::Ready(said.last_transition_time.map(|time| time.0))
        }
        Some(_) => SandboxCondition::Absent,
    })
}

/// An entry of `podIPs` or `hostIPs`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodIpEntry {
    pub(crate) ip: String,
}

impl PodStatus {
    /// Returns the latest time in the status that the node's clock produced. The kubelet wrote the status after this time.
    /// Returns `None` if the status contains no such time. If a kubelet reports an address, the status always contains such a
    /// time.
    ///
    /// The transition time of the condition `Ready` does not count, because the node controller can write this time. The end
    /// times of containers do not count either: after a reboot, container runtimes set these times to the time of their own
    /// start.
    pub(crate) fn earliest_write_time(&self) -> Option<SystemTime> {
        let SandboxCondition::Ready(Some(made)) = self.sandbox else { return self.started() };
        self.started().max(Some(made))
    }

    fn started(&self) -> Option<SystemTime> {
        let containers = self.container_statuses.iter().chain(&self.init_container_statuses);
        let started = containers.filter_map(|container| container.state.running?.started_at);
        started.chain(self.start_time).map(|time| time.0).max()
    }

    /// Returns the time at which the first of the running containers started, or `None` if none runs.
    pub(crate) fn running_since(&self) -> Option<SystemTime> {
        let containers = self.container_statuses.iter().chain(&self.init_container_statuses);
        containers.filter_map(|container| container.state.running?.started_at).map(|time| time.0).min()
    }

    /// Returns the pod's own addresses in canonical form: an IPv4-mapped IPv6 address becomes the IPv4 address. The result
    /// omits invalid text and the node's own addresses, because they do not identify a pod.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let node: Vec<IpAddr> = parsed(&self.host_ip, &self.host_ips).collect();
        let mut own: Vec<IpAddr> = parsed(&self.pod_ip, &self.pod_ips)
            .filter(|ip| !(node.contains(ip) || ip.is_loopback() || ip.is_unspecified()))
            .collect();
        own.sort_unstable();
        own.dedup();
        own
    }
}

fn parsed<'a>(one: &'a str, more: &'a [PodIpEntry]) -> impl Iterator<Item = IpAddr> + 'a {
    let all = std::iter::once(one).chain(more.iter().map(|entry| entry.ip.as_str()));
    all.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical())
}

impl Versioned for PodObject {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// The metadata of an object. The agent requests no other part of the object.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PartialObject {
    #[serde(default)]
    pub(crate) metadata: ObjectMeta,
}

impl Versioned for PartialObject {
    fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_from_what_the_api_server_writes() {
        let pod: PodObject = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop","uid":"u1",
                "resourceVersion":"41","deletionTimestamp":"2026-01-01T00:00:30Z",
                "managedFields":[{"manager":"kubelet","fieldsV1":{"f:status":{}}}]},
                "spec":{"serviceAccountName":"coral","nodeName":"node1","containers":[{"name":"c","image":"i"}]},
                "status":{"phase":"Running","podIP":"10.0.0.7","hostIP":"192.0.2.1",
                "podIPs":[{"ip":"10.0.0.7"},{"ip":"fd00::7"}],"conditions":[{"type":"Ready"}]}}"#,
        )
        .unwrap();
        assert_eq!(pod.version(), "41");
        assert_eq!(pod.spec.service_account_name, "coral");
        assert!(!pod.spec.host_network);
        let own: Vec<String> = pod.status.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(own, ["10.0.0.7", "fd00::7"]);
        let end = pod.metadata.deletion_timestamp.unwrap().0;
        assert_eq!(end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), 1_767_225_630);
    }

    /// EKS's webhook adds them to the pod's containers, so the API server has them.
    #[test]
    fn variables_that_keep_sdks_from_asking_are_read_from_all_containers() {
        let variables = |containers: &str| {
            let spec: PodSpec = serde_json::from_str(&format!(r#"{{"containers":{containers}}}"#)).unwrap();
            spec.containers.variables
        };
        let irsa = CredentialVariables::of_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
        let key = CredentialVariables::of_variable("AWS_ACCESS_KEY_ID");
        let web = r#"[{"name":"a","env":[{"name":"TZ","value":"UTC"},{"name":"AWS_WEB_IDENTITY_TOKEN_FILE","value":"/x"}]},{"name":"b"},
            {"env":[{"name":"AWS_ACCESS_KEY_ID","valueFrom":{"secretKeyRef":{"key":"k"}}}]}]"#;
        assert_eq!(variables(web), irsa | key);
        for none in
            ["null", "[]", "[{}]", r#"[{"env":null}]"#, r#"[{"env":[{"value":"AWS_ACCESS_KEY_ID"}]}]"#]
        {
            assert_eq!(variables(none), CredentialVariables::default(), "{none}");
        }
    }

    #[test]
    fn addresses_that_tell_nobody_apart_are_left_out() {
        let status: PodStatus = serde_json::from_str(
            r#"{"podIP":"::ffff:10.0.0.7","hostIP":"192.0.2.1","podIPs":[{"ip":"10.0.0.7"},{"ip":"192.0.2.1"},
                {"ip":"127.0.0.1"},{"ip":"::1"},{"ip":"0.0.0.0"},{"ip":"nonsense"},{"ip":""}]}"#,
        )
        .unwrap();
        assert_eq!(status.addresses(), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
    }

    fn status(json: &str) -> PodStatus {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn of_the_sandbox_is_known_what_its_condition_says() {
        let said = |value: &str| {
            status(&format!(
                r#"{{"conditions":[{{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":null}},
                    {{"type":"PodReadyToStartContainers","status":"{value}","lastTransitionTime":"1970-01-01T00:00:07Z"}}]}}"#
            ))
        };
        let seven = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(7);
        assert_eq!(said("True").sandbox, SandboxCondition::Ready(Some(seven)));
        assert_eq!(said("True").earliest_write_time(), Some(seven));
        for no in ["False", "Unknown", ""] {
            assert_eq!(said(no).sandbox, SandboxCondition::Absent);
            assert_eq!(said(no).earliest_write_time(), None);
        }
        for unsaid in
            [r#"{"conditions":[{"type":"Ready","status":"False"}]}"#, r#"{"conditions":null}"#, "{}"]
        {
            assert_eq!(status(unsaid).sandbox, SandboxCondition::Unknown);
        }
    }

    #[test]
    fn a_status_is_as_new_as_the_latest_thing_that_it_tells_of() {
        let told = status(
            r#"{"startTime":"1970-01-01T00:00:05Z",
                "containerStatuses":[{"state":{"waiting":{"reason":"CrashLoopBackOff"}}},
                    {"state":{"running":{"startedAt":"1970-01-01T00:00:09Z"}}},
                    {"state":{"terminated":{"startedAt":"1970-01-01T00:00:20Z","finishedAt":"1970-01-01T00:00:30Z"}}}],
                "initContainerStatuses":[{"state":{"running":{"startedAt":null}}},{}]}"#,
        );
        let nine = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9);
        assert_eq!(told.earliest_write_time(), Some(nine));
        assert_eq!(status("{}").earliest_write_time(), None);
    }

    #[test]
    fn of_annotations_the_selected_are_kept_and_no_others() {
        let text = format!(
            r#"{{"metadata":{{"annotations":{{"a/x":"1","skipped":"2","k\u0065y":"3","huge":"{}","none":null}}}}}}"#,
            "x".repeat(100_000)
        );
        let kept = |keys: &[&'static str]| {
            let keys = keys.iter().map(|key| AnnotationKey::from(*key)).collect();
            decode_selected::<PodObject>(text.as_bytes(), &keys).unwrap().metadata.annotations
        };
        assert_eq!(kept(&[]), Annotations::default());
        let some = kept(&["key", "a/x", "huge", "none", "absent"]);
        assert_eq!((some.find("a/x"), some.find("key")), (Some(&"1".into()), Some(&"3".into())));
        assert_eq!(some.find("huge"), Some(&LengthCheckedAnnotation::TooLong));
        assert_eq!((some.find("skipped"), some.find("none"), some.find("absent")), (None, None, None));
        let renamed = AnnotationKey { in_metadata: "a/x".into(), stored_as: "key" };
        let pod = decode_selected::<PodObject>(text.as_bytes(), &[renamed].into()).unwrap();
        assert_eq!(
            pod.metadata.annotations.find("key"),
            Some(&"1".into()),
            "and not what `key` is on the object"
        );
        let outside: PodObject = serde_json::from_str(&text).unwrap();
        assert_eq!(
            outside.metadata.annotations,
            Annotations::default(),
            "the selection ends with the call of `read`"
        );
        for nothing in [r#"{"metadata":{"annotations":null}}"#, r#"{"metadata":{"annotations":{}}}"#] {
            let pod = decode_selected::<PodObject>(nothing.as_bytes(), &["a".into()].into()).unwrap();
            assert_eq!(pod.metadata.annotations, Annotations::default());
        }
    }

    #[test]
    fn an_empty_object_is_no_error() {
        let pod: PodObject = serde_json::from_str("{}").unwrap();
        assert!(pod.status.addresses().is_empty());
    }
}
