//! What was seen of metadata servers comes to this.

use std::time::Duration;

use seawall_fetch::Failed;

use super::lent::{Got, Life, Misread, Outcome, Principal, Server, Tokens, told};
use super::windows::Window;
use super::{LATENCY, LIFE, NODE, PRINCIPAL, SERVERS, TOKENS};
use crate::finding::{Finding, Verdict, many};
use crate::web::Place;

/// Which of them answer.
pub(super) fn servers(outcomes: &[Outcome], requests: u32) -> Finding {
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
    let found = Finding::ok(SERVERS, text).with("answering", answering as f64, "servers").with(
        "requests",
        f64::from(requests),
        "requests",
    );
    match forbidden(outcomes).or_else(|| gravest(outcomes)) {
        Some((verdict, reason, fix)) => found.judged(verdict, reason, fix),
        None => found,
    }
}

/// Of several the gravest, and of those the first.
fn gravest(outcomes: &[Outcome]) -> Option<Complaint> {
    let complaints = [refused, tokenless, failing, named, unaskable, mute, broken];
    let told = complaints.iter().rev().filter_map(|complaint| complaint(outcomes));
    told.max_by_key(|(verdict, ..)| *verdict)
}

/// What is wrong with the servers, why, and what to do.
type Complaint = (Verdict, String, String);

fn forbidden(outcomes: &[Outcome]) -> Option<Complaint> {
    let reason = "this machine forbids to ask (a firewall rule of its own, or a filter of system calls)";
    let fix =
        "ask from the program's own container: curl -sv -H 'Metadata-Flavor: Google' http://169.254.169.254/";
    let is_forbidden = outcomes.iter().any(Outcome::is_forbidden);
    is_forbidden.then(|| (Verdict::CannotTell, reason.to_owned(), fix.to_owned()))
}

fn refused(outcomes: &[Outcome]) -> Option<Complaint> {
    let place = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Refused(wanted) => Some(&wanted.place),
        _ => None,
    })?;
    let (verdict, refuse) = match place.address() {
        Some(_) => (Verdict::Fault, "refuse every other address before anything is sent"),
        None => (
            Verdict::Warning,
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

fn tokenless(outcomes: &[Outcome]) -> Option<Complaint> {
    let why = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Tokenless(_, why) => Some(why),
        _ => None,
    })?;
    let reason = format!("{why}: SDKs fail before they ask for credentials");
    let fix = "look at what is named there, and at the volume that a file is on, as the user of the program that asks; whoever writes it writes no line end";
    Some((Verdict::Fault, reason, fix.to_owned()))
}

/// A server that fails whoever asks, and of which nobody else's way of asking gets more.
fn failing(outcomes: &[Outcome]) -> Option<Complaint> {
    let serves = |place: &Place| {
        let mut serving = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Serving(_)));
        serving.any(|outcome| outcome.wanted().is_some_and(|wanted| wanted.place == *place))
    };
    let mut told: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Failing(wanted, status) if !serves(&wanted.place) => {
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

fn named(outcomes: &[Outcome]) -> Option<Complaint> {
    let named = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Absent(wanted, _) | Outcome::Another(wanted) | Outcome::Failing(wanted, _) => {
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
    (!told.is_empty()).then(|| (Verdict::Fault, reason(told.join(", ")), fix.to_owned()))
}

fn unaskable(outcomes: &[Outcome]) -> Option<Complaint> {
    let told = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Unaskable(name, why) => Some(misread(name, *why)),
        _ => None,
    });
    told.max_by_key(|(verdict, ..)| *verdict)
}

fn misread(name: &str, why: Misread) -> Complaint {
    // Node's takes a URL as it is; golang `cloud.google.com/go/compute/metadata`, google-auth-library-python `compute_engine/_metadata.py`
    // and google-auth-library-java `ComputeEngineCredentials` do not look.
    let (verdict, why, fix) = match why {
        Misread::UrlForHost => (
            Verdict::Fault,
            "is a URL where HOST or HOST:PORT is expected: Google's libraries for Go, Python and Java put http:// before it, and ask http://http://… in vain",
            "leave out the scheme and the path",
        ),
        Misread::NoHost => {
            (Verdict::CannotTell, "is no HOST or HOST:PORT, so nobody is asked there", "look at its value")
        }
        Misread::Https => (
            Verdict::CannotTell,
            "is an https:// URL, and nothing but http:// is asked here",
            "ask that server by hand",
        ),
        Misread::Unspoken => (
            Verdict::CannotTell,
            "names a server that Azure's SDKs ask in a way that is not spoken here (Service Fabric's, Azure Arc's, Cloud Shell's)",
            "ask that server by hand",
        ),
        Misread::NoUrl => {
            (Verdict::CannotTell, "is no http:// URL, so nobody is asked there", "look at its value")
        }
    };
    (verdict, format!("{name} {why}"), format!("{name}: {fix}"))
}

