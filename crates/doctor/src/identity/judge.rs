//! Judges the responses of metadata servers.

use std::time::Duration;

use seawall_fetch::FetchError;

use super::observed_metadata_server::{
    CloudServerOutcome, CredentialLifetime, CredentialResult, ImdsTokenStatus, InvalidServerVariable,
    RespondingServer, ServerPrincipal, describe_failure,
};
use super::refresh_windows::SdkRefreshWindow;
use super::{LATENCY, LIFE, NAME, NODE, PRINCIPAL, SERVERS, TOKENS, VARIABLES_SET};
use crate::finding::{DoctorFinding, DoctorStatus, pluralize};
use crate::http_client::HttpUrl;

/// Judges which metadata servers respond.
pub(super) fn judge_servers(outcomes: &[CloudServerOutcome], requests: u32) -> DoctorFinding {
    let serving: Vec<_> = outcomes.iter().filter_map(served).collect();
    let answering = serving.len();
    let text = if answering > 0 {
        // Among the silent servers, only those count that the environment names.
        let meant = silent(
            outcomes
                .iter()
                .filter(|outcome| outcome.server().is_some_and(|wanted| wanted.named_by.is_some())),
        );
        serving.into_iter().chain(meant).collect::<Vec<_>>().join("; ")
    } else {
        let told = silent(outcomes.iter());
        let told =
            if told.is_empty() { "the check could query none of them".to_owned() } else { told.join("; ") };
        format!("no metadata server responds: {told}")
    };
    let found = DoctorFinding::ok(SERVERS, text)
        .with_measurement("answering", answering as f64, "servers")
        .with_measurement("requests", f64::from(requests), "requests");
    match forbidden(outcomes).or_else(|| gravest(outcomes)) {
        Some((status, reason, fix)) => found.with_status(status, reason, fix),
        None => found,
    }
}

/// Returns the most serious complaint; among equal ones, the first.
fn gravest(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let complaints = [refused, tokenless, failing, named, unaskable, mute, broken];
    let told = complaints.iter().rev().filter_map(|complaint| complaint(outcomes));
    told.max_by_key(|(status, ..)| *status)
}

/// A complaint: its status, the reason and the fix.
type Complaint = (DoctorStatus, String, String);

fn forbidden(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let reason = "this machine forbids the requests (an eBPF program such as the redirect of seawall-agent while no agent serves the node, a local firewall rule, or a filter of system calls)";
    let fix = "if the cluster has seawall-agent, look at its pod on this node: kubectl -n seawall get pods -o wide; else send the request from the program's own container: curl -sv http://169.254.169.254/";
    let is_forbidden = outcomes.iter().any(CloudServerOutcome::is_connection_forbidden);
    is_forbidden.then(|| (DoctorStatus::Unknown, reason.to_owned(), fix.to_owned()))
}

fn refused(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let place = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::RefusedBySdks(wanted) => Some(&wanted.url),
        _ => None,
    })?;
    let (status, refuse) = match place.ip_address() {
        Some(_) => (DoctorStatus::Error, "refuse any other address"),
        None => (
            DoctorStatus::Warning,
            "refuse every host name except localhost (the SDKs for Go and Java also accept a name whose addresses are all in this list)",
        ),
    };
    let reason = format!(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI ({}): over http://, AWS's SDKs request container credentials only from loopback, 169.254.170.2, 169.254.170.23 and [fd00:ec2::23], and {refuse}",
        place.authority
    );
    let fix = "serve the credentials at one of these addresses, or over https://; or remove the variable";
    Some((status, reason, fix.to_owned()))
}

fn tokenless(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let why = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::NotAskedWithoutToken(_, why) => Some(why),
        _ => None,
    })?;
    let reason = format!("{why}: SDKs fail before they ask for credentials");
    let fix = "look at the named file and its volume as the user of the program; write the token without a line end";
    Some((DoctorStatus::Error, reason, fix.to_owned()))
}

