//! What was seen of metadata servers comes to this.

use std::time::Duration;

use seawall_fetch::FetchError;

use super::lent::{
    CloudServerOutcome, CredentialLifetime, CredentialResult, ImdsTokenStatus, InvalidServerVariable,
    RespondingServer, ServerPrincipal, describe_failure,
};
use super::windows::SdkRefreshWindow;
use super::{LATENCY, LIFE, NODE, PRINCIPAL, SERVERS, TOKENS};
use crate::finding::{DoctorFinding, DoctorVerdict, pluralize};
use crate::web::HttpUrl;

/// Which of them answer.
pub(super) fn servers(outcomes: &[CloudServerOutcome], requests: u32) -> DoctorFinding {
    let serving: Vec<_> = outcomes.iter().filter_map(served).collect();
    let answering = serving.len();
    let text = if answering > 0 {
        // Of the others those that are meant to be there.
        let meant = silent(
            outcomes
                .iter()
                .filter(|outcome| outcome.wanted().is_some_and(|wanted| wanted.named_by.is_some())),
        );
        serving.into_iter().chain(meant).collect::<Vec<_>>().join("; ")
    } else {
        let told = silent(outcomes.iter());
        let told = if told.is_empty() { "none could be asked".to_owned() } else { told.join("; ") };
        format!("no metadata server answers: {told}")
    };
    let found = DoctorFinding::ok(SERVERS, text)
        .with_measurement("answering", answering as f64, "servers")
        .with_measurement("requests", f64::from(requests), "requests");
    match forbidden(outcomes).or_else(|| gravest(outcomes)) {
        Some((verdict, reason, fix)) => found.with_verdict(verdict, reason, fix),
        None => found,
    }
}

/// Of several the gravest, and of those the first.
fn gravest(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let complaints = [refused, tokenless, failing, named, unaskable, mute, broken];
    let told = complaints.iter().rev().filter_map(|complaint| complaint(outcomes));
    told.max_by_key(|(verdict, ..)| *verdict)
}

/// What is wrong with the servers, why, and what to do.
type Complaint = (DoctorVerdict, String, String);

fn forbidden(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let reason = "this machine forbids to ask (a firewall rule of its own, or a filter of system calls)";
    let fix =
        "ask from the program's own container: curl -sv -H 'Metadata-Flavor: Google' http://169.254.169.254/";
    let is_forbidden = outcomes.iter().any(CloudServerOutcome::is_forbidden);
    is_forbidden.then(|| (DoctorVerdict::CannotTell, reason.to_owned(), fix.to_owned()))
}

fn refused(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let place = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::Refused(wanted) => Some(&wanted.place),
        _ => None,
    })?;
    let (verdict, refuse) = match place.address() {
        Some(_) => (DoctorVerdict::Fault, "refuse every other address before anything is sent"),
        None => (
            DoctorVerdict::Warning,
            "take no name but localhost, or (Go, Java) one of which each address is one of these: others are refused before anything is sent",
        ),
    };
    let reason = format!(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI ({}): over http:// AWS's SDKs ask loopback, 169.254.170.2, 169.254.170.23 and [fd00:ec2::23] for containers' credentials, and {refuse}",
        place.authority
    );
    let fix = "serve them at one of these addresses, or over https://; or take the variable away";
    Some((verdict, reason, fix.to_owned()))
}

fn tokenless(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let why = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::Tokenless(_, why) => Some(why),
        _ => None,
    })?;
    let reason = format!("{why}: SDKs fail before they ask for credentials");
    let fix = "look at what is named there, and at the volume that a file is on, as the user of the program that asks; whoever writes it writes no line end";
    Some((DoctorVerdict::Fault, reason, fix.to_owned()))
}

