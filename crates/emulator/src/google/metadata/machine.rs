//! The metadata tree of one virtual machine, a node of a Kubernetes cluster.
//!
//! Names and formats: cloud.google.com/compute/docs/metadata/predefined-metadata-keys; salrashid123/gce_metadata_server `config.json`. The
//! values are invented.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tree::{GeneratedValue, MetadataNode};

/// The mark of every secret value: an attribute `x` that a node must hide from its pods has the value `MARK:x`. A concealing proxy must
/// never return it.
///
/// The mark is in `kube-env` (in all three versions of the tree) and in the other attributes for bootstrapping a node or logging into it.
/// The machine's identity token must be hidden, too; it is signed and has no mark.
pub const SECRET_VALUE_MARKER: &str = "SEAWALL-EMULATOR-CONCEALED";

/// The attributes that only the node may see.
const SECRET_ATTRIBUTES: [&str; 5] = ["configure-sh", "kube-env", "kubelet-config", "ssh-keys", "user-data"];

/// The virtual machine and its project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GceMachine {
    /// The project id.
    pub project: String,
    /// The project number.
    pub project_number: i64,
    /// The zone, such as `europe-west1-b`.
    pub zone: String,
    /// The name of the instance.
    pub name: String,
    /// The id of the instance.
    pub id: i64,
    /// The e-mail of the machine's own service account.
    pub service_account: String,
    /// The name of the machine's Kubernetes cluster.
    pub cluster: String,
}

impl Default for GceMachine {
    fn default() -> Self {
        Self {
            project: "seawall-emulator".into(),
            project_number: 123_456_789_012,
            zone: "europe-west1-b".into(),
            name: "node-1".into(),
            id: 8_087_716_956_832_600_001,
            service_account: "node@seawall-emulator.iam.gserviceaccount.com".into(),
            cluster: "reef".into(),
        }
    }
}

/// Returns the scopes of the machine's own token.
pub(super) fn machine_token_scopes() -> Vec<String> {
    ["cloud-platform", "userinfo.email"]
        .map(|name| format!("https://www.googleapis.com/auth/{name}"))
        .to_vec()
}

/// Sets an attribute in every version of the tree.
pub(super) fn set_instance_attribute(root: &mut MetadataNode, name: &str, value: &str) {
    for path in [
        &["0.1", "meta-data"][..],
        &["computeMetadata", "v1", "instance"],
        &["computeMetadata", "v1beta1", "instance"],
    ] {
        let mut node = Some(&mut *root);
        for step in path.iter().chain(&["attributes"]) {
            node = node.and_then(|node| match node {
                MetadataNode::Directory(children) => children.get_mut(*step),
                _ => None,
            });
        }
        if let Some(MetadataNode::VerbatimDirectory(attributes)) = node {
            attributes.insert(name.to_owned(), text(value));
        }
    }
}

fn directory<const N: usize>(children: [(&str, MetadataNode); N]) -> MetadataNode {
    MetadataNode::Directory(named(children))
}

fn named<const N: usize>(children: [(&str, MetadataNode); N]) -> BTreeMap<String, MetadataNode> {
    children.into_iter().map(|(name, child)| (name.to_owned(), child)).collect()
}

fn text(value: impl Into<String>) -> MetadataNode {
    MetadataNode::Text(value.into())
}

fn empty() -> MetadataNode {
    MetadataNode::VerbatimDirectory(BTreeMap::new())
}

fn concealed(name: &str) -> MetadataNode {
    text(format!("{SECRET_VALUE_MARKER}:{name}"))
}

impl GceMachine {
    /// Returns the whole tree.
    pub(super) fn tree(&self) -> MetadataNode {
        let current = [("instance", self.instance()), ("project", self.project())];
        let mut v1 = named(current.clone());
        v1.insert("oslogin".into(), directory([("authenticate", directory([("sessions", empty())]))]));
        v1.insert("universe".into(), directory([("universe-domain", text("googleapis.com"))]));
        directory([
            ("0.1", directory([("meta-data", self.first_version())])),
            (
                "computeMetadata",
                directory([("v1", MetadataNode::Directory(v1)), ("v1beta1", directory(current))]),
            ),
        ])
    }

    fn project(&self) -> MetadataNode {
        directory([
            (
                "attributes",
                MetadataNode::VerbatimDirectory(named([("ssh-keys", concealed("project-ssh-keys"))])),
            ),
            ("numeric-project-id", MetadataNode::Number(self.project_number)),
            ("project-id", text(&self.project)),
        ])
    }

    fn instance(&self) -> MetadataNode {
        directory([
            ("attributes", self.attributes()),
            ("cpu-platform", text("AMD Rome")),
            ("description", text("")),
            ("disks", MetadataNode::Array(vec![self.disk()])),
            ("guest-attributes", empty()),
            ("hostname", text(self.hostname())),
            ("id", MetadataNode::Number(self.id)),
            ("image", text(Self::image())),
            ("licenses", MetadataNode::Array(vec![directory([("id", text("1001010"))])])),
            ("machine-type", text(self.machine_type())),
            ("maintenance-event", text("NONE")),
            ("name", text(&self.name)),
            ("network-interfaces", MetadataNode::Array(vec![self.network_interface()])),
            ("partner-attributes", empty()),
            ("preempted", text("FALSE")),
            ("remaining-cpu-time", MetadataNode::Number(-1)),
            ("scheduling", Self::scheduling()),
            ("service-accounts", self.service_accounts(GeneratedValue::Token)),
            ("tags", Self::tags()),
            ("virtual-clock", directory([("drift-token", text("0"))])),
            ("zone", text(self.zone_path())),
        ])
    }

