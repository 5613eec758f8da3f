//! Targets that travel ways of their own in one run.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use seawall_load::engine::{self, RunOutcome, RunPlan};
use seawall_load::proxy::ProxyRules;
use seawall_load::request::RequestFraming;
use seawall_load::request_failure_reason::RequestFault;
use seawall_load::request_source::{RequestReader, RequestSource};
use seawall_load::schedule::{ArrivalModel, ArrivalSpacing, Schedule};
use seawall_load::sender::SaturationPolicy;
use seawall_load::target::{TargetDefaults, TargetFormat, TargetReader};
use seawall_load::tls::TlsOptions;
use seawall_testkit::closure_server::Server;
use seawall_testkit::tls::CertificateAuthority;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// One client that asks for these in turn, each a URL and what is said of its variant.
fn plan(targets: &[(&str, &str)], requests: u64) -> RunPlan {
    styled(targets, requests, &RequestFraming::default())
}

fn styled(targets: &[(&str, &str)], requests: u64, style: &RequestFraming) -> RunPlan {
    let line = |(url, variant): &(&str, &str)| {
        let variant = if variant.is_empty() { String::new() } else { format!(",\"variant\":{variant}") };
        format!("{{\"method\":\"GET\",\"url\":\"{url}\"{variant}}}\n")
    };
    let text: String = targets.iter().map(line).collect();
    let input = Box::new(std::io::Cursor::new(text.into_bytes()));
    let reader = TargetReader::new("targets", input, TargetFormat::Json, TargetDefaults::default());
    let list = RequestReader::new(reader, style.clone(), None).read_all().unwrap();
    let mut plan = RunPlan::new(RequestSource::List(list), ArrivalModel::Closed);
    plan.load.stop_condition.max_requests = requests;
    plan.load.in_flight_limit.limit = 1;
    plan
}

fn run(plan: RunPlan) -> RunOutcome {
    engine::start_single_trial(plan, None).unwrap().finish()
}

#[test]
fn variants_of_one_url_share_no_connection() {
    let server = Server::start_answering(OK).unwrap();
    let url = server.url_of_path("/");
    let own = [(&*url, ""), (&url, r#"{"name":"again"}"#), (&url, r#"{"name":"once","keepalive":false}"#)];
    let outcome = run(plan(&own, 9));
    assert_eq!((outcome.total_stats.good_count(), server.connection_count()), (9, 1 + 1 + 3));
    let told: Vec<_> =
        outcome.total_stats.variants.iter().map(|(name, figures)| (name, figures.good)).collect();
    assert_eq!(told, [("again", 3), ("once", 3)], "what has no variant is in the run's figures alone");
}

/// They were in the run's figures alone, and of a variant in overload everything seemed good.
#[test]
fn what_was_never_sent_is_among_the_requests_of_its_variant() {
    let server = Server::start(|mut peer, _| peer.wait_for_close()).unwrap();
    let mut plan = plan(&[(&server.url_of_path("/"), r#"{"name":"slow"}"#)], 10);
    let schedule = Schedule::constant("1000".parse().unwrap(), ArrivalSpacing::Constant);
    plan.load.arrivals = ArrivalModel::Open(schedule);
    plan.load.in_flight_limit.on_saturation = SaturationPolicy::Drop;
    plan.session.transport.timeout = Some(Duration::from_millis(500));
    let total = run(plan).total_stats;
    assert!(total.fault_count(RequestFault::Dropped) > 0);
    let told: Vec<_> = total.variants.iter().map(|(name, figures)| (name, figures.completed)).collect();
    assert_eq!((told, total.completed), (vec![("slow", 10)], 10));
}

/// What the run had switched off stayed off.
#[test]
fn a_variant_keeps_connections_where_the_run_does_not() {
    let server = Server::start_answering(OK).unwrap();
    let url = server.url_of_path("/");
    let own =
        [(&*url, ""), (&url, r#"{"name":"kept","keepalive":true}"#), (&url, r#"{"name":"as the run"}"#)];
    let mut plan = styled(&own, 9, &RequestFraming { close: true, ..RequestFraming::default() });
    plan.session.transport.keep_alive = false;
    assert_eq!((run(plan).total_stats.good_count(), server.connection_count()), (9, 3 + 1 + 3));
}

#[test]
fn an_address_leads_elsewhere_than_the_url_and_a_redirect_back_to_what_is_named() {
    let named = Server::start_answering(OK).unwrap();
    let location = named.url_of_path("/there");
    let addressed = Server::start(move |mut peer, _| {
        loop {
            let head = peer.read_request_head()?;
            let answer = match head.contains("Host: shop.example\r\n") {
                true => format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"),
                false => "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            peer.send(answer.as_bytes())?;
        }
    });
    let addressed = addressed.unwrap();
    let variant = format!(r#"{{"name":"direct","address":"{}"}}"#, addressed.address());
    let outcome = run(plan(&[("http://shop.example/", &variant)], 3));
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.redirects), (3, 3));
    assert_eq!((addressed.connection_count(), named.connection_count()), (1, 1));
}

#[test]
fn a_variant_goes_around_the_proxy_or_through_one_of_its_own() {
    let (server, proxy) = (Server::start_answering(OK).unwrap(), Server::start_answering(OK).unwrap());
    let through = format!(r#"{{"name":"through","proxy":"http://{}"}}"#, proxy.address());
    let url = server.url_of_path("/");
    let mut plan = plan(&[(&url, ""), (&url, r#"{"name":"around","proxy":"none"}"#), (&url, &through)], 3);
    // Nobody is there.
    plan.session.transport.dial.proxies = Arc::new(ProxyRules::for_all("http://127.0.0.1:1").unwrap());
    let outcome = run(plan);
    assert_eq!(
        (outcome.total_stats.good_count(), server.connection_count(), proxy.connection_count()),
        (2, 1, 1)
    );
}

#[test]
fn what_a_certificate_must_be_is_the_variants_to_say() {
    let authority = CertificateAuthority::new().unwrap();
    let server = Server::start_tls(authority.server_config(&[], false).unwrap(), |mut peer, _| {
        loop {
            peer.read_request_head()?;
            peer.send(OK.as_bytes())?;
        }
    });
    let server = server.unwrap();
    let url = format!("https://localhost:{}/", server.address().port());
    let mut plan = plan(&[(&url, ""), (&url, r#"{"name":"blind","insecure":true}"#)], 4);
    plan.session.transport.tls = Some(TlsOptions::default().config().unwrap());
    let outcome = run(plan);
    let tls = (0..RequestFault::KIND_COUNT).find(|kind| RequestFault::name_of_kind(*kind) == "tls").unwrap();
    assert_eq!((outcome.total_stats.good_count(), outcome.total_stats.failures[tls]), (2, 2));
}