/// A server that fails whoever asks, and of which nobody else's way of asking gets more.
fn failing(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let serves = |place: &HttpUrl| {
        let mut serving = outcomes.iter().filter(|outcome| matches!(outcome, CloudServerOutcome::Serving(_)));
        serving.any(|outcome| outcome.wanted().is_some_and(|wanted| wanted.place == *place))
    };
    let mut told: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            CloudServerOutcome::Failing(wanted, status) if !serves(&wanted.place) => {
                Some(format!("the server at {} answers {status}", wanted.place.authority))
            }
            _ => None,
        })
        .collect();
    told.dedup();
    let reason =
        |told| format!("{told}: SDKs that ask there have no credentials, and most try no second time");
    fault_of(&told, reason, "look at that server's log, and at what it asks itself for each answer")
}

fn named(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let named = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Absent(wanted, _)
        | CloudServerOutcome::OtherServer(wanted)
        | CloudServerOutcome::Failing(wanted, _) => {
            wanted.named_by.map(|name| format!("{name} ({})", wanted.place.authority))
        }
        _ => None,
    });
    let named: Vec<_> = named.collect();
    fault_of(
        &named,
        |named| format!("SDKs ask where the environment sends them, and nowhere else then: {named}"),
        "look whether that server runs on this node, and whether a NetworkPolicy lets this pod ask it; or take the variable away",
    )
}

/// A fault of all that are told of here, and why together; none of nobody.
fn fault_of(told: &[String], reason: impl FnOnce(String) -> String, fix: &str) -> Option<Complaint> {
    (!told.is_empty()).then(|| (DoctorVerdict::Fault, reason(told.join(", ")), fix.to_owned()))
}

fn unaskable(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let told = outcomes.iter().filter_map(|outcome| match outcome {
        CloudServerOutcome::Unaskable(name, why) => Some(misread(name, *why)),
        _ => None,
    });
    told.max_by_key(|(verdict, ..)| *verdict)
}

fn misread(name: &str, why: InvalidServerVariable) -> Complaint {
    // Node's takes a URL as it is; golang `cloud.google.com/go/compute/metadata`, google-auth-library-python `compute_engine/_metadata.py`
    // and google-auth-library-java `ComputeEngineCredentials` do not look.
    let (verdict, why, fix) = match why {
        InvalidServerVariable::UrlForHost => (
            DoctorVerdict::Fault,
            "is a URL where HOST or HOST:PORT is expected: Google's libraries for Go, Python and Java put http:// before it, and ask http://http://… in vain",
            "leave out the scheme and the path",
        ),
        InvalidServerVariable::NoHost => (
            DoctorVerdict::CannotTell,
            "is no HOST or HOST:PORT, so nobody is asked there",
            "look at its value",
        ),
        InvalidServerVariable::Https => (
            DoctorVerdict::CannotTell,
            "is an https:// URL, and nothing but http:// is asked here",
            "ask that server by hand",
        ),
        InvalidServerVariable::Unsupported => (
            DoctorVerdict::CannotTell,
            "names a server that Azure's SDKs ask in a way that is not spoken here (Service Fabric's, Azure Arc's, Cloud Shell's)",
            "ask that server by hand",
        ),
        InvalidServerVariable::NoUrl => {
            (DoctorVerdict::CannotTell, "is no http:// URL, so nobody is asked there", "look at its value")
        }
    };
    (verdict, format!("{name} {why}"), format!("{name}: {fix}"))
}

fn mute(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let is_mute = |outcome: &CloudServerOutcome| {
        matches!(outcome, CloudServerOutcome::Absent(_, FetchError::Timeout(_)))
    };
    let serves = outcomes.iter().any(|outcome| matches!(outcome, CloudServerOutcome::Serving(_)));
    let reason = "somebody takes the connection and gives no whole answer within a second: SDKs wait there for that and more, some try again, and then have no credentials";
    let fix = "look at that server's log and at its CPU (cpu.throttling there), or at the proxy that takes the connection in its place";
    let is_fault = !serves && outcomes.iter().any(is_mute);
    is_fault.then(|| (DoctorVerdict::Fault, reason.to_owned(), fix.to_owned()))
}

