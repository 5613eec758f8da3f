//! EKS Auth: exchanges a pod's Kubernetes token for the role that is associated with its ServiceAccount.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use super::mint::AwsSession;
use super::reply::{self, EmulatorReply};
use super::sigv4::SignatureError;
use super::state::{AwsState, KubernetesTokenRefusal};
use crate::jwt::JwtError;

/// The audience of the tokens that EKS mounts into pods.
const AUDIENCE: &str = "pods.eks.amazonaws.com";

/// The lifetime of a session (docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html: six hours).
const SIX_HOURS: Duration = Duration::from_secs(6 * 3600);

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EksAuthRefusal {
    #[error("the body is not the expected JSON object")]
    Body,
    #[error("no association found for the service account")]
    NoAssociation,
    #[error("the token is not bound to a pod")]
    Unbound,
    #[error(transparent)]
    Token(#[from] KubernetesTokenRefusal),
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl EksAuthRefusal {
    pub(super) fn reply(&self) -> EmulatorReply {
        let bad = StatusCode::BAD_REQUEST;
        let (status, code) = match self {
            Self::Body => (bad, "InvalidRequestException"),
            Self::NoAssociation => (StatusCode::NOT_FOUND, "ResourceNotFoundException"),
            Self::Token(KubernetesTokenRefusal::Token(JwtError::Expired)) => (bad, "ExpiredTokenException"),
            Self::Token(_) | Self::Unbound => (bad, "InvalidTokenException"),
            Self::Signature(SignatureError::ExpiredSessionToken) => {
                (StatusCode::FORBIDDEN, "ExpiredTokenException")
            }
            Self::Signature(SignatureError::UnknownKey) => {
                (StatusCode::FORBIDDEN, "UnrecognizedClientException")
            }
            Self::Signature(_) => (StatusCode::FORBIDDEN, "InvalidSignatureException"),
        };
        reply::json_error_reply(status, code, &self.to_string())
    }
}

/// Returns the cluster in a path, if the path is that of this operation.
pub(super) fn parse_cluster_name(path: &str) -> Option<&str> {
    let cluster = path.strip_prefix("/clusters/")?.strip_suffix("/assume-role-for-pod-identity")?;
    let is_in = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    ((1..=100).contains(&cluster.len()) && cluster.bytes().all(is_in)).then_some(cluster)
}

#[derive(Deserialize)]
struct PodIdentityRequest {
    token: String,
}

/// Answers a request.
pub(super) fn answer(state: &AwsState, request: &Parts, body: &[u8]) -> EmulatorReply {
    pod_identity(state, request, body).unwrap_or_else(|refused| refused.reply())
}

fn pod_identity(state: &AwsState, request: &Parts, body: &[u8]) -> Result<EmulatorReply, EksAuthRefusal> {
    state.verify_signer("eks-auth", request, body)?;
    let asked: PodIdentityRequest = serde_json::from_slice(body).map_err(|_| EksAuthRefusal::Body)?;
    let claims = state.verify_token(&asked.token, Some(AUDIENCE))?;
    let (pod, pod_uid) = claims.pod.as_ref().ok_or(EksAuthRefusal::Unbound)?;
    let policy = state.settings();
    let role = policy.associations.get(&claims.subject).ok_or(EksAuthRefusal::NoAssociation)?;
    let (namespace, name) = workload(&claims.subject).ok_or(EksAuthRefusal::NoAssociation)?;
    // The session tags (EKS user guide, "Grant Pods access to AWS resources based on tags").
    let tags = [
        ("kubernetes-namespace", namespace),
        ("kubernetes-service-account", name),
        ("kubernetes-pod-name", pod),
        ("kubernetes-pod-uid", pod_uid),
    ];
    let session = AwsSession {
        access_key_id: String::new(),
        role: role.clone(),
        name: format!("eks-emulated-{name}").chars().take(64).collect(),
        taken_by: claims.subject.clone(),
        tags: tags
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        exp: 0,
    };
    let issued = state.issue(session, SIX_HOURS);
    let session = &issued.session;
    let told = json!({
        "subject": {"namespace": namespace, "serviceAccount": name},
        "audience": AUDIENCE,
        "podIdentityAssociation": {
            "associationArn": format!("arn:aws:eks:{}:{}:podidentityassociation/emulated/a-1", state.instance.region, session.account()),
            "associationId": "a-1",
        },
        "assumedRoleUser": {"arn": session.arn(), "assumeRoleId": format!("AROAEMULATEDROLE00000:{}", session.name)},
        "credentials": {
            "accessKeyId": session.access_key_id,
            "secretAccessKey": issued.secret.expose(),
            "sessionToken": issued.token.expose(),
            "expiration": end(state, session.exp),
        },
    });
    Ok(reply::json_reply(StatusCode::OK, &told))
}

/// Returns a time in seconds since 1970, as restJson1 writes it.
fn end(state: &AwsState, exp: u64) -> Value {
    if state.settings().fractional_expiry { json!(exp as f64 + 0.25) } else { json!(exp) }
}

fn workload(subject: &str) -> Option<(&str, &str)> {
    subject.strip_prefix("system:serviceaccount:")?.split_once(':')
}