/// Returns a complaint about a server that fails for every SDK, unless another kind of request to it succeeds.
fn failing(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let serves = |place: &HttpUrl| {
        let mut serving =
            outcomes.iter().filter(|outcome| matches!(outcome, CloudServerOutcome::Responding(_)));
        serving.any(|outcome| outcome.server().is_some_and(|wanted| wanted.url == *place))
    };
    let mut told: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            CloudServerOutcome::Failing(wanted, status) if !serves(&wanted.url) => {
                Some(format!("the server at {} responds {status}", wanted.url.authority))
            }
            _ => None,
        })
        .collect();
    told.dedup();
    let reason = |told| format!("{told}: SDKs get no credentials there, and most do not retry");
    error_of(&told, reason, "look at that server's log and at its own upstream requests")
}

fn named(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let named = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Absent(wanted, _)
        | CloudServerOutcome::OtherServer(wanted)
        | CloudServerOutcome::Failing(wanted, _) => {
            wanted.named_by.map(|name| format!("{name} ({})", wanted.url.authority))
        }
        _ => None,
    });
    let named: Vec<_> = named.collect();
    error_of(
        &named,
        |named| format!("SDKs use only the server that the environment names: {named}"),
        "check that the server runs on this node and that network policies let this pod reach it; or remove the variable",
    )
}

/// Returns one error for all these servers, with one reason; `None` without servers.
fn error_of(told: &[String], reason: impl FnOnce(String) -> String, fix: &str) -> Option<Complaint> {
    (!told.is_empty()).then(|| (DoctorStatus::Error, reason(told.join(", ")), fix.to_owned()))
}

fn unaskable(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let told = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Unaskable(name, why) => Some(misread(name, *why)),
        _ => None,
    });
    told.max_by_key(|(status, ..)| *status)
}

fn misread(name: &str, why: InvalidServerVariable) -> Complaint {
    // Google's library for Node accepts a URL. `cloud.google.com/go/compute/metadata` (Go), `compute_engine/_metadata.py`
    // (google-auth-library-python) and `ComputeEngineCredentials` (google-auth-library-java) do not check for one.
    let (status, why, fix) = match why {
        InvalidServerVariable::UrlForHost => (
            DoctorStatus::Error,
            "is a URL, but must be HOST or HOST:PORT: Google's libraries for Go, Python and Java add http:// and then request http://http://…",
            "remove the scheme and the path",
        ),
        InvalidServerVariable::NoHost => (
            DoctorStatus::Unknown,
            "is not HOST or HOST:PORT, so the check sent no request there",
            "check its value",
        ),
        InvalidServerVariable::Https => (
            DoctorStatus::Unknown,
            "is an https:// URL, but this check sends only http:// requests",
            "query that server by hand",
        ),
        InvalidServerVariable::Unsupported => (
            DoctorStatus::Unknown,
            "names a server with a protocol that this check does not support (Service Fabric, Azure Arc or Cloud Shell)",
            "query that server by hand",
        ),
        InvalidServerVariable::NoUrl => (
            DoctorStatus::Unknown,
            "is not an http:// URL, so the check sent no request there",
            "check its value",
        ),
    };
    (status, format!("{name} {why}"), format!("{name}: {fix}"))
}

fn mute(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let is_mute = |outcome: &CloudServerOutcome| {
        matches!(outcome, CloudServerOutcome::Absent(_, FetchError::Timeout(_)))
    };
    let serves = outcomes.iter().any(|outcome| matches!(outcome, CloudServerOutcome::Responding(_)));
    let reason = "a server accepts the connection but sends no complete response within a second: SDKs wait at least a second, some retry, and then they fail without credentials";
    let fix = "look at that server's log and CPU (run `seawall doctor cpu` there), or look for a proxy that accepts its connections";
    let is_error = !serves && outcomes.iter().any(is_mute);
    is_error.then(|| (DoctorStatus::Error, reason.to_owned(), fix.to_owned()))
}

