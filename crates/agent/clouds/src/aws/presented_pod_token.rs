//! Checks the Kubernetes token that a pod sends to the containers' credentials endpoint.
//! The module checks the token's pod, audience and expiry time.
//!
//! The agent identifies the pod by its connection. The token cannot select another pod: a pod gets its own credentials or no
//! credentials. The token protects against an attacker who can make a pod *send* a request but cannot set the request's headers.
//! Such a request has no `Authorization` header.
//!
//! The agent does not check the signature. A signature check would need a call to the API server per token, and pods would get no
//! credentials while the API server is down. A pod gains nothing with a forged token, because the pod can get the same
//! credentials from the metadata service. But the agent refuses a token that was copied from another pod, so that the pod's owner
//! sees the mistake.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use seawall_core::Pod;
use seawall_http::Refusal;
use seawall_protocols::aws::UnixTime;
use seawall_protocols::aws::containers::BAD_AUTHORIZATION;
use serde::Deserialize;

const TOKEN_POD_MISMATCH: Refusal = Refusal::new(
    403,
    "token_pod_mismatch",
    "The token in the Authorization header does not belong to this pod.",
);
const TOKEN_AUDIENCE_MISMATCH: Refusal = Refusal::new(
    403,
    "token_audience_mismatch",
    "The token in the Authorization header is for another audience than aws.containers.audience.",
);
const EXPIRED: Refusal = Refusal::new(
    401,
    "expired_token",
    "The token in the Authorization header has expired; read the token's file again.",
);

const TOKEN_NOT_YET_VALID: Refusal = Refusal::new(
    401,
    "token_not_yet_valid",
    "The token in the Authorization header is not valid yet: the node's clock is behind, or the issuer's clock is ahead.",
);

/// The agent tolerates it if the API server's clock is ahead of the node's clock by up to this time. Common JWT libraries use the
/// same value.
const LEEWAY: Duration = Duration::from_secs(60);

/// The claims that the agent reads. Source: Kubernetes documentation, "Managing Service Accounts", schema of bound tokens.
#[derive(Deserialize)]
struct Claims {
    aud: Audiences,
    exp: u64,
    /// The time at which the token becomes valid. The API server always sets this time. A token without this time is valid as
    /// soon as it is issued (RFC 7519 section 4.1.5).
    nbf: Option<u64>,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    pod: ObjectRef,
    serviceaccount: ObjectRef,
}

#[derive(Deserialize)]
struct ObjectRef {
    name: String,
    uid: String,
}

/// Checks the token that this pod sent for `audience`, and returns its expiry time. The token must have the format of a JWT.
///
/// # Errors
/// The token is malformed, not valid yet or expired, or it belongs to another pod or another audience.
pub(super) fn check(token: &str, pod: &Pod, audience: &str, now: UnixTime) -> Result<UnixTime, Refusal> {
    let claims = read(token).ok_or(BAD_AUTHORIZATION)?;
    if !claims.kubernetes.is_of(pod) {
        return Err(TOKEN_POD_MISMATCH);
    }
    let is_for = match &claims.aud {
        Audiences::One(one) => one == audience,
        Audiences::Many(many) => many.iter().any(|one| one == audience),
    };
    match UnixTime(claims.exp) {
        _ if !is_for => Err(TOKEN_AUDIENCE_MISMATCH),
        _ if claims.nbf.is_some_and(|begin| UnixTime(begin) > now.plus(LEEWAY)) => Err(TOKEN_NOT_YET_VALID),
        end if end <= now => Err(EXPIRED),
        end => Ok(end),
    }
}

fn read(token: &str) -> Option<Claims> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

impl Kubernetes {
    /// True if the token belongs to `pod`. The function compares UIDs because names can be reused. Pods from an identity file
    /// (`static`) have no UID from an API server. For these pods, the function compares only names.
    fn is_of(&self, pod: &Pod) -> bool {
        let account = &pod.service_account;
        let is_same = *self.namespace == *account.namespace
            && *self.serviceaccount.name == *account.name
            && *self.pod.name == *pod.name;
        is_same && (*self.pod.uid == *pod.uid.0 || !is_given_by_api_server(&pod.uid.0))
    }
}

