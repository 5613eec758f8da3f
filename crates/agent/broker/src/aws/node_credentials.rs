//! Provides the node's signing keys from the configured source.

use std::path::PathBuf;
use std::sync::Arc;

use seawall_core::{Clock, disk_thread};

use super::assume_role::lifetime_until;
use super::config_error::AwsConfigError;
use super::imds::ImdsClient;
use super::node_key_cache::{KeyOwner, NodeKeyCache};
use super::node_signing_keys::{self, AwsAccessKeys, NodeKeySource};
use crate::failure::{ExchangeError, ExchangeFault};

/// The configured source of the node's keys. The source `Instance` contains the client for the metadata service.
#[derive(Debug)]
pub(super) enum NodeKeyProvider {
    Unset,
    Static(Arc<AwsAccessKeys>),
    File { path: PathBuf, profile: String },
    Instance(Box<ImdsClient>),
}

impl NodeKeyProvider {
    pub(super) fn new(source: Option<NodeKeySource>) -> Result<Self, AwsConfigError> {
        Ok(match source {
            None => Self::Unset,
            Some(NodeKeySource::Static(keys)) => Self::Static(keys),
            Some(NodeKeySource::File { path, profile }) => Self::File { path, profile },
            Some(NodeKeySource::Instance { url }) => Self::Instance(Box::new(ImdsClient::new(&url)?)),
        })
    }

    /// Returns the keys. The agent caches the instance's keys until shortly before their expiry, and reads a key file at each
    /// call.
    pub(super) async fn keys(
        &self,
        shelf: &NodeKeyCache,
        clock: &Clock,
    ) -> Result<Arc<AwsAccessKeys>, ExchangeError> {
        match self {
            Self::Unset => {
                let detail = "no signing keys are configured";
                Err(ExchangeError::new(ExchangeFault::ExchangeRejected, "node's keys", detail))
            }
            Self::Static(keys) => Ok(keys.clone()),
            Self::File { path, profile } => {
                let (path, profile) = (path.clone(), profile.clone());
                let read =
                    disk_thread::run_with_timeout(move || node_signing_keys::read_profile(&path, &profile))
                        .await;
                read.map_err(|slow| ExchangeError::new(ExchangeFault::Unavailable, "node's keys", slow))?
                    .map(Arc::new)
            }
            Self::Instance(instance) => {
                let fetch = async {
                    let found = instance.fetch_instance_keys().await?;
                    Ok((found.keys, lifetime_until(found.expires, found.server_time, clock)))
                };
                shelf.get_or_fetch(&KeyOwner::Instance, clock, fetch).await
            }
        }
    }
}
