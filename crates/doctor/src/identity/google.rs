//! Google's metadata server as google-auth and `cloud.google.com/go/compute/metadata` use it.

use seawall_fetch::{FetchError, FetchResponse};
use serde_json::Value;

use super::cloud_name_syntax::is_service_account_name;
use super::metadata_client::{CloudServerClient, RequestBudget};
use super::observed_metadata_server::{
    CloudServerOutcome, CredentialLifetime, CredentialServer, InvalidServerVariable, RespondingServer,
    ServerPrincipal, is_sendable_text, no_lifetime_reason,
};
use super::refresh_windows::{GOOGLE_TIMEOUT, GOOGLE_WINDOWS};
use crate::check::CheckContext;

const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");
const ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default/";

/// The name that Google's libraries for Python and Java and gcloud ask for (google-auth for Python: `compute_engine/_metadata.py`).
/// Only GCE's DNS has it.
const NAME: &str = "metadata.google.internal";

/// The environment variables of Google's libraries for Go, Python and Java; the last one is Python's, for an address.
const NAMES: [&str; 3] = ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"];

pub(super) fn examine(site: &CheckContext, pace: &RequestBudget) -> CloudServerOutcome {
    let named = NAMES.iter().find_map(|name| Some((*name, (site.environment)(name)?)));
    let is_at_its_address = named.is_none();
    let wanted = match server_at(named) {
        Ok(wanted) => wanted,
        Err(outcome) => return outcome,
    };
    let asker = CloudServerClient::new(site, pace, &wanted);
    let email = match asker.get(&[ACCOUNT, "email"].concat(), &[FLAVOR]) {
        Ok(email) => email,
        Err(why) => return CloudServerOutcome::Absent(wanted, why),
    };
    if !email.header(FLAVOR.0).eq_ignore_ascii_case(FLAVOR.1) {
        return CloudServerOutcome::from_unexpected(wanted, [&email]);
    }
    let name = is_at_its_address.then(|| ask_by_name(site, pace));
    let principal = principal(&email);
    let (tries, good) = match principal {
        ServerPrincipal::Named(..) => {
            asker.attempt_credentials(10, &[ACCOUNT, "token"].concat(), &[FLAVOR], lacks, None)
        }
        _ => (Vec::new(), None),
    };
    let life = good.as_ref().and_then(left).ok_or_else(|| no_lifetime_reason(&tries));
    // Google's metadata server for workloads (GKE) has no data about disks.
    let own = asker.get("/computeMetadata/v1/instance/disks/", &[FLAVOR]);
    let is_machines_own = own.ok().map(|answer| answer.status() == 200);
    let server = RespondingServer {
        server: wanted.clone(),
        credential_attempts: tries,
        response_times: asker.recorded_response_times(),
        principal,
        lifetime: life,
        refresh_windows: GOOGLE_WINDOWS,
        sdk_timeout: GOOGLE_TIMEOUT,
        imds_token_status: None,
        by_name_result: name,
        is_node_metadata_server: is_machines_own,
    };
    CloudServerOutcome::Responding(Box::new(server))
}

/// Returns the server that a variable names, or the one at the metadata address.
fn server_at(named: Option<(&'static str, String)>) -> Result<CredentialServer, CloudServerOutcome> {
    CredentialServer::new(
        "Google's metadata server",
        named,
        InvalidServerVariable::parse_host,
        "169.254.169.254:80",
    )
}

/// Sends a request to the metadata server by its name.
///
/// # Errors
/// The reason why the clients that ask by name find no metadata server; a timeout if nothing is known.
fn ask_by_name(site: &CheckContext, pace: &RequestBudget) -> Result<(), FetchError> {
    let named = server_at(Some((NAMES[0], NAME.to_owned())));
    let wanted = named.map_err(|_| FetchError::InvalidRequest)?;
    let answer = CloudServerClient::new(site, pace, &wanted).impatient().get("/", &[FLAVOR])?;
    if answer.header(FLAVOR.0).eq_ignore_ascii_case(FLAVOR.1) {
        return Ok(());
    }
    Err(FetchError::ConnectionBroken(format!("its response has no header {}: {}", FLAVOR.0, FLAVOR.1)))
}

fn principal(answer: &FetchResponse) -> ServerPrincipal {
    match answer.status() {
        200 => ServerPrincipal::named("", &answer.text(), is_service_account_name),
        404 => ServerPrincipal::NoIdentity(ServerPrincipal::reason_in(answer)),
        status @ 500.. => ServerPrincipal::Failing(status),
        _ => ServerPrincipal::refused(answer, "account"),
    }
}

/// Returns the part that a response lacks to be a token, if any. Google's library for Go needs the token and a whole number of
/// seconds (golang/oauth2, `google/google.go`).
fn lacks(token: &FetchResponse) -> Option<&'static str> {
    let token: Value = serde_json::from_slice(token.body()).unwrap_or_default();
    let is_whole = is_sendable_text(&token["access_token"]) && token["expires_in"].is_i64();
    (!is_whole).then_some("without an access_token and a whole number of seconds (expires_in)")
}

/// Returns the remaining lifetime of a token, and nothing else.
fn left(token: &FetchResponse) -> Option<CredentialLifetime> {
    let token: Value = serde_json::from_slice(token.body()).ok()?;
    Some(CredentialLifetime { remaining_seconds: token["expires_in"].as_i64()?, total_seconds: None })
}