fn mute(outcomes: &[Outcome]) -> Option<Complaint> {
    let is_mute = |outcome: &Outcome| matches!(outcome, Outcome::Absent(_, Failed::Late(_)));
    let serves = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Serving(_)));
    let reason = "somebody takes the connection and gives no whole answer within a second: SDKs wait there for that and more, some try again, and then have no credentials";
    let fix = "look at that server's log and at its CPU (cpu.throttling there), or at the proxy that takes the connection in its place";
    let is_fault = !serves && outcomes.iter().any(is_mute);
    is_fault.then(|| (Verdict::Fault, reason.to_owned(), fix.to_owned()))
}

/// Somebody takes the connection and never gives an answer that could be read. That is not nobody: SDKs that ask there fail, or ask again. A
/// warning and no fault, because it is known of no server there that it should serve (one that a variable names is a fault in [`named`]), and
/// unlike one that is mute it lets SDKs go on at once: a proxy that takes all of a pod's connections does so where there is no server.
fn broken(outcomes: &[Outcome]) -> Option<Complaint> {
    let serves = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Serving(_)));
    let (wanted, why) = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Absent(wanted, why @ (Failed::Broken(_) | Failed::TooLarge(_) | Failed::Http(_))) => {
            Some((wanted, why))
        }
        _ => None,
    })?;
    let reason = format!(
        "somebody takes connections at {} and gives no answer that can be read ({}): SDKs that ask there have no credentials; if no server is meant to be there, they go on to the next of their chain",
        wanted.place.authority,
        told(why)
    );
    let fix = format!(
        "look who listens there, and whether a proxy (a sidecar) takes the connection in its place: curl -sv http://{}/",
        wanted.place.authority
    );
    (!serves).then_some((Verdict::Warning, reason, fix))
}

fn served(outcome: &Outcome) -> Option<String> {
    let Outcome::Serving(server) = outcome else { return None };
    Some(format!("{} answers at {}", server.wanted.whose, server.wanted.place.authority))
}

/// Those that do not serve, together where they are at one place for one reason.
fn silent<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<String> {
    let mut places: Vec<(String, Vec<&str>)> = Vec::new();
    for outcome in outcomes {
        let (wanted, why) = match outcome {
            Outcome::Refused(wanted) => (wanted, "not asked, as SDKs refuse that host".to_owned()),
            Outcome::Tokenless(wanted, _) => (wanted, "not asked, as there is no token for it".to_owned()),
            Outcome::Absent(wanted, Failed::Late(_)) => (wanted, "a connection, and no answer".to_owned()),
            Outcome::Absent(wanted, Failed::Unreached(_)) => (wanted, "no answer".to_owned()),
            Outcome::Absent(wanted, why) => (wanted, told(why)),
            Outcome::Another(wanted) => (wanted, "somebody answers, but not as it does".to_owned()),
            Outcome::Failing(wanted, status) => (wanted, format!("somebody answers {status}")),
            _ => continue,
        };
        let told = format!("at {}: {why}", wanted.place.authority);
        match places.iter_mut().find(|(known, _)| *known == told) {
            Some((_, all)) => all.push(wanted.whose),
            None => places.push((told, vec![wanted.whose])),
        }
    }
    places.into_iter().map(|(told, whose)| format!("{} {told}", whose.join(", "))).collect()
}

/// Half of what the least patient SDK waits (aws-sdk-go-v2: 500 ms), and nearly what Azure's probe does: under load an answer takes twice as long.
const SLOW: Duration = Duration::from_millis(250);

/// Of fewer answers nothing is said to be fine. Azure's server, which bears the fewest requests, is asked for so many.
const ENOUGH: usize = 3;

