//! The clouds' sections of the configuration: which clouds are on, and what each is told.
//!
//! A closed set, with a field for each cloud. What a section says is read in the cloud's folder.

use std::net::SocketAddr;
use std::path::Path;

use seawall_config::DocumentTable;
use seawall_core::annotations::AnnotationKeys;
use seawall_core::attestation::IdentityFileKey;
use seawall_core::cloud::{CloudName, DialectName};
use serde::Serialize;

use super::reloadable_keys::ReloadableKeys;
use super::{aws, google};

/// The clouds' sections of the configuration; those that are not there are off.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CloudsConfig {
    /// `google`.
    pub google: Option<google::GoogleConfig>,
    /// `aws`.
    pub aws: Option<aws::AwsConfig>,
}

impl CloudsConfig {
    /// The classes of a cloud's keys, by the cloud's name.
    pub fn reloadable_keys(cloud: CloudName) -> ReloadableKeys {
        match cloud {
            CloudName::Google => google::KEYS,
            CloudName::Aws => aws::KEYS,
        }
    }

    /// Of a key of some cloud's: the classes of that cloud's keys, and the key in its section.
    pub fn find_reloadable_keys(key: &str) -> Option<(ReloadableKeys, &str)> {
        let (section, key) = key.split_once('.')?;
        let cloud = CloudName::ALL.iter().find(|cloud| cloud.as_str() == section)?;
        Some((Self::reloadable_keys(*cloud), key))
    }

    /// Reads all of them. `listen` is where the agent listens itself.
    pub fn read(root: &DocumentTable<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let google = root.key("google");
        let aws = root.key("aws");
        Self {
            google: google.is_present().then(|| google::GoogleConfig::read(&google, base, listen)),
            aws: aws.is_present().then(|| aws::AwsConfig::read(&aws, base, listen)),
        }
    }

    /// What an entry in a file of pods may say, whichever are on: a file is checked as a whole.
    pub fn file_keys() -> Vec<IdentityFileKey> {
        [google::FILE_KEYS, aws::FILE_KEYS].concat()
    }

    /// The names of those that are on.
    pub fn names(&self) -> Vec<CloudName> {
        let Self { google, aws } = self;
        named([(CloudName::Google, google.is_some()), (CloudName::Aws, aws.is_some())])
    }

    /// Their dialects.
    pub fn dialects(&self) -> Vec<DialectName> {
        let on = self.names();
        DialectName::ALL.iter().copied().filter(|dialect| on.contains(&dialect.cloud())).collect()
    }

    /// Those that are on in both and say something else.
    pub fn changed(&self, other: &Self) -> Vec<CloudName> {
        fn is_changed<S: PartialEq>(one: Option<&S>, other: Option<&S>) -> bool {
            one.zip(other).is_some_and(|(one, other)| one != other)
        }
        let Self { google, aws } = self;
        named([
            (CloudName::Google, is_changed(google.as_ref(), other.google.as_ref())),
            (CloudName::Aws, is_changed(aws.as_ref(), other.aws.as_ref())),
        ])
    }

    /// The annotations that they want to know.
    pub fn annotation_keys(&self) -> Vec<AnnotationKeys> {
        let Self { google, aws } = self;
        let google = google.as_ref().map(google::GoogleConfig::annotation_keys);
        let aws = aws.as_ref().map(aws::AwsConfig::annotation_keys);
        [google, aws].into_iter().flatten().collect()
    }

    /// Whether some cloud writes a file while the agent serves.
    pub fn writes_files(&self) -> bool {
        self.aws.as_ref().is_some_and(aws::AwsConfig::writes_files)
    }

    /// Whether some cloud gives pods credentials of their own, so that each must be known.
    pub fn needs_pod_identity(&self) -> bool {
        let Self { google, aws } = self;
        google.as_ref().is_some_and(google::GoogleConfig::needs_pod_identity) || aws.is_some()
    }
}

/// The names of those clouds of which it is true.
fn named<const N: usize>(clouds: [(CloudName, bool); N]) -> Vec<CloudName> {
    clouds.into_iter().filter_map(|(name, is_so)| is_so.then_some(name)).collect()
}
