//! `identity`: which metadata servers answer here, as whom, how soon, and whether what they lend lives long enough for the SDKs.
//!
//! Asked as SDKs ask, at the addresses that they would take from the environment, some ten times each: what is told was measured. An SDK
//! refreshes credentials once less than its window is left of them; a server that lends less than that is asked anew by each call. No
//! credential is shown: of an answer that holds one, its times and whose it is are told, and nothing that says a part of any that was sent or
//! lent in this run.

mod ask;
mod aws;
mod azure;
mod containers;
mod google;
mod judge;
mod lent;
mod names;
mod secrets;
#[cfg(test)]
mod tests;
mod windows;

use self::ask::RequestBudget;
use self::lent::{CloudServerOutcome, RespondingServer};
use crate::check::{CheckContext, DoctorCheck};
use crate::finding::DoctorFinding;

const SERVERS: &str = "identity.servers";
const LATENCY: &str = "identity.latency";
const PRINCIPAL: &str = "identity.principal";
const LIFE: &str = "identity.life";
const TOKENS: &str = "identity.tokens";
const NODE: &str = "identity.node";

pub(crate) const CHECK: DoctorCheck = DoctorCheck {
    id: "identity",
    about: "which metadata servers respond (Google, AWS, Azure, container credentials), their identity and latency, the credentials' lifetime against the SDKs' refresh windows, \
            IMDSv2 and its hop limit, whether the node's own credentials are reachable",
    findings: &[SERVERS, LATENCY, PRINCIPAL, LIFE, TOKENS, NODE],
    examine,
};

/// Each server is asked by a function of its own, one after the other: first the one that is not asked in most places, which leaves its time
/// to the others.
const DIALECTS: [fn(&CheckContext, &RequestBudget) -> CloudServerOutcome; 4] =
    [containers::examine, google::examine, aws::examine, azure::examine];

fn examine(site: &CheckContext) -> Vec<DoctorFinding> {
    let pace = RequestBudget::new((site.now)());
    let outcomes: Vec<_> = DIALECTS
        .iter()
        .map(|examine| {
            pace.next();
            examine(site, &pace)
        })
        .collect();
    // What the last one lends the first may have said.
    let outcomes: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.without_secrets(pace.secrets())).collect();
    let first = judge::servers(&outcomes, pace.count());
    let is_pod = (site.environment)("KUBERNETES_SERVICE_HOST").is_some();
    let servers = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Serving(server) => Some(server.as_ref()),
        _ => None,
    });
    let told = servers.flat_map(|server| about(server, is_pod));
    std::iter::once(first).chain(told).collect()
}

/// What is told of one server.
fn about(server: &RespondingServer, is_pod: bool) -> Vec<DoctorFinding> {
    let mut found = vec![judge::latency(server), judge::principal(server), judge::life(server)];
    found.extend(server.tokens.as_ref().map(judge::tokens));
    found.push(judge::node(server, is_pod));
    found
}