/// How soon it answers, and how often.
pub(super) fn latency(server: &Server) -> Finding {
    let asked = server.tries.len();
    let answered = credentials(server);
    let times = times(server);
    let millis = |took: Option<&Duration>| took.map_or(0.0, |took| took.as_secs_f64() * 1e3);
    let (median, worst) = (millis(times.get(times.len() / 2)), millis(times.last()));
    let text = answers(server, answered, times.len(), [median, worst]);
    let found = Finding::ok(LATENCY, text)
        .with("asked", asked as f64, "requests")
        .with("answered", answered as f64, "requests")
        .with("median", median, "ms")
        .with("worst", worst, "ms");
    if answered < asked {
        return found.judged(
            Verdict::Fault,
            format!("the others: {}; most SDKs ask once, wait a second at most, and fail the call that they were asked for", others(server).join(", ")),
            "look at that server's log and its CPU (cpu.throttling there), and how many others ask it: a refresh that is too frequent is told by identity.life",
        );
    }
    if worst >= millis(Some(&SLOW)) {
        let is_over = worst >= millis(Some(&server.patience.least));
        return found.judged(
            if is_over { Verdict::Fault } else { Verdict::Warning },
            format!("it is slow: {}; under load it will be later", server.patience.who),
            "look at that server's CPU and at what it asks itself for each answer",
        );
    }
    if asked >= ENOUGH || matches!(server.principal, Principal::Nobody) {
        return found;
    }
    let reason = match server.principal {
        Principal::Named(..) => {
            "the time for it was over before it had been asked for credentials often enough"
        }
        _ => "it did not say whose credentials it lends, so it was not asked for them",
    };
    found.judged(Verdict::CannotTell, reason, "ask that server by hand some times: curl -w '%{time_total}'")
}

/// How often it gave credentials.
fn credentials(server: &Server) -> usize {
    server.tries.iter().filter(|once| matches!(once.got, Got::Credentials)).count()
}

/// How long its answers took, in order: those with credentials, or where they are too few all of them.
fn times(server: &Server) -> Vec<Duration> {
    let tries = server.tries.iter().filter(|once| !matches!(once.got, Got::Nothing(_))).map(|once| once.took);
    let mut times: Vec<_> = if server.tries.len() < ENOUGH { server.times.clone() } else { tries.collect() };
    times.sort_unstable();
    times
}