/// Returns a complaint about a server that accepts connections but sends no valid response. SDKs that use it fail or retry.
///
/// It is only a warning, because the environment does not name this server (a named one is an error in [`named`]) and because SDKs go on to
/// the next server at once. A proxy that accepts all connections of a pod behaves like this if there is no server.
fn broken(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let serves = outcomes.iter().any(|outcome| matches!(outcome, CloudServerOutcome::Responding(_)));
    let (wanted, why) = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::Absent(
            wanted,
            why
            @ (FetchError::ConnectionBroken(_) | FetchError::TooLarge(_) | FetchError::InvalidResponse(_)),
        ) => Some((wanted, why)),
        _ => None,
    })?;
    let reason = format!(
        "a server accepts connections at {} but sends no valid response ({}): SDKs get no credentials there and go on to the next source in their chain",
        wanted.url.authority,
        describe_failure(why)
    );
    let fix = format!(
        "find out which program listens there, perhaps a proxy (a sidecar): curl -sv http://{}/",
        wanted.url.authority
    );
    (!serves).then_some((DoctorStatus::Warning, reason, fix))
}

fn served(outcome: &CloudServerOutcome) -> Option<String> {
    let CloudServerOutcome::Responding(server) = outcome else { return None };
    Some(format!("{} responds at {}", server.server.server_description, server.server.url.authority))
}

/// Returns the servers that do not respond, grouped by address and reason.
fn silent<'a>(outcomes: impl Iterator<Item = &'a CloudServerOutcome>) -> Vec<String> {
    let mut places: Vec<(String, Vec<&str>)> = Vec::new();
    for outcome in outcomes {
        let (wanted, why) = match outcome {
            CloudServerOutcome::RefusedBySdks(wanted) => {
                (wanted, "not queried, because SDKs refuse that host".to_owned())
            }
            CloudServerOutcome::NotAskedWithoutToken(wanted, _) => {
                (wanted, "not queried, because its token is missing".to_owned())
            }
            CloudServerOutcome::Absent(wanted, FetchError::Timeout(_)) => {
                (wanted, "connected, but no response".to_owned())
            }
            CloudServerOutcome::Absent(wanted, FetchError::ConnectTimeout(_)) => {
                (wanted, "no response".to_owned())
            }
            CloudServerOutcome::Absent(wanted, why) => (wanted, describe_failure(why)),
            CloudServerOutcome::OtherServer(wanted) => {
                (wanted, "a server responds, but not like this metadata server".to_owned())
            }
            CloudServerOutcome::Failing(wanted, status) => (wanted, format!("a server responds {status}")),
            _ => continue,
        };
        let told = format!("at {}: {why}", wanted.url.authority);
        match places.iter_mut().find(|(known, _)| *known == told) {
            Some((_, all)) => all.push(wanted.server_description),
            None => places.push((told, vec![wanted.server_description])),
        }
    }
    places.into_iter().map(|(told, whose)| format!("{} {told}", whose.join(", "))).collect()
}

/// Half of the shortest wait of an SDK (aws-sdk-go-v2: 500 ms), and nearly the wait of Azure's probe. Under load, a response takes twice as
/// long.
const SLOW: Duration = Duration::from_millis(250);

/// The least number of responses for the status ok. Azure's server, which allows the fewest requests, gets this many.
const ENOUGH: usize = 3;