/// Somebody takes the connection and never gives an answer that could be read. That is not nobody: SDKs that ask there fail, or ask again. A
/// warning and no fault, because it is known of no server there that it should serve (one that a variable names is a fault in [`named`]), and
/// unlike one that is mute it lets SDKs go on at once: a proxy that takes all of a pod's connections does so where there is no server.
fn broken(outcomes: &[CloudServerOutcome]) -> Option<Complaint> {
    let serves = outcomes.iter().any(|outcome| matches!(outcome, CloudServerOutcome::Serving(_)));
    let (wanted, why) = outcomes.iter().find_map(|outcome| match outcome {
        CloudServerOutcome::Absent(
            wanted,
            why @ (FetchError::Broken(_) | FetchError::TooLarge(_) | FetchError::Http(_)),
        ) => Some((wanted, why)),
        _ => None,
    })?;
    let reason = format!(
        "somebody takes connections at {} and gives no answer that can be read ({}): SDKs that ask there have no credentials; if no server is meant to be there, they go on to the next of their chain",
        wanted.place.authority,
        describe_failure(why)
    );
    let fix = format!(
        "look who listens there, and whether a proxy (a sidecar) takes the connection in its place: curl -sv http://{}/",
        wanted.place.authority
    );
    (!serves).then_some((DoctorVerdict::Warning, reason, fix))
}

fn served(outcome: &CloudServerOutcome) -> Option<String> {
    let CloudServerOutcome::Serving(server) = outcome else { return None };
    Some(format!("{} answers at {}", server.wanted.description, server.wanted.place.authority))
}

/// Those that do not serve, together where they are at one place for one reason.
fn silent<'a>(outcomes: impl Iterator<Item = &'a CloudServerOutcome>) -> Vec<String> {
    let mut places: Vec<(String, Vec<&str>)> = Vec::new();
    for outcome in outcomes {
        let (wanted, why) = match outcome {
            CloudServerOutcome::Refused(wanted) => (wanted, "not asked, as SDKs refuse that host".to_owned()),
            CloudServerOutcome::Tokenless(wanted, _) => {
                (wanted, "not asked, as there is no token for it".to_owned())
            }
            CloudServerOutcome::Absent(wanted, FetchError::Timeout(_)) => {
                (wanted, "a connection, and no answer".to_owned())
            }
            CloudServerOutcome::Absent(wanted, FetchError::ConnectTimeout(_)) => {
                (wanted, "no answer".to_owned())
            }
            CloudServerOutcome::Absent(wanted, why) => (wanted, describe_failure(why)),
            CloudServerOutcome::OtherServer(wanted) => {
                (wanted, "somebody answers, but not as it does".to_owned())
            }
            CloudServerOutcome::Failing(wanted, status) => (wanted, format!("somebody answers {status}")),
            _ => continue,
        };
        let told = format!("at {}: {why}", wanted.place.authority);
        match places.iter_mut().find(|(known, _)| *known == told) {
            Some((_, all)) => all.push(wanted.description),
            None => places.push((told, vec![wanted.description])),
        }
    }
    places.into_iter().map(|(told, whose)| format!("{} {told}", whose.join(", "))).collect()
}

/// Half of what the least patient SDK waits (aws-sdk-go-v2: 500 ms), and nearly what Azure's probe does: under load an answer takes twice as long.
const SLOW: Duration = Duration::from_millis(250);

/// Of fewer answers nothing is said to be fine. Azure's server, which bears the fewest requests, is asked for so many.
const ENOUGH: usize = 3;

/// How soon it answers, and how often.
pub(super) fn latency(server: &RespondingServer) -> DoctorFinding {
    let asked = server.attempts.len();
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
        return found.with_verdict(
            DoctorVerdict::Fault,
            format!("the others: {}; most SDKs ask once, wait a second at most, and fail the call that they were asked for", others(server).join(", ")),
            "look at that server's log and its CPU (cpu.throttling there), and how many others ask it: a refresh that is too frequent is told by identity.life",
        );
    }
    if worst >= millis(Some(&SLOW)) {
        let is_over = worst >= millis(Some(&server.sdk_timeout.least));
        return found.with_verdict(
            if is_over { DoctorVerdict::Fault } else { DoctorVerdict::Warning },
            format!("it is slow: {}; under load it will be later", server.sdk_timeout.who),
            "look at that server's CPU and at what it asks itself for each answer",
        );
    }
    if asked >= ENOUGH || matches!(server.principal, ServerPrincipal::NoIdentity) {
        return found;
    }
    let reason = match server.principal {
        ServerPrincipal::Named(..) => {
            "the time for it was over before it had been asked for credentials often enough"
        }
        _ => "it did not say whose credentials it lends, so it was not asked for them",
    };
    found.with_verdict(
        DoctorVerdict::CannotTell,
        reason,
        "ask that server by hand some times: curl -w '%{time_total}'",
    )
}

