//! The emulated cloud on the node's loopback, which verifies pods' tokens by the keys that the API server publishes.

use std::sync::{Arc, OnceLock};

use seawall_core::Clock;
use seawall_emulator::google::{
    self, EmulatedAccessToken, GoogleEmulator, GoogleEmulatorOptions, GoogleEndpoint, ImpersonationPolicy,
    WorkloadIdentityProvider,
};
use seawall_emulator::keys::{Algorithm, KeySet, SigningKey};
use seawall_testkit::control_plane::ISSUER;
use seawall_testkit::kubernetes_client::KubernetesApi;
use seawall_testkit::objects::NAMESPACE;
use tokio::runtime::Runtime;

pub(crate) const PROVIDER: &str = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/reef/providers/cluster";
/// The workload pool.
pub(crate) const POOL: &str = "seawall-emulator.svc.id.goog";

/// A running emulator; ends with the value.
pub(crate) struct Cloud {
    running: Option<GoogleEmulator>,
    runtime: Runtime,
}

impl Cloud {
    /// One in which each of these ServiceAccounts may become its Google service account and nobody else's.
    pub(crate) fn start(api: &KubernetesApi, accounts: &[(String, Option<String>)]) -> Self {
        Self::start_by(Clock::system(), api, accounts)
    }

    /// The same, in which it is what time this clock says.
    pub(crate) fn start_by(clock: Clock, api: &KubernetesApi, accounts: &[(String, Option<String>)]) -> Self {
        let keys = api.call("GET", "/openid/v1/jwks", None).unwrap().1;
        let provider = WorkloadIdentityProvider {
            name: PROVIDER.into(),
            issuer: ISSUER.into(),
            keys: KeySet::parse(&keys).unwrap(),
            // As one that was told of no other.
            audiences: [PROVIDER.to_owned()].into(),
        };
        let own =
            accounts.iter().filter_map(|(name, email)| Some((NAMESPACE, name.as_str(), email.as_deref()?)));
        let options = GoogleEmulatorOptions {
            providers: vec![provider],
            impersonation: ImpersonationPolicy::only(own),
            identity_key: Some(identity_key()),
            ..GoogleEmulatorOptions::default()
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let running = runtime.block_on(google::start(options, clock)).unwrap();
        Self { running: Some(running), runtime }
    }

    /// What a token says; a panic for one that is not this cloud's.
    pub(crate) fn read(&self, token: &str) -> EmulatedAccessToken {
        self.read_access_token(token)
            .unwrap_or_else(|| panic!("not a token of this cloud, or expired: {token}"))
    }

    /// The claims of an identity token that this cloud signed; a panic for any other.
    pub(crate) fn identity(&self, token: &str) -> serde_json::Value {
        let jwk = serde_json::from_value(identity_key().jwk()).unwrap();
        let key = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
        let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::RS256);
        rules.validate_aud = false;
        jsonwebtoken::decode(token, &key, &rules).unwrap().claims
    }

    /// Calls that arrived so far at the exchange and at both kinds of impersonation.
    pub(crate) fn calls(&self) -> [u64; 3] {
        [GoogleEndpoint::Exchange, GoogleEndpoint::AccessToken, GoogleEndpoint::IdToken]
            .map(|at| self.endpoint_request_counts(at).calls)
    }
}

impl std::ops::Deref for Cloud {
    type Target = GoogleEmulator;

    fn deref(&self) -> &GoogleEmulator {
        self.running.as_ref().expect("runs until it is dropped")
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let running = self.running.take().expect("runs until it is dropped");
        self.runtime.block_on(running.shutdown());
    }
}

/// One RSA key for all tests: making one takes tenths of a second.
fn identity_key() -> Arc<SigningKey> {
    static KEY: OnceLock<Arc<SigningKey>> = OnceLock::new();
    KEY.get_or_init(|| Arc::new(SigningKey::generate(Algorithm::Rs256).unwrap())).clone()
}

/// The subject of a ServiceAccount's tokens.
pub(crate) fn subject(account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{account}")
}

/// The Google service account that a test gives a ServiceAccount.
pub(crate) fn email(account: &str) -> String {
    format!("{account}@seawall-emulator.iam.gserviceaccount.com")
}