/// The variables that SDKs use before a metadata server. Sources: AWS SDKs and Tools reference, "Understand the credential provider chain";
/// Google Cloud documentation, "How Application Default Credentials works".
const VARIABLES: [(&str, &str); 3] = [
    ("AWS", "AWS_ACCESS_KEY_ID"),
    ("AWS", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ("Google", "GOOGLE_APPLICATION_CREDENTIALS"),
];

/// Names the variables with which SDKs find credentials before they ask a server. Returns `None` if none is set, because the finding would say
/// nothing then.
pub(super) fn judge_environment(is_set: impl Fn(&str) -> bool) -> Option<DoctorFinding> {
    let set = VARIABLES.iter().filter(|(_, name)| is_set(name));
    let told: Vec<_> =
        set.map(|(cloud, name)| format!("{cloud}'s SDKs use {name} before they ask these servers")).collect();
    (!told.is_empty()).then(|| DoctorFinding::ok(VARIABLES_SET, told.join("; ")))
}

/// Judges the latency and the success rate of a server.
pub(super) fn judge_latency(server: &RespondingServer) -> DoctorFinding {
    let asked = server.credential_attempts.len();
    let answered = credentials(server);
    let times = times(server);
    let millis = |took: Option<&Duration>| took.map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let (median, worst) = (millis(times.get(times.len() / 2)), millis(times.last()));
    let text = answers(server, answered, times.len(), [median, worst]);
    let found = DoctorFinding::ok(LATENCY, text)
        .with_measurement("asked", asked as f64, "requests")
        .with_measurement("answered", answered as f64, "requests")
        .with_measurement("median", median, "ms")
        .with_measurement("worst", worst, "ms");
    if answered < asked {
        return found.with_status(
            DoctorStatus::Error,
            format!("these requests returned no credentials: {}; most SDKs send only one request, wait at most a second for its response, and then fail the call", others(server).join(", ")),
            "look at that server's log, its CPU (run the check cpu.throttling there) and its number of clients; the check identity.life shows whether SDKs refresh too often",
        );
    }
    if worst >= millis(Some(&SLOW)) {
        let is_over = worst >= millis(Some(&server.sdk_timeout.least));
        return found.with_status(
            if is_over { DoctorStatus::Error } else { DoctorStatus::Warning },
            format!("that server is slow: {}; under load it will be slower", server.sdk_timeout.description),
            "look at that server's CPU and at its own upstream requests",
        );
    }
    if asked >= ENOUGH || matches!(server.principal, ServerPrincipal::NoIdentity(_)) {
        return found;
    }
    let reason = match server.principal {
        ServerPrincipal::Named(..) => {
            "the check ran out of time before it had sent enough requests for credentials"
        }
        _ => "the server did not name an identity, so the check requested no credentials from it",
    };
    found.with_status(
        DoctorStatus::Unknown,
        reason,
        "query that server a few times by hand: curl -w '%{time_total}'",
    )
}

/// Returns the number of responses with credentials.
fn credentials(server: &RespondingServer) -> usize {
    server
        .credential_attempts
        .iter()
        .filter(|once| matches!(once.result, CredentialResult::Credentials))
        .count()
}

/// Returns the sorted response times: of requests for credentials, or of all requests if the former are too few.
fn times(server: &RespondingServer) -> Vec<Duration> {
    let tries = server
        .credential_attempts
        .iter()
        .filter(|once| !matches!(once.result, CredentialResult::NoAnswer(_)))
        .map(|once| once.took);
    let mut times: Vec<_> = if server.credential_attempts.len() < ENOUGH {
        server.response_times.clone()
    } else {
        tries.collect()
    };
    times.sort_unstable();
    times
}

/// Describes the responses, with the median and the largest time in milliseconds.
fn answers(server: &RespondingServer, answered: usize, count: usize, [median, worst]: [f64; 2]) -> String {
    let (whose, asked) = (server.server.server_description, server.credential_attempts.len());
    let within =
        format!("in {median:.1} ms at the median and at most {worst:.1} ms, each on a new connection");
    let others = pluralize(count as f64, "other response");
    let all = if count == 1 { "its only response".to_owned() } else { format!("all its {count} responses") };
    match (asked, &server.principal) {
        (0, ServerPrincipal::NoIdentity(_)) => {
            format!(
                "{whose} has no credentials, so the check did not request any from it; the server sent {others} {within}"
            )
        }
        (0, _) => format!("the check requested no credentials from {whose}, which sent {others} {within}"),
        (..ENOUGH, _) => {
            format!("{whose} gave credentials {answered} of {asked} times; it sent {all} {within}")
        }
        _ => format!("{whose} gave credentials {answered} of {asked} times, {within}"),
    }
}

/// Returns the results other than credentials, each kind once with its count.
fn others(server: &RespondingServer) -> Vec<String> {
    let mut kinds: Vec<(String, u32)> = Vec::new();
    for once in
        server.credential_attempts.iter().filter(|once| !matches!(once.result, CredentialResult::Credentials))
    {
        let told = once.result.to_string();
        match kinds.iter_mut().find(|(known, _)| *known == told) {
            Some((_, count)) => *count += 1,
            None => kinds.push((told, 1)),
        }
    }
    let said = |(told, count)| if count == 1 { told } else { format!("{told} ({count} times)") };
    kinds.into_iter().map(said).collect()
}

/// Judges the identity that programs on this machine get.
pub(super) fn judge_principal(server: &RespondingServer) -> DoctorFinding {
    let whose = server.server.server_description;
    match &server.principal {
        ServerPrincipal::Named(what, name) if !server.credential_attempts.is_empty() && credentials(server) == 0 => {
            DoctorFinding::ok(PRINCIPAL, format!("{whose} gave no credentials; its identity is {what}{name}"))
        }
        ServerPrincipal::Named(what, name) => DoctorFinding::ok(PRINCIPAL, format!("{whose} gives credentials of {what}{name}")),
        ServerPrincipal::NoIdentity(words) => DoctorFinding::ok(PRINCIPAL, format!("{whose} has no credentials for this pod or machine")).with_status(
            DoctorStatus::Warning,
            format!(
                "the server responds but has no identity{}: each SDK tries it first, then fails or goes on to the next source in its chain",
                words.as_ref().map_or(String::new(), |words| format!(" ({words})"))
            ),
            "give the pod an identity (Google: iam.gke.io/gcp-service-account; AWS: an association or a role; Azure: an identity of the machine), or block its access to the server",
        ),
        ServerPrincipal::Failing(status) => DoctorFinding::ok(PRINCIPAL, format!("{whose} does not say which identity programs on this machine get")).with_status(
            DoctorStatus::Error,
            format!("the server responded {status} to the request for the identity: SDKs get no credentials, and most do not retry"),
            "look at that server's log and at its own upstream requests",
        ),
        ServerPrincipal::Refused(status, words) => unsaid(format!("{whose}: it responded {status}: {words}")),
        ServerPrincipal::Unknown(why) => unsaid(format!("{whose}: {why}")),
    }
}

fn unsaid(why: String) -> DoctorFinding {
    DoctorFinding::ok(PRINCIPAL, "unknown".to_owned()).with_status(
        DoctorStatus::Unknown,
        why,
        "look at that server's log",
    )
}

/// Judges the lifetime of the credentials against the refresh windows of the SDKs.
pub(super) fn judge_lifetime(server: &RespondingServer) -> DoctorFinding {
    let whose = server.server.server_description;
    if matches!(server.principal, ServerPrincipal::NoIdentity(_)) {
        return DoctorFinding::ok(LIFE, format!("{whose} has no credentials, so none expire"));
    }
    let life = match &server.lifetime {
        Ok(life) => *life,
        Err(why) => {
            return DoctorFinding::unknown(
                LIFE,
                why,
                format!(
                    "look at the expiry of the credentials of {whose} by hand; do not print the credentials"
                ),
            );
        }
    };
    let largest = server.refresh_windows.iter().map(|window| window.seconds).max().unwrap_or(0);
    let whole = life.total_seconds.map_or_else(String::new, |whole| format!(" of {}", format_seconds(whole)));
    let text = format!(
        "the credentials of {whose} have {}{whole} left; the SDK with the largest refresh window renews credentials that have less than {} left",
        format_seconds(life.remaining_seconds),
        format_seconds(largest)
    );
    let found = DoctorFinding::ok(LIFE, text)
        .with_measurement("left", life.remaining_seconds as f64, "s")
        .with_measurement("window", largest as f64, "s");
    let found =
        life.total_seconds.map_or(found.clone(), |whole| found.with_measurement("whole", whole as f64, "s"));
    if life.remaining_seconds <= 0 {
        return found.with_status(
            DoctorStatus::Error,
            "the credentials have expired: the cloud refuses every call with them",
            "look at that server's log, and at this machine's clock",
        );
    }
    match thrashing(server.refresh_windows, life) {
        Some((status, reason)) => found.with_status(
            status,
            reason,
            "let the server issue longer sessions (AWS: MaxSessionDuration, an hour or more) and renew each session before \
             any of these SDKs starts to refresh it; or use newer releases of these SDKs",
        ),
        None => found,
    }
}

/// The denominator of the shortest calm share of a lifetime. Credentials that have more than the refresh window left for less than a fifth
/// of their lifetime count as thrashing, because servers renew late, the real ones within the last minutes. So the status of short
/// sessions does not depend on the second of the check. Longer sessions need no such rule: credentials with less left than the window show
/// that the server does not renew early.
const CALM: i64 = 5;

/// Returns the SDKs that fetch credentials at each call, now or later, and the status.
fn thrashing(windows: &[SdkRefreshWindow], life: CredentialLifetime) -> Option<(DoctorStatus, String)> {
    let whole = life.total_seconds.unwrap_or(i64::MAX);
    let who = |is: &dyn Fn(&SdkRefreshWindow) -> bool| {
        describe_refresh_windows(windows.iter().filter(|window| is(window)))
    };
    let ever = who(&|window| window.seconds >= whole);
    let now = who(&|window| window.seconds >= life.remaining_seconds);
    let soon = who(&|window| whole.saturating_sub(window.seconds) < whole / CALM);
    let anew = "each call of these SDKs fetches new credentials and waits for them";
    if !ever.is_empty() {
        let text = format!(
            "the credentials' lifetime is at most as long as these refresh windows, so {anew}: {ever}"
        );
        return Some((DoctorStatus::Error, text));
    }
    if !now.is_empty() {
        return Some((
            DoctorStatus::Warning,
            format!("until the server renews the credentials, {anew}: {now}"),
        ));
    }
    let text = format!(
        "unless the server renews the credentials early, {anew} during more than four fifths of the credentials' lifetime: {soon}"
    );
    (!soon.is_empty()).then_some((DoctorStatus::Warning, text))
}

fn describe_refresh_windows<'a>(windows: impl Iterator<Item = &'a SdkRefreshWindow>) -> String {
    let told = windows.map(|window| {
        format!(
            "{} ({} window, {})",
            window.client,
            format_seconds(window.seconds),
            requests(window.requests_per_refresh)
        )
    });
    told.collect::<Vec<_>>().join(", ")
}

