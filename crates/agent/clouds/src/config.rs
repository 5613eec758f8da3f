//! The clouds' sections of the configuration: the enabled clouds and the settings of each.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use seawall_config::{DocumentTable, values};
use seawall_core::ServiceAccount;
use seawall_core::annotations::AnnotationKeys;
use seawall_core::attestation::IdentityFileKey;
use seawall_core::cloud::{CloudName, DialectName};
use serde::Serialize;

use super::real_server::{self, RealServer};
use super::reloadable_keys::ReloadableKeys;
use super::{aws, google};

/// The clouds' sections of the configuration. A cloud without a section is disabled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudsConfig {
    /// The `google` section.
    pub google: Option<google::GoogleConfig>,
    /// The `aws` section.
    pub aws: Option<aws::AwsConfig>,
    /// The ServiceAccounts whose pods use the node's real metadata server and get the node's credentials.
    #[serde(serialize_with = "values::serialize_as_texts")]
    pub real_server: Vec<ServiceAccount>,
}

impl CloudsConfig {
    /// Returns the keys of a cloud's section, by their behaviour at a reload.
    pub fn reloadable_keys(cloud: CloudName) -> ReloadableKeys {
        match cloud {
            CloudName::Google => google::RELOADABLE_KEYS,
            CloudName::Aws => aws::RELOADABLE_KEYS,
        }
    }

    /// Splits a full key such as `aws.region` at the first dot. Returns the keys of that cloud by their behaviour at a reload,
    /// and the key within the section (`region`).
    pub fn reloadable_keys_and_section_key(key: &str) -> Option<(ReloadableKeys, &str)> {
        let (section, key) = key.split_once('.')?;
        let cloud = CloudName::ALL.iter().find(|cloud| cloud.as_str() == section)?;
        Some((Self::reloadable_keys(*cloud), key))
    }

    /// Reads the sections of all clouds. `listen` contains the addresses at which the agent itself listens.
    pub fn read(root: &DocumentTable<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let google = root.node_of_key("google");
        let aws = root.node_of_key("aws");
        let sections = Self {
            google: google.is_present().then(|| google::GoogleConfig::read(&google, base, listen)),
            aws: aws.is_present().then(|| aws::AwsConfig::read(&aws, base, listen)),
            real_server: real_server::read_service_accounts(root),
        };
        if !sections.real_server.is_empty() {
            let RealServer { google_url, imds_url, .. } = sections.real_server();
            let urls = BTreeSet::from([google_url, imds_url]);
            urls.iter().for_each(|url| real_server::reject_own_listener(root, url, listen));
        }
        sections
    }

    /// Returns the list of `realServer` with the URLs of the real server.
    pub(super) fn real_server(&self) -> RealServer {
        let google = self.google.as_ref().map(|google| google.upstream_url.as_str());
        let imds = self.aws.as_ref().map(aws::AwsConfig::upstream_url);
        RealServer::new(&self.real_server, google, imds)
    }

    /// Returns the cloud keys that are allowed in the identity file. The result includes keys of disabled clouds, because the
    /// agent checks the whole file.
    pub fn identity_file_keys() -> Vec<IdentityFileKey> {
        [google::IDENTITY_FILE_ANNOTATION_KEYS, aws::IDENTITY_FILE_ANNOTATION_KEYS].concat()
    }

    /// Returns the names of the enabled clouds.
    pub fn names(&self) -> Vec<CloudName> {
        let Self { google, aws, .. } = self;
        named([(CloudName::Google, google.is_some()), (CloudName::Aws, aws.is_some())])
    }

    /// Returns the dialects of the enabled clouds.
    pub fn enabled_dialects(&self) -> Vec<DialectName> {
        let on = self.names();
        DialectName::ALL.iter().copied().filter(|dialect| on.contains(&dialect.cloud())).collect()
    }

    /// Returns the clouds that are enabled in both configurations and whose sections differ. If `realServer` differs, these are
    /// all clouds that are enabled in both, because the entitlements of its pods to each cloud change.
    pub fn changed_clouds(&self, other: &Self) -> Vec<CloudName> {
        fn is_changed<S: PartialEq>(one: Option<&S>, other: Option<&S>) -> bool {
            one.zip(other).is_some_and(|(one, other)| one != other)
        }
        let Self { google, aws, real_server } = self;
        if *real_server != other.real_server {
            let mut both = self.names();
            both.retain(|name| other.names().contains(name));
            return both;
        }
        named([
            (CloudName::Google, is_changed(google.as_ref(), other.google.as_ref())),
            (CloudName::Aws, is_changed(aws.as_ref(), other.aws.as_ref())),
        ])
    }

    /// Returns the annotation keys that the enabled clouds need.
    pub fn annotation_keys(&self) -> Vec<AnnotationKeys> {
        let Self { google, aws, .. } = self;
        let google = google.as_ref().map(google::GoogleConfig::annotation_keys);
        let aws = aws.as_ref().map(aws::AwsConfig::annotation_keys);
        [google, aws].into_iter().flatten().collect()
    }

    /// True if an enabled cloud writes a file while the agent serves.
    pub fn writes_files(&self) -> bool {
        self.aws.as_ref().is_some_and(aws::AwsConfig::writes_files)
    }

    /// True if what a pod gets depends on the pod: an enabled cloud gives pods their own credentials, or `realServer` names some.
    /// Then the agent must identify each pod.
    pub fn needs_pod_identity(&self) -> bool {
        let Self { google, aws, real_server } = self;
        google.as_ref().is_some_and(google::GoogleConfig::needs_pod_identity)
            || aws.is_some()
            || !real_server.is_empty()
    }
}

/// Returns the names of the clouds whose flag is true.
fn named<const N: usize>(clouds: [(CloudName, bool); N]) -> Vec<CloudName> {
    clouds.into_iter().filter_map(|(name, is_so)| is_so.then_some(name)).collect()
}