/// How often it gave credentials.
fn credentials(server: &RespondingServer) -> usize {
    server.attempts.iter().filter(|once| matches!(once.got, CredentialResult::Credentials)).count()
}

/// How long its answers took, in order: those with credentials, or where they are too few all of them.
fn times(server: &RespondingServer) -> Vec<Duration> {
    let tries = server
        .attempts
        .iter()
        .filter(|once| !matches!(once.got, CredentialResult::NoAnswer(_)))
        .map(|once| once.took);
    let mut times: Vec<_> =
        if server.attempts.len() < ENOUGH { server.times.clone() } else { tries.collect() };
    times.sort_unstable();
    times
}

/// What it answered, with the median and the largest of these times in milliseconds.
fn answers(server: &RespondingServer, answered: usize, count: usize, [median, worst]: [f64; 2]) -> String {
    let (whose, asked) = (server.wanted.description, server.attempts.len());
    let within = format!(
        "within {median:.1} ms at the median and {worst:.1} ms at most, each on a connection of its own"
    );
    let others = pluralize(count as f64, "other answer");
    let all = if count == 1 { "its only answer".to_owned() } else { format!("all its {count} answers") };
    match (asked, &server.principal) {
        (0, ServerPrincipal::NoIdentity) => {
            format!("{whose} was not asked for credentials, which it has not; it gave {others} {within}")
        }
        (0, _) => format!("{whose} was not asked for credentials; it gave {others} {within}"),
        (..ENOUGH, _) => {
            format!("{whose} gave credentials {answered} of {asked} times; {all} came {within}")
        }
        _ => format!("{whose} gave credentials {answered} of {asked} times, {within}"),
    }
}

/// What came in place of credentials, each kind once with how often it came.
fn others(server: &RespondingServer) -> Vec<String> {
    let mut kinds: Vec<(String, u32)> = Vec::new();
    for once in server.attempts.iter().filter(|once| !matches!(once.got, CredentialResult::Credentials)) {
        let told = once.got.to_string();
        match kinds.iter_mut().find(|(known, _)| *known == told) {
            Some((_, count)) => *count += 1,
            None => kinds.push((told, 1)),
        }
    }
    let said = |(told, count)| if count == 1 { told } else { format!("{told} ({count} times)") };
    kinds.into_iter().map(said).collect()
}

/// As whom programs here are.
pub(super) fn principal(server: &RespondingServer) -> DoctorFinding {
    let whose = server.wanted.description;
    match &server.principal {
        ServerPrincipal::Named(what, name) if !server.attempts.is_empty() && credentials(server) == 0 => {
            DoctorFinding::ok(PRINCIPAL, format!("{whose} gave no credentials; whose they would be: {what}{name}"))
        }
        ServerPrincipal::Named(what, name) => DoctorFinding::ok(PRINCIPAL, format!("{whose} lends credentials of: {what}{name}")),
        ServerPrincipal::NoIdentity => DoctorFinding::ok(PRINCIPAL, format!("{whose} has no credentials for who asks here")).with_verdict(
            DoctorVerdict::Warning,
            "SDKs find a server, and no identity at it: each tries it first, and fails or goes on to the next of its chain",
            "give the pod an identity (Google: iam.gke.io/gcp-service-account; AWS: an association or a role; Azure: an identity of the machine), or keep it from the server",
        ),
        ServerPrincipal::Failing(status) => DoctorFinding::ok(PRINCIPAL, format!("{whose} does not say as whom programs here are")).with_verdict(
            DoctorVerdict::Fault,
            format!("it answered {status} when it was asked for that: SDKs have no credentials, and most try no second time"),
            "look at that server's log, and at what it asks itself for each answer",
        ),
        ServerPrincipal::Refused(status, words) => unsaid(format!("{whose}: it answered {status}: {words}")),
        ServerPrincipal::Unknown(why) => unsaid(format!("{whose}: {why}")),
    }
}