/// What it answered, with the median and the largest of these times in milliseconds.
fn answers(server: &Server, answered: usize, count: usize, [median, worst]: [f64; 2]) -> String {
    let (whose, asked) = (server.wanted.whose, server.tries.len());
    let within = format!(
        "within {median:.1} ms at the median and {worst:.1} ms at most, each on a connection of its own"
    );
    let others = many(count as f64, "other answer");
    let all = if count == 1 { "its only answer".to_owned() } else { format!("all its {count} answers") };
    match (asked, &server.principal) {
        (0, Principal::Nobody) => {
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
fn others(server: &Server) -> Vec<String> {
    let mut kinds: Vec<(String, u32)> = Vec::new();
    for once in server.tries.iter().filter(|once| !matches!(once.got, Got::Credentials)) {
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
pub(super) fn principal(server: &Server) -> Finding {
    let whose = server.wanted.whose;
    match &server.principal {
        Principal::Named(what, name) if !server.tries.is_empty() && credentials(server) == 0 => {
            Finding::ok(PRINCIPAL, format!("{whose} gave no credentials; whose they would be: {what}{name}"))
        }
        Principal::Named(what, name) => Finding::ok(PRINCIPAL, format!("{whose} lends credentials of: {what}{name}")),
        Principal::Nobody => Finding::ok(PRINCIPAL, format!("{whose} has no credentials for who asks here")).judged(
            Verdict::Warning,
            "SDKs find a server, and no identity at it: each tries it first, and fails or goes on to the next of its chain",
            "give the pod an identity (Google: iam.gke.io/gcp-service-account; AWS: an association or a role; Azure: an identity of the machine), or keep it from the server",
        ),
        Principal::Failing(status) => Finding::ok(PRINCIPAL, format!("{whose} does not say as whom programs here are")).judged(
            Verdict::Fault,
            format!("it answered {status} when it was asked for that: SDKs have no credentials, and most try no second time"),
            "look at that server's log, and at what it asks itself for each answer",
        ),
        Principal::Refused(status, words) => unsaid(format!("{whose}: it answered {status}: {words}")),
        Principal::Unsaid(why) => unsaid(format!("{whose}: {why}")),
    }
}

fn unsaid(why: String) -> Finding {
    Finding::ok(PRINCIPAL, "not seen".to_owned()).judged(
        Verdict::CannotTell,
        why,
        "look at that server's log",
    )
}

/// How long its credentials live, against the windows of those who ask it.
pub(super) fn life(server: &Server) -> Finding {
    let whose = server.wanted.whose;
    if matches!(server.principal, Principal::Nobody) {
        return Finding::ok(LIFE, format!("{whose} lends nothing to who asks here, so nothing ends"));
    }
    let life = match &server.life {
        Ok(life) => *life,
        Err(why) => {
            return Finding::unknown(
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
    let found =
        Finding::ok(LIFE, text).with("left", life.left as f64, "s").with("window", largest as f64, "s");
    let found = life.whole.map_or(found.clone(), |whole| found.with("whole", whole as f64, "s"));
    if life.left <= 0 {
        return found.judged(
            Verdict::Fault,
            "they have ended: every call that is signed with them is refused",
            "look at that server's log, and at this machine's clock",
        );
    }
    match thrashing(server.windows, life) {
        Some((verdict, reason)) => found.judged(
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
fn thrashing(windows: &[Window], life: Life) -> Option<(Verdict, String)> {
    let whole = life.whole.unwrap_or(i64::MAX);
    let who = |is: &dyn Fn(&Window) -> bool| told_windows(windows.iter().filter(|window| is(window)));
    let ever = who(&|window| window.seconds >= whole);
    let now = who(&|window| window.seconds >= life.left);
    let soon = who(&|window| whole.saturating_sub(window.seconds) < whole / CALM);
    let anew = "each call of these SDKs fetches them anew and waits for that";
    if !ever.is_empty() {
        let text = format!("they are never above these windows, so {anew}: {ever}");
        return Some((Verdict::Fault, text));
    }
    if !now.is_empty() {
        return Some((Verdict::Warning, format!("until the server renews them, {anew}: {now}")));
    }
    let text = format!(
        "for more than four fifths of their life, unless the server renews them before, {anew}: {soon}"
    );
    (!soon.is_empty()).then_some((Verdict::Warning, text))
}

fn told_windows<'a>(windows: impl Iterator<Item = &'a Window>) -> String {
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
pub(super) fn tokens(tokens: &Tokens) -> Finding {
    let said = |status: Option<u16>| status.map_or("no answer".to_owned(), |status| format!("{status}"));
    let text = format!(
        "a session token (IMDSv2) was asked for: {}; without one (IMDSv1): {}",
        said(tokens.put),
        said(tokens.without)
    );
    let found = Finding::ok(TOKENS, text);
    let hops = "let the answer come so far: aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2; or keep pods from the server, and give them an \
                identity of their own";
    match (tokens.put, tokens.without) {
        (Some(200), _) => found,
        (None, _) if tokens.is_slow => found.judged(
            Verdict::CannotTell,
            "the server's answers are so late that the one with the token may be late, too, and not lost",
            "look at that server first (identity.latency)",
        ),
        (None, Some(200)) => found.judged(
            Verdict::Fault,
            "the answer with the token is lost, as with a hop limit of 1: at each fetch SDKs wait a second or more for it before they go on without, and those for Rust \
             never do",
            hops,
        ),
        (None, _) => found.judged(
            Verdict::Fault,
            "the answer with the token is lost, as with a hop limit of 1, and without a token nothing is answered: no SDK here gets credentials",
            hops,
        ),
        (Some(400), _) => found.judged(
            Verdict::Fault,
            "400 is final to every SDK: none goes on without a token",
            "look at that server: a request for a token with X-aws-ec2-metadata-token-ttl-seconds must be answered 200, or 404 if it knows none",
        ),
        (Some(_), Some(200)) => found.judged(
            Verdict::Warning,
            "SDKs that go on without a token get credentials, those for Rust do not",
            "let the server answer requests for tokens (IMDSv2)",
        ),
        (Some(_), _) => found.judged(
            Verdict::Fault,
            "neither with nor without a token are credentials to be had",
            "look at that server's log",
        ),
    }
}

/// Whether this pod could act as its node.
pub(super) fn node(server: &Server, is_pod: bool) -> Finding {
    let whose = server.wanted.whose;
    let name = match &server.principal {
        Principal::Named(what, name) => [what, name.as_str()].concat(),
        Principal::Nobody => "nobody".to_owned(),
        _ => "it does not say whom".to_owned(),
    };
    if !is_pod {
        return Finding::ok(
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
    let found = Finding::ok(NODE, format!("{whose} {own}; it lends credentials of: {name}"));
    match server.is_machines_own {
        Some(false) if !is_compute => return found,
        None if !is_compute => {
            let reason =
                "whether it is the node's own server was asked, and no answer came in the time for it";
            return found.judged(Verdict::CannotTell, reason, "look at that server first (identity.latency)");
        }
        _ => {}
    }
    found.judged(
        Verdict::Warning,
        "the node's own server is reachable from this pod: whoever runs code here can read what the node is, and act as it where it lends credentials of the node's",
        "keep pods from it and give them identities of their own (Google: Workload Identity; AWS: hop limit 1 with EKS Pod Identity or IRSA; Azure: Workload Identity; or a metadata \
         server for pods on the node), and a NetworkPolicy without 169.254.169.254",
    )
}