fn requests(count: u32) -> String {
    if count == 1 { "1 request per call".to_owned() } else { format!("{count} requests per call") }
}

/// Formats a duration, such as `43 min`, `14.5 min` or `50 s`.
fn format_seconds(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", (seconds as f64 / 6.0).round() / 10.0),
        _ => format!("{} h", (seconds as f64 / 360.0).round() / 10.0),
    }
}

/// Judges whether AWS's session tokens (IMDSv2) reach this machine.
pub(super) fn judge_imds_tokens(tokens: &ImdsTokenStatus) -> DoctorFinding {
    let said = |status: Option<u16>| status.map_or("no response".to_owned(), |status| format!("{status}"));
    let text = format!(
        "request for a session token (IMDSv2): {}; request without a token (IMDSv1): {}",
        said(tokens.put_status),
        said(tokens.status_without_token)
    );
    let found = DoctorFinding::ok(TOKENS, text);
    let hops = "raise the hop limit: aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2; or \
                block pods' access to the server and give them their own identity";
    match (tokens.put_status, tokens.status_without_token) {
        (Some(200), _) => found,
        (None, _) if tokens.is_server_slow => found.with_status(
            DoctorStatus::Unknown,
            "the server responds late, so the check cannot tell whether the response with the token is late or lost",
            "look at that server first (identity.latency)",
        ),
        (None, Some(200)) => found.with_status(
            DoctorStatus::Error,
            "the response with the token is lost, as with a hop limit of 1: at each fetch, SDKs wait for the token for a second or more and then continue without it; SDKs for Rust fail instead",
            hops,
        ),
        (None, _) => found.with_status(
            DoctorStatus::Error,
            "the response with the token is lost, as with a hop limit of 1, and the server needs a token: no SDK here gets credentials",
            hops,
        ),
        (Some(400), _) => found.with_status(
            DoctorStatus::Error,
            "every SDK gives up at status 400",
            "look at that server: it must respond 200 to a token request with X-aws-ec2-metadata-token-ttl-seconds, or 404 if it has no tokens",
        ),
        (Some(_), Some(200)) => found.with_status(
            DoctorStatus::Warning,
            "most SDKs continue without a token and still get credentials; the SDK for Rust fails",
            "let the server issue tokens (IMDSv2)",
        ),
        (Some(_), _) => found.with_status(
            DoctorStatus::Error,
            "the server gives no credentials, neither with nor without a token",
            "look at that server's log",
        ),
    }
}