fn unsaid(why: String) -> DoctorFinding {
    DoctorFinding::ok(PRINCIPAL, "not seen".to_owned()).with_verdict(
        DoctorVerdict::CannotTell,
        why,
        "look at that server's log",
    )
}

/// How long its credentials live, against the windows of those who ask it.
pub(super) fn life(server: &RespondingServer) -> DoctorFinding {
    let whose = server.wanted.description;
    if matches!(server.principal, ServerPrincipal::NoIdentity) {
        return DoctorFinding::ok(LIFE, format!("{whose} lends nothing to who asks here, so nothing ends"));
    }
    let life = match &server.lifetime {
        Ok(life) => *life,
        Err(why) => {
            return DoctorFinding::unknown(
                LIFE,
                why,
                format!("look at what {whose} lends by hand, without showing it: its end alone"),
            );
        }
    };
    let largest = server.windows.iter().map(|window| window.seconds).max().unwrap_or(0);
    let whole = life.whole.map_or_else(String::new, |whole| format!(" of {}", spoken(whole)));
    let text = format!(
        "what {whose} lends has {}{whole} left; the largest window of its SDKs is {}",
        spoken(life.left),
        spoken(largest)
    );
    let found = DoctorFinding::ok(LIFE, text)
        .with_measurement("left", life.left as f64, "s")
        .with_measurement("window", largest as f64, "s");
    let found = life.whole.map_or(found.clone(), |whole| found.with_measurement("whole", whole as f64, "s"));
    if life.left <= 0 {
        return found.with_verdict(
            DoctorVerdict::Fault,
            "they have ended: every call that is signed with them is refused",
            "look at that server's log, and at this machine's clock",
        );
    }
    match thrashing(server.windows, life) {
        Some((verdict, reason)) => found.with_verdict(
            verdict,
            reason,
            "let the server lend longer sessions (AWS: MaxSessionDuration, an hour and more), and renew them while more than the largest window is left; or use newer \
             releases of these SDKs",
        ),
        None => found,
    }
}

/// Above a window for less than a fifth of its life a session is as good as never: servers renew later than that, the real ones within its last
/// minutes. So that the verdict on short sessions does not hang on the second in which they are looked at. Of longer ones that is seen: who
/// lends what has less left than a window does not renew before it.
const CALM: i64 = 5;

/// Who asks anew at each call, now and for how long.
fn thrashing(windows: &[SdkRefreshWindow], life: CredentialLifetime) -> Option<(DoctorVerdict, String)> {
    let whole = life.whole.unwrap_or(i64::MAX);
    let who =
        |is: &dyn Fn(&SdkRefreshWindow) -> bool| told_windows(windows.iter().filter(|window| is(window)));
    let ever = who(&|window| window.seconds >= whole);
    let now = who(&|window| window.seconds >= life.left);
    let soon = who(&|window| whole.saturating_sub(window.seconds) < whole / CALM);
    let anew = "each call of these SDKs fetches them anew and waits for that";
    if !ever.is_empty() {
        let text = format!("they are never above these windows, so {anew}: {ever}");
        return Some((DoctorVerdict::Fault, text));
    }
    if !now.is_empty() {
        return Some((DoctorVerdict::Warning, format!("until the server renews them, {anew}: {now}")));
    }
    let text = format!(
        "for more than four fifths of their life, unless the server renews them before, {anew}: {soon}"
    );
    (!soon.is_empty()).then_some((DoctorVerdict::Warning, text))
}

fn told_windows<'a>(windows: impl Iterator<Item = &'a SdkRefreshWindow>) -> String {
    let told = windows.map(|window| {
        format!("{} ({} window, {})", window.client, spoken(window.seconds), requests(window.requests))
    });
    told.collect::<Vec<_>>().join(", ")
}

fn requests(count: u32) -> String {
    if count == 1 { "1 request a call".to_owned() } else { format!("{count} requests a call") }
}

