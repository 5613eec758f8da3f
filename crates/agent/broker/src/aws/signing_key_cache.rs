//! Keys that many principals are signed for with: fetched by one, waited for by the others, kept until shortly before their end.
//!
//! Only what the node itself proves stands here. A session that a pod's token proved is never kept for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seawall_core::{Clock, Moment};

use super::endpoint::StsEndpointKind;
use super::keys::SigningKeys;
use super::names::Region;
use super::principal::KeySignedRole;
use crate::failure::ExchangeError;

/// Keys are not used in their last minutes: EC2 has the next ones at the latest five before.
const MARGIN: Duration = Duration::from_secs(5 * 60);

/// Kinds kept at most: the instance's, and base roles, which an operator names.
const MOST: usize = 64;

/// Whose keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeyOwner {
    /// The instance role's.
    Instance,
    /// A base role's.
    Base(KeySignedRole, Region, StsEndpointKind),
}

#[derive(Debug)]
struct CachedKeys {
    keys: Arc<SigningKeys>,
    until: Moment,
}

/// The inner lock is held while keys are asked for, and that is its purpose: one call for all who wait.
type KeyCell = Arc<tokio::sync::Mutex<Option<CachedKeys>>>;

#[derive(Debug, Default)]
pub(super) struct SigningKeyCache(Mutex<HashMap<KeyOwner, KeyCell>>);

impl SigningKeyCache {
    /// The keys that are held, or those that `fetch` brings with their life from before it began.
    pub(super) async fn get_or_fetch<F>(
        &self,
        whose: &KeyOwner,
        clock: &Clock,
        fetch: F,
    ) -> Result<Arc<SigningKeys>, ExchangeError>
    where
        F: Future<Output = Result<(SigningKeys, Duration), ExchangeError>>,
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

    /// These have been refused: the next who asks fetches, unless somebody has already.
    pub(super) async fn forget(&self, whose: &KeyOwner, refused: &SigningKeys) {
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
