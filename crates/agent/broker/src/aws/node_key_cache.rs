//! The cache of signing keys that many principals share. One request fetches the keys while the other requests wait. The keys
//! stay cached until shortly before their expiry.
//!
//! The cache contains only the keys of the instance's role, and of base roles that the node assumed. It never contains a session
//! that STS issued for a pod's token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Moment};

use super::endpoint::StsEndpointKind;
use super::node_signing_keys::AwsAccessKeys;
use super::principal::KeySignedRole;
use super::validated_names::Region;
use crate::failure::ExchangeError;

/// The agent stops using keys this long before they expire. EC2 provides new keys at least five minutes before the expiry.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// The maximum number of owners with cached keys. Owners are the instance, and base roles from the configuration.
const MOST: usize = 64;

/// The owner of cached keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeyOwner {
    /// The instance's role.
    Instance,
    /// A base role.
    BaseRole(KeySignedRole, Region, StsEndpointKind),
}

#[derive(Debug)]
struct CachedKeys {
    keys: Arc<AwsAccessKeys>,
    until: Moment,
}

/// The cached keys of one owner. A task holds the lock while it fetches keys, so one call serves all waiting tasks.
type KeyCell = Arc<tokio::sync::Mutex<Option<CachedKeys>>>;

#[derive(Debug, Default)]
pub(super) struct NodeKeyCache(Mutex<HashMap<KeyOwner, KeyCell>>);

impl NodeKeyCache {
    /// Returns the cached keys, or calls `fetch` if no valid keys are cached.
    /// `fetch` returns keys and their lifetime, which counts from the start of the fetch.
    pub(super) async fn get_or_fetch<F>(
        &self,
        whose: &KeyOwner,
        clock: &Clock,
        fetch: F,
    ) -> Result<Arc<AwsAccessKeys>, ExchangeError>
    where
        F: Future<Output = Result<(AwsAccessKeys, Duration), ExchangeError>>,
    {
        let place = self.place(whose);
        let mut held = place.lock().await;
        let started = clock.now();
        if let Some(held) = held.as_ref().filter(|held| started < held.until) {
            return Ok(held.keys.clone());
        }
        let (keys, life) = fetch.await?;
        let keys = Arc::new(keys);
        *held = Some(CachedKeys { keys: keys.clone(), until: started + life.saturating_sub(MARGIN) });
        Ok(keys)
    }

    /// Drops rejected keys, so that the next request fetches new keys. If another request has already replaced the keys, the new
    /// keys stay in the cache.
    pub(super) async fn forget_rejected(&self, whose: &KeyOwner, refused: &AwsAccessKeys) {
        let place = self.place(whose);
        place.lock().await.take_if(|held| held.keys.access_key_id == refused.access_key_id);
    }

    fn place(&self, whose: &KeyOwner) -> KeyCell {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST && !places.contains_key(whose) {
            places.clear();
        }
        places.entry(whose.clone()).or_default().clone()
    }
}