/// True if the UID has the format that an API server uses (RFC 4122): 32 hexadecimal digits in five groups.
fn is_given_by_api_server(uid: &str) -> bool {
    uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use seawall_core::{PodUid, ServiceAccount};
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "11111111-2222-4333-8444-555555555555";
    const FOR: &str = "pods.eks.amazonaws.com";

    fn pod(uid: &str) -> Pod {
        let service_account = ServiceAccount { namespace: "shop".into(), name: "cart".into() };
        Pod { uid: PodUid(uid.into()), name: "cart-0".into(), service_account }
    }

    fn claims() -> Value {
        json!({
            "aud": [FOR], "exp": 1000, "sub": "system:serviceaccount:shop:cart",
            "kubernetes.io": {
                "namespace": "shop",
                "pod": { "name": "cart-0", "uid": UID },
                "serviceaccount": { "name": "cart", "uid": "x" },
            },
        })
    }

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn asked(claims: &Value, pod: &Pod) -> Result<u64, &'static str> {
        check(&token(claims), pod, FOR, UnixTime(999)).map(|end| end.0).map_err(|refusal| {
            assert!(matches!(refusal.status, 401 | 403));
            refusal.code
        })
    }

    #[test]
    fn a_pods_own_token_for_this_audience_is_good_until_it_ends() {
        assert_eq!(asked(&claims(), &pod(UID)), Ok(1000));
        let mut one = claims();
        one["aud"] = FOR.into();
        assert_eq!(asked(&one, &pod(UID)), Ok(1000));
        assert_eq!(
            check(&token(&claims()), &pod(UID), FOR, UnixTime(1000)).unwrap_err().code,
            "expired_token"
        );
    }

    /// Regression: the agent ignored the time from which on a token is valid.
    #[test]
    fn a_token_is_refused_before_it_begins_but_for_a_minute_of_leeway() {
        for (begin, expected) in [
            (0, Ok(1000)),
            (999, Ok(1000)),
            (1059, Ok(1000)),
            (1060, Err("token_not_yet_valid")),
            (u64::MAX, Err("token_not_yet_valid")),
        ] {
            let mut early = claims();
            early["nbf"] = begin.into();
            assert_eq!(asked(&early, &pod(UID)), expected, "{begin}");
        }
        let mut odd = claims();
        odd["nbf"] = "soon".into();
        assert_eq!(asked(&odd, &pod(UID)), Err("bad_authorization"));
    }

    #[test]
    fn anybody_elses_token_is_refused() {
        for (path, value) in [
            ("/kubernetes.io/namespace", "lab"),
            ("/kubernetes.io/pod/name", "cart-1"),
            ("/kubernetes.io/pod/uid", "11111111-2222-4333-8444-555555555556"),
            ("/kubernetes.io/serviceaccount/name", "pay"),
        ] {
            let mut other = claims();
            *other.pointer_mut(path).unwrap() = value.into();
            assert_eq!(asked(&other, &pod(UID)), Err("token_pod_mismatch"), "{path}");
        }
        let mut other = claims();
        other["aud"] = json!(["sts.amazonaws.com"]);
        assert_eq!(asked(&other, &pod(UID)), Err("token_audience_mismatch"));
    }

    #[test]
    fn where_no_api_server_gives_uids_names_decide() {
        assert_eq!(asked(&claims(), &pod("static:shop/cart-0@10.4.0.7")), Ok(1000));
        let mut other = claims();
        other["kubernetes.io"]["pod"]["name"] = "cart-1".into();
        assert_eq!(asked(&other, &pod("static:shop/cart-0@10.4.0.7")), Err("token_pod_mismatch"));
    }

    #[test]
    fn what_says_nothing_of_a_pod_is_no_token() {
        let mut unbound = claims();
        unbound["kubernetes.io"].as_object_mut().unwrap().remove("pod");
        assert_eq!(asked(&unbound, &pod(UID)), Err("bad_authorization"));
        for text in ["e30.e30.x", "a.!.b", "a..b", "", "e30.bm90IGpzb24.x"] {
            assert_eq!(check(text, &pod(UID), FOR, UnixTime(0)), Err(BAD_AUTHORIZATION), "{text}");
        }
    }
}