    /// Returns the tree of the first API version, without directories.
    fn first_version(&self) -> MetadataNode {
        directory([
            ("attributes", self.attributes()),
            ("authorized-keys", concealed("authorized-keys")),
            ("description", text("")),
            ("domain", text(self.domain())),
            ("hostname", text(self.hostname())),
            ("image", text(Self::image())),
            ("instance-id", text(self.id.to_string())),
            ("machine-type", text(self.machine_type())),
            ("numeric-project-id", text(self.project_number.to_string())),
            ("project-id", text(&self.project)),
            ("service-accounts", self.service_accounts(GeneratedValue::LegacyToken)),
            ("tags", Self::tags()),
            ("zone", text(self.zone_path())),
        ])
    }

    fn attributes(&self) -> MetadataNode {
        let open = named([
            ("cluster-location", text(self.region())),
            ("cluster-name", text(&self.cluster)),
            ("cluster-uid", text("3f6a5a1c9d2b4e7f8a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f")),
            ("disable-legacy-endpoints", text("false")),
            ("enable-oslogin", text("false")),
        ]);
        let secret = SECRET_ATTRIBUTES.map(|name| (name.to_owned(), concealed(name)));
        MetadataNode::VerbatimDirectory(open.into_iter().chain(secret).collect())
    }

    fn disk(&self) -> MetadataNode {
        directory([
            ("device-name", text(&self.name)),
            ("index", MetadataNode::Number(0)),
            ("interface", text("SCSI")),
            ("mode", text("READ_WRITE")),
            ("type", text("PERSISTENT-BALANCED")),
        ])
    }

    fn network_interface(&self) -> MetadataNode {
        // Addresses from the documentation ranges (RFC 5737).
        let access = directory([("external-ip", text("203.0.113.10")), ("type", text("ONE_TO_ONE_NAT"))]);
        directory([
            ("access-configs", MetadataNode::Array(vec![access])),
            ("dns-servers", MetadataNode::Lines(vec!["169.254.169.254".into()])),
            ("forwarded-ips", MetadataNode::Array(Vec::new())),
            ("gateway", text("192.0.2.1")),
            ("ip", text("192.0.2.10")),
            ("ip-aliases", MetadataNode::Array(Vec::new())),
            ("mac", text("42:01:c0:00:02:0a")),
            ("mtu", MetadataNode::Number(1460)),
            ("network", text(format!("projects/{}/networks/default", self.project_number))),
            ("subnetmask", text("255.255.255.0")),
            ("target-instance-ips", MetadataNode::Lines(Vec::new())),
        ])
    }

    fn scheduling() -> MetadataNode {
        directory([
            ("automatic-restart", text("TRUE")),
            ("on-host-maintenance", text("MIGRATE")),
            ("preemptible", text("FALSE")),
        ])
    }

    fn service_accounts(&self, token: GeneratedValue) -> MetadataNode {
        let name = if token == GeneratedValue::LegacyToken { "acquire" } else { "token" };
        let account = directory([
            ("aliases", MetadataNode::Lines(vec!["default".into()])),
            ("email", text(&self.service_account)),
            ("identity", MetadataNode::Generated(GeneratedValue::Identity)),
            ("scopes", MetadataNode::Lines(machine_token_scopes())),
            (name, MetadataNode::Generated(token)),
        ]);
        MetadataNode::VerbatimDirectory(named([
            ("default", account.clone()),
            (&self.service_account, account),
        ]))
    }

    fn tags() -> MetadataNode {
        MetadataNode::JsonList(vec!["node".into()])
    }

    fn image() -> &'static str {
        "projects/gke-node-images/global/images/gke-1340-cos"
    }

    fn hostname(&self) -> String {
        format!("{}.{}", self.name, self.domain())
    }

    fn domain(&self) -> String {
        format!("{}.c.{}.internal", self.zone, self.project)
    }

    fn machine_type(&self) -> String {
        format!("projects/{}/machineTypes/e2-standard-4", self.project_number)
    }

    fn zone_path(&self) -> String {
        format!("projects/{}/zones/{}", self.project_number, self.zone)
    }

    fn region(&self) -> &str {
        self.zone.rsplit_once('-').map_or(&self.zone, |(region, _)| region)
    }

    /// Returns the claims about the machine in an identity token with `format=full`
    /// (cloud.google.com/compute/docs/instances/verifying-instance-identity).
    pub(super) fn compute_engine_claims(&self, now: u64) -> Value {
        json!({
            "instance_creation_timestamp": now.saturating_sub(86_400),
            "instance_id": self.id.to_string(),
            "instance_name": self.name,
            "project_id": self.project,
            "project_number": self.project_number,
            "zone": self.zone,
        })
    }
}
