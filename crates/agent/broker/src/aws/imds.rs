//! Gets the keys of the instance's role from the instance's metadata service. The client uses only version 2 of the service
//! (IMDSv2), because every instance supports it.
//!
//! Source: docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html.

use std::time::SystemTime;

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use seawall_core::Secret;
use seawall_core::name_syntax::is_loopback_host;
use serde::Deserialize;

use super::config_error::AwsConfigError;
use super::node_signing_keys::AwsAccessKeys;
use super::validated_names::is_role_name;
use crate::failure::{ExchangeError, ExchangeFault};
use crate::https::{HttpsClient, parse_date_header};
use crate::upstream_bodies;

const STEP: &str = "instance metadata";

/// The addresses of the metadata service. Plain HTTP to these addresses stays on the machine and its hypervisor.
const LINK_LOCAL: [&str; 2] = ["169.254.169.254", "[fd00:ec2::254]"];

const CREDENTIALS: &str = "latest/meta-data/iam/security-credentials/";

/// The token's lifetime in seconds. The client uses the token only for the next two requests.
const TTL: &str = "60";

/// True if `url` names an instance's metadata service, or a service on loopback.
fn is_metadata_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    uri.scheme_str() == Some("http") && (LINK_LOCAL.contains(&host) || is_loopback_host(host))
}

pub(super) struct InstanceKeys {
    pub(super) keys: AwsAccessKeys,
    pub(super) expires: SystemTime,
    /// The metadata service's time, if the response states it.
    pub(super) server_time: Option<SystemTime>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    code: String,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
    expiration: Option<jiff::Timestamp>,
}

/// The client for the metadata service. It uses no proxy.
#[derive(Debug)]
pub(super) struct ImdsClient {
    https: HttpsClient,
    url: String,
}

impl ImdsClient {
    /// Returns a client. It connects at the first call.
    pub(super) fn new(url: &str) -> Result<Self, AwsConfigError> {
        if !is_metadata_url(url) {
            return Err(AwsConfigError::MetadataUrl(url.to_owned()));
        }
        Ok(Self { https: HttpsClient::new(None, None)?, url: url.trim_end_matches('/').to_owned() })
    }

    /// Requests a token, the role's name and the role's keys.
    pub(super) async fn fetch_instance_keys(&self) -> Result<InstanceKeys, ExchangeError> {
        let asked = Request::put(format!("{}/latest/api/token", self.url));
        let (token, _) = self.ask(asked.header("x-aws-ec2-metadata-token-ttl-seconds", TTL)).await?;
        let token = header(&token)?;
        let get = |path: &str| {
            Request::get(format!("{}/{path}", self.url)).header("x-aws-ec2-metadata-token", token.clone())
        };
        let (listing, _) = self.ask(get(CREDENTIALS)).await?;
        let role = first_line(&listing)?;
        let (document, date) = self.ask(get(&format!("{CREDENTIALS}{role}"))).await?;
        read(&document, date)
    }

    async fn ask(&self, request: Builder) -> Result<(Secret<Vec<u8>>, Option<SystemTime>), ExchangeError> {
        let request = request.body(Full::new(Bytes::new())).map_err(|error| nonsense(&error))?;
        let (head, body) = self.https.send(STEP, request).await?;
        match head.status {
            StatusCode::OK => Ok((body, parse_date_header(&head.headers))),
            StatusCode::NOT_FOUND => {
                Err(ExchangeError::new(ExchangeFault::ExchangeRejected, STEP, "the instance has no role"))
            }
            status => Err(ExchangeError::new(ExchangeFault::Unavailable, STEP, status)),
        }
    }
}

fn header(token: &Secret<Vec<u8>>) -> Result<HeaderValue, ExchangeError> {
    let mut value = HeaderValue::from_bytes(token.expose())
        .map_err(|_| nonsense(&"the session token contains characters that an HTTP header cannot contain"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the role's name from the first line, if the name is valid.
/// A valid name contains only IAM's word characters, which need no escapes in a URL path.
fn first_line(listing: &Secret<Vec<u8>>) -> Result<&str, ExchangeError> {
    let line = std::str::from_utf8(listing.expose()).ok().and_then(|text| text.lines().next()).map(str::trim);
    line.filter(|name| is_role_name(name))
        .ok_or_else(|| nonsense(&"the role list does not start with a role name"))
}

fn read(document: &Secret<Vec<u8>>, date: Option<SystemTime>) -> Result<InstanceKeys, ExchangeError> {
    let document: Document = upstream_bodies::parse_json(STEP, document.expose())?;
    let secret = document.secret_access_key.map(Secret::new);
    let token = document.token.map(Secret::new);
    let (Some(id), Some(secret), Some(token), Some(end), "Success") =
        (document.access_key_id, secret, token, document.expiration, &*document.code)
    else {
        return Err(nonsense(&"the instance's role has no keys at the moment"));
    };
    let keys =
        AwsAccessKeys { access_key_id: id.into(), secret_access_key: secret, session_token: Some(token) };
    Ok(InstanceKeys { keys, expires: end.into(), server_time: date })
}

fn nonsense(what: &dyn std::fmt::Display) -> ExchangeError {
    ExchangeError::new(ExchangeFault::Unavailable, STEP, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_an_instances_own_service_is_asked_in_the_clear() {
        for good in
            ["http://169.254.169.254", "http://[fd00:ec2::254]", "http://127.0.0.1:9/", "http://localhost:9"]
        {
            assert!(is_metadata_url(good), "{good}");
        }
        for bad in
            ["https://169.254.169.254", "http://169.254.169.254.evil.example", "http://10.0.0.1", "", "x"]
        {
            assert!(!is_metadata_url(bad), "{bad}");
        }
    }

    #[test]
    fn a_listing_cannot_lead_to_another_path() {
        let line = |text: &str| first_line(&Secret::new(text.as_bytes().to_vec())).map(str::to_owned);
        assert_eq!(line("node+=,.@_-x\nother").unwrap(), "node+=,.@_-x");
        assert!(["", "../user-data", "a b", "a/b", "a%2fb", "a?b"].map(line).iter().all(Result::is_err));
    }
}