/// `43 min`, `14.5 min`, `50 s`.
fn spoken(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", (seconds as f64 / 6.0).round() / 10.0),
        _ => format!("{} h", (seconds as f64 / 360.0).round() / 10.0),
    }
}

/// Whether AWS's session tokens come as far as here.
pub(super) fn tokens(tokens: &ImdsTokenStatus) -> DoctorFinding {
    let said = |status: Option<u16>| status.map_or("no answer".to_owned(), |status| format!("{status}"));
    let text = format!(
        "a session token (IMDSv2) was asked for: {}; without one (IMDSv1): {}",
        said(tokens.put),
        said(tokens.without)
    );
    let found = DoctorFinding::ok(TOKENS, text);
    let hops = "let the answer come so far: aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2; or keep pods from the server, and give them an \
                identity of their own";
    match (tokens.put, tokens.without) {
        (Some(200), _) => found,
        (None, _) if tokens.is_slow => found.with_verdict(
            DoctorVerdict::CannotTell,
            "the server's answers are so late that the one with the token may be late, too, and not lost",
            "look at that server first (identity.latency)",
        ),
        (None, Some(200)) => found.with_verdict(
            DoctorVerdict::Fault,
            "the answer with the token is lost, as with a hop limit of 1: at each fetch SDKs wait a second or more for it before they go on without, and those for Rust \
             never do",
            hops,
        ),
        (None, _) => found.with_verdict(
            DoctorVerdict::Fault,
            "the answer with the token is lost, as with a hop limit of 1, and without a token nothing is answered: no SDK here gets credentials",
            hops,
        ),
        (Some(400), _) => found.with_verdict(
            DoctorVerdict::Fault,
            "400 is final to every SDK: none goes on without a token",
            "look at that server: a request for a token with X-aws-ec2-metadata-token-ttl-seconds must be answered 200, or 404 if it knows none",
        ),
        (Some(_), Some(200)) => found.with_verdict(
            DoctorVerdict::Warning,
            "SDKs that go on without a token get credentials, those for Rust do not",
            "let the server answer requests for tokens (IMDSv2)",
        ),
        (Some(_), _) => found.with_verdict(
            DoctorVerdict::Fault,
            "neither with nor without a token are credentials to be had",
            "look at that server's log",
        ),
    }
}

/// Whether this pod could act as its node.
pub(super) fn node(server: &RespondingServer, is_pod: bool) -> DoctorFinding {
    let whose = server.wanted.description;
    let name = match &server.principal {
        ServerPrincipal::Named(what, name) => [what, name.as_str()].concat(),
        ServerPrincipal::NoIdentity => "nobody".to_owned(),
        _ => "it does not say whom".to_owned(),
    };
    if !is_pod {
        return DoctorFinding::ok(
            NODE,
            format!("this is no pod, so what {whose} lends is for this machine itself"),
        );
    }
    let is_compute = name.ends_with("-compute@developer.gserviceaccount.com");
    let own = match server.is_machines_own {
        Some(true) => "answers here what only the machine's own server does",
        Some(false) => "does not answer here what only the machine's own server does",
        None => "gave no answer to what only the machine's own server knows",
    };
    let found = DoctorFinding::ok(NODE, format!("{whose} {own}; it lends credentials of: {name}"));
    match server.is_machines_own {
        Some(false) if !is_compute => return found,
        None if !is_compute => {
            let reason =
                "whether it is the node's own server was asked, and no answer came in the time for it";
            return found.with_verdict(
                DoctorVerdict::CannotTell,
                reason,
                "look at that server first (identity.latency)",
            );
        }
        _ => {}
    }
    found.with_verdict(
        DoctorVerdict::Warning,
        "the node's own server is reachable from this pod: whoever runs code here can read what the node is, and act as it where it lends credentials of the node's",
        "keep pods from it and give them identities of their own (Google: Workload Identity; AWS: hop limit 1 with EKS Pod Identity or IRSA; Azure: Workload Identity; or a metadata \
         server for pods on the node), and a NetworkPolicy without 169.254.169.254",
    )
}
