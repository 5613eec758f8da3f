//! The node's own keys, wherever they come from.

use std::path::PathBuf;
use std::sync::Arc;

use seawall_core::{Clock, disk};

use super::assume_role::life;
use super::config_error::ConfigError;
use super::imds::Instance;
use super::keys::{self, KeySource, Keys};
use super::signing_key_cache::{Shelf, Whose};
use crate::failure::{ExchangeError, Fault};

/// Where they come from, ready to be asked.
#[derive(Debug)]
pub(super) enum Own {
    Nowhere,
    Given(Arc<Keys>),
    File { path: PathBuf, profile: String },
    Instance(Box<Instance>),
}

impl Own {
    pub(super) fn new(source: Option<KeySource>) -> Result<Self, ConfigError> {
        Ok(match source {
            None => Self::Nowhere,
            Some(KeySource::Given(keys)) => Self::Given(keys),
            Some(KeySource::File { path, profile }) => Self::File { path, profile },
            Some(KeySource::Instance { url }) => Self::Instance(Box::new(Instance::new(&url)?)),
        })
    }

    /// The keys. The instance's are kept until shortly before their end; a file is read each time.
    pub(super) async fn keys(&self, shelf: &Shelf, clock: &Clock) -> Result<Arc<Keys>, ExchangeError> {
        match self {
            Self::Nowhere => {
                let detail = "no keys are configured to sign with";
                Err(ExchangeError::new(Fault::Rejected, "node's keys", detail))
            }
            Self::Given(keys) => Ok(keys.clone()),
            Self::File { path, profile } => {
                let (path, profile) = (path.clone(), profile.clone());
                let read = disk::aside(move || keys::read(&path, &profile)).await;
                read.map_err(|slow| ExchangeError::new(Fault::Upstream, "node's keys", slow))?.map(Arc::new)
            }
            Self::Instance(instance) => {
                let fetch = async {
                    let found = instance.keys().await?;
                    Ok((found.keys, life(found.expires, found.date, clock)))
                };
                shelf.keys(&Whose::Instance, clock, fetch).await
            }
        }
    }
}
