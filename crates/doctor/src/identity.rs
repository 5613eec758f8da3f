//! The check `identity`: which metadata servers respond, their latency, the identity they give, and whether their credentials live long
//! enough for the SDKs.
//!
//! The check sends requests like an SDK, to the addresses from the environment, up to ten times each, so its results are measurements. An
//! SDK refreshes credentials when less than its refresh window is left. If the server's credentials live shorter than this window, each
//! call of the SDK fetches new ones. The check shows no credential: of such a response it shows only times and the owner, and no text that
//! contains a part of a secret from this run.

mod aws;
mod azure;
mod cloud_name_syntax;
mod container_credentials;
mod google;
mod judge;
mod metadata_client;
mod observed_metadata_server;
mod refresh_windows;
mod secret_redaction;
#[cfg(test)]
mod tests;

use self::metadata_client::RequestBudget;
use self::observed_metadata_server::{CloudServerOutcome, RespondingServer};
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::DoctorFinding;

const SERVERS: &str = "identity.servers";
const LATENCY: &str = "identity.latency";
const PRINCIPAL: &str = "identity.principal";
const LIFE: &str = "identity.life";
const TOKENS: &str = "identity.tokens";
const NAME: &str = "identity.name";
const NODE: &str = "identity.node";
const VARIABLES_SET: &str = "identity.variables";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "identity",
    about: "which metadata servers respond (Google, AWS, Azure, container credentials), their identity and latency, the credentials' lifetime against the SDKs' refresh windows, \
            variables that SDKs use before these servers, IMDSv2 and its hop limit, whether metadata.google.internal resolves, whether the node's own credentials are reachable",
    finding_ids: &[SERVERS, VARIABLES_SET, LATENCY, PRINCIPAL, LIFE, TOKENS, NAME, NODE],
    examine,
};

/// One function per kind of server. They run in sequence; the rarest kind comes first, because it leaves its unused time to the others.
const DIALECTS: [fn(&CheckContext, &RequestBudget) -> CloudServerOutcome; 4] =
    [container_credentials::examine, google::examine, aws::examine, azure::examine];

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let pace = RequestBudget::new((site.now)());
    let outcomes: Vec<_> = DIALECTS
        .iter()
        .map(|examine| {
            pace.start_next_server();
            examine(site, &pace)
        })
        .collect();
    // All requests run before any finding is written, because the first server may have repeated a secret of the last one.
    let outcomes: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.without_secrets(pace.secrets())).collect();
    let first = judge::judge_servers(&outcomes, pace.request_count());
    let is_pod = (site.environment)("KUBERNETES_SERVICE_HOST").is_some();
    let servers = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Responding(server) => Some(server.as_ref()),
        _ => None,
    });
    let told = servers.flat_map(|server| about(server, is_pod));
    let environment = judge::judge_environment(|name| (site.environment)(name).is_some());
    std::iter::once(first).chain(environment).chain(told).collect()
}

/// Returns the findings about one server.
fn about(server: &RespondingServer, is_pod: bool) -> Vec<DoctorFinding> {
    let mut found =
        vec![judge::judge_latency(server), judge::judge_principal(server), judge::judge_lifetime(server)];
    found.extend(server.imds_token_status.as_ref().map(judge::judge_imds_tokens));
    found.extend(server.by_name_result.as_ref().map(judge::judge_google_name));
    found.push(judge::judge_node_access(server, is_pod));
    found
}