/// Judges whether clients that ask Google's metadata server by its name find it.
pub(super) fn judge_google_name(asked: &Result<(), FetchError>) -> DoctorFinding {
    let found = |text: &str| DoctorFinding::ok(NAME, text.to_owned());
    match asked {
        Ok(()) => found("metadata.google.internal resolves to a metadata server"),
        Err(FetchError::Timeout(_)) => found("metadata.google.internal: no response in time").with_status(
            DoctorStatus::Unknown,
            "the check cannot tell whether the name resolves or the server is slow",
            "look up the name (seawall doctor dns --lookup metadata.google.internal)",
        ),
        Err(why) => found(&format!("metadata.google.internal: {why}")).with_status(
            DoctorStatus::Warning,
            "Google's libraries for Python and Java and gcloud use this name, and find no metadata server; the library for Go uses 169.254.169.254",
            "add the name to the cluster's DNS (CoreDNS, in the server block .:53: hosts { 169.254.169.254 metadata.google.internal and fallthrough, on two lines }), \
             or set GCE_METADATA_HOST=169.254.169.254 in the pod",
        ),
    }
}

/// Judges whether this pod could act as its node.
pub(super) fn judge_node_access(server: &RespondingServer, is_pod: bool) -> DoctorFinding {
    let whose = server.server.server_description;
    let name = match &server.principal {
        ServerPrincipal::Named(what, name) => [what, name.as_str()].concat(),
        ServerPrincipal::NoIdentity(_) => "none".to_owned(),
        _ => "unknown".to_owned(),
    };
    if !is_pod {
        return DoctorFinding::ok(
            NODE,
            format!("this is not a pod, so the credentials of {whose} belong to this machine"),
        );
    }
    let is_compute = name.ends_with("-compute@developer.gserviceaccount.com");
    let own = match server.is_node_metadata_server {
        Some(true) => "returns data that only the node's own metadata server has",
        Some(false) => "does not return the data that only the node's own metadata server has",
        None => "did not respond to a request for data that only the node's own metadata server has",
    };
    let found = DoctorFinding::ok(NODE, format!("{whose} {own}; its identity: {name}"));
    match server.is_node_metadata_server {
        Some(false) if !is_compute => return found,
        None if !is_compute => {
            let reason = "the request that identifies the node's own metadata server got no response in time";
            return found.with_status(
                DoctorStatus::Unknown,
                reason,
                "look at that server first (identity.latency)",
            );
        }
        _ => {}
    }
    found.with_status(
        DoctorStatus::Warning,
        "this pod can reach the node's own metadata server: code in the pod can read data about the node, and can act as the node if that server issues the node's credentials",
        "block pods' access to that server and give the pods their own identities (Google: Workload Identity; AWS: hop limit 1 with \
         EKS Pod Identity or IRSA; Azure: Workload Identity; or a metadata server for pods on the node), and use a \
         NetworkPolicy without 169.254.169.254",
    )
}
