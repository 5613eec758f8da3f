//! The way to the instance's real metadata service, for what an operator's expression lets through: never credentials.
//!
//! What goes upstream was built anew by the dialect: a canonical path, and a session token of the agent's own. The pod sees neither
//! that token nor its life.

use http::Method;
use seawall_cloud::Refusal;
use seawall_cloud::aws::imds::respond;

use super::routes;
use crate::forward::{Forward, Forwarded, Forwarder};
use crate::reply::{Later, Reply, Writing, Written};
use crate::tenants::Tenant;

/// What is behind the filter.
#[derive(Debug)]
pub(super) struct Passthrough(pub(super) Forwarder);

const NO_TOKEN: Refusal = Refusal::new(
    503,
    "upstream_token",
    "The real metadata service gives the agent no session token; try again shortly.",
);
const TOO_LONG: Refusal = Refusal::new(
    502,
    "upstream_too_large",
    "The real metadata service's answer is larger than is passed on.",
);

/// The token serves one request.
const TTL: (&str, &str) = ("x-aws-ec2-metadata-token-ttl-seconds", "60");

impl Passthrough {
    /// The answer that will come to this canonical path.
    ///
    /// # Errors
    /// What is to be asked fits no request.
    pub(super) fn forward(&self, tenant: &Tenant, path: &str) -> Result<Later, Refusal> {
        let (forwarder, share, path) = (self.0.clone(), tenant.connections.clone(), path.to_owned());
        let token = Forward { target: "/latest/api/token", method: Method::PUT, headers: &[TTL], hold: None };
        let token = forwarder.short(share.clone(), &token)?;
        let answer = async move {
            let token = text(token.await?)?;
            let headers = [("x-aws-ec2-metadata-token", token.as_str())];
            let forward = Forward { target: &path, method: Method::GET, headers: &headers, hold: None };
            let asked = forwarder.short(share, &forward)?;
            asked.await
        };
        Ok(Later::new(
            &routes::FORWARD,
            false,
            async move { Box::new(Passed(answer.await)) as Box<dyn Reply> },
        ))
    }
}

/// The token, if that is one.
fn text(answer: Forwarded) -> Result<String, Refusal> {
    let is_whole = answer.status == 200 && answer.rest.is_none();
    let text = String::from_utf8(answer.body).ok().filter(|_| is_whole);
    text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic())).ok_or(NO_TOKEN)
}

/// What the real service answered, or why it did not.
#[derive(Debug)]
struct Passed(Result<Forwarded, Refusal>);

impl Reply for Passed {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        // What is let through are short facts; a window holds them.
        let answer = self.0.and_then(|answer| if answer.rest.is_none() { Ok(answer) } else { Err(TOO_LONG) });
        match answer {
            Ok(Forwarded { status, headers, body, .. }) => {
                let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                respond::passed(out, writing.frame, status, headers, &body);
                Written::whole(status)
            }
            Err(refusal) => {
                respond::refusal(out, writing.frame, &refusal, writing.request);
                Written::whole(refusal.status)
            }
        }
    }
}
