//! The emulated cloud in this process, and the Kubernetes tokens that it takes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use seawall_core::Clock;
use seawall_emulator::google::{
    self, GoogleEmulator, GoogleEmulatorOptions, GoogleEndpoint, ImpersonationPolicy,
    WorkloadIdentityProvider,
};
use seawall_emulator::keys::{Algorithm, SigningKey};
use seawall_emulator::service_account_tokens::{Issuer, Workload};
use serde_json::Value;

use super::emulator_thread::Hosted;
use super::world::Pod;

pub(crate) const PROVIDER: &str = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/reef/providers/cluster";
pub(crate) const AUDIENCE: &str = "seawall-emulator.svc.id.goog";
/// A provider of GKE's own pools. It accepts tokens for the pool, whose name is [`AUDIENCE`].
pub(crate) const GKE_PROVIDER: &str = "identitynamespace:seawall-emulator.svc.id.goog:https://container.googleapis.com/v1/projects/seawall-emulator/locations/europe-west1/clusters/reef";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A running emulator.
pub(crate) struct Cloud {
    running: Hosted<GoogleEmulator>,
    issuer: Issuer,
}

impl Cloud {
    /// One in which each of these pods may become its own account and nobody else's.
    pub(crate) fn start(pods: &[Pod]) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), pods)
    }

    /// The same, at an address.
    pub(crate) fn start_at(listen: SocketAddr, pods: &[Pod]) -> Self {
        let issuer = Issuer::generate(ISSUER, Algorithm::Es256).unwrap();
        let provider = WorkloadIdentityProvider {
            name: PROVIDER.into(),
            issuer: ISSUER.into(),
            keys: issuer.key_set().unwrap(),
            audiences: [AUDIENCE.to_owned()].into(),
        };
        let gke_provider = WorkloadIdentityProvider {
            name: GKE_PROVIDER.into(),
            audiences: BTreeSet::new(),
            ..provider.clone()
        };
        let own = pods.iter().filter_map(|pod| Some((pod.namespace, pod.account, pod.email?)));
        let options = GoogleEmulatorOptions {
            listen,
            providers: vec![provider, gke_provider],
            impersonation: ImpersonationPolicy::only(own),
            identity_key: Some(identity_key()),
            ..GoogleEmulatorOptions::default()
        };
        Self { running: Hosted::start(google::start(options, Clock::system())), issuer }
    }

    /// A Kubernetes token of this pod, valid for an hour.
    pub(crate) fn kubernetes_token(&self, pod: &Pod) -> String {
        let workload =
            Workload::for_service_account(pod.namespace, pod.account).in_pod(pod.name).on_node("node-1");
        let hour = Duration::from_secs(3600);
        let token = self.issuer.mint(&workload, &[AUDIENCE], hour, Clock::system().wall_time()).unwrap();
        token.expose().clone()
    }

    /// Calls that arrived so far at the exchange and at both kinds of impersonation.
    pub(crate) fn calls(&self) -> [u64; 3] {
        [GoogleEndpoint::Exchange, GoogleEndpoint::AccessToken, GoogleEndpoint::IdToken]
            .map(|at| self.endpoint_request_counts(at).calls)
    }

    /// The claims of an identity token that this cloud signed for `audience`; a panic for any other.
    pub(crate) fn identity(&self, token: &str, audience: &str) -> Value {
        let jwk = serde_json::from_value(identity_key().jwk()).unwrap();
        let key = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
        let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::RS256);
        rules.set_audience(&[audience]);
        jsonwebtoken::decode(token, &key, &rules).unwrap().claims
    }
}

impl std::ops::Deref for Cloud {
    type Target = GoogleEmulator;

    fn deref(&self) -> &GoogleEmulator {
        &self.running
    }
}

/// One RSA key for all tests: making one takes tenths of a second.
fn identity_key() -> Arc<SigningKey> {
    static KEY: OnceLock<Arc<SigningKey>> = OnceLock::new();
    KEY.get_or_init(|| Arc::new(SigningKey::generate(Algorithm::Rs256).unwrap())).clone()
}
