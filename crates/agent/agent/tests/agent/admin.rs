//! The admin port, and what must stand nowhere: a secret.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use seawall_emulator::faults::Faults;

use crate::support::client::{Answer, Client, format_get, format_request};
use crate::support::world::{
    CART, MALLORY, PAY, PODS, PROJECT_ID, Plan, STRANGER, TOKEN, World, identity, token_for,
};
use crate::support::{ip, wait_until_true};

/// Samples by name and labels; a panic on a line that is not the exposition format's.
fn samples(world: &World) -> BTreeMap<String, f64> {
    let answer = world.admin("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").starts_with("application/openmetrics-text"), "{answer:?}");
    let text = answer.body.strip_suffix("# EOF\n").expect("the format's last line");
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let name = sample.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
        assert!(name.starts_with("seawall_"), "{line}");
        assert!(text.contains(&format!("# HELP {}", family(name))), "{name} without a word of help");
        let twice = samples.insert(sample.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")));
        assert!(twice.is_none(), "{line} stands twice");
    }
    samples
}

fn family(sample: &str) -> &str {
    ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| sample.strip_suffix(end)).unwrap_or(sample)
}

#[test]
fn metrics_are_well_formed_and_count_what_happens() {
    let world = World::start(&Plan::federate());
    let before = samples(&world);
    for _ in 0..3 {
        assert_eq!(world.ask(&CART, TOKEN).status, 200);
    }
    assert_eq!(world.ask(&CART, &identity("https://a.example")).status, 200);
    assert_eq!(world.ask(&CART, PROJECT_ID).status, 200);
    assert_eq!(world.ask(&CART, "/computeMetadata/v1/nothing").status, 404);
    let mut stranger = Client::connect(STRANGER, world.agent.first_listener_address());
    assert_eq!(stranger.ask(&format_get(TOKEN)).status, 403);
    let after = samples(&world);
    assert_eq!(
        before.keys().filter(|key| !after.contains_key(*key)).count(),
        0,
        "samples do not come and go"
    );
    for (sample, more) in [
        ("seawall_requests_total{cloud=\"google\",route=\"token\",status=\"2xx\"}", 3.0),
        ("seawall_requests_total{cloud=\"google\",route=\"identity\",status=\"2xx\"}", 1.0),
        ("seawall_requests_total{cloud=\"google\",route=\"metadata\",status=\"2xx\"}", 1.0),
        ("seawall_requests_total{cloud=\"none\",route=\"refused\",status=\"4xx\"}", 2.0),
        ("seawall_request_duration_seconds_count", 7.0),
        ("seawall_request_duration_seconds_bucket{le=\"+Inf\"}", 7.0),
        ("seawall_credential_cache_hits_total", 2.0),
        ("seawall_connections_accepted_total", 7.0),
        ("seawall_credential_fetches_total{cloud=\"google\",outcome=\"initial\"}", 2.0),
        ("seawall_cached_credentials{cloud=\"google\"}", 2.0),
        ("seawall_principals{cloud=\"google\"}", 2.0),
    ] {
        let moved = after.get(sample).copied().unwrap_or_else(|| panic!("no {sample} in {after:#?}"));
        assert_eq!(moved - before.get(sample).copied().unwrap_or(0.0), more, "{sample}");
    }
    assert!(after["seawall_credential_min_remaining_seconds{cloud=\"google\"}"] > 3500.0);
}

#[test]
fn a_pod_cannot_make_the_metrics_grow() {
    let world = World::start(&Plan::federate());
    let series = samples(&world).len();
    for n in 0..30 {
        world.ask(&MALLORY, &token_for(&format!("invented.{n}")));
        world.ask(&MALLORY, &format!("/computeMetadata/v1/invented/{n}"));
    }
    // Two more: the least life of the credentials that are held now, and of those that were handed out.
    assert!(samples(&world).len() <= series + 2);
}

#[test]
fn health_and_readiness_and_nothing_else() {
    let world = World::start(&Plan::federate());
    assert_eq!((world.admin("/healthz").status, world.admin("/healthz").body.as_str()), (200, "ok\n"));
    let ready = world.admin("/readyz");
    let expected = format!("ready\nlistening at {}\n", world.agent.first_listener_address());
    assert_eq!((ready.status, ready.body), (200, expected));
    assert_eq!(world.metric("seawall_requests_total{cloud=\"none\",route=\"probe\",status=\"2xx\"}"), 1.0);
    for path in ["/", "/debug/pprof", "/metrics/", "/debug/pods/x", "/computeMetadata/v1/"] {
        assert_eq!(world.admin(path).status, 404, "{path}");
    }
    let post = Client::connect(ip(1), world.agent.admin_address)
        .ask(&format_request("POST", "/metrics", "HTTP/1.1", ""));
    assert_eq!(post.status, 405);
    // The cloud's absence makes an agent with leases no worse than ready; an agent that nobody can ask is another matter.
    world.cloud.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    assert_eq!(world.ask(&CART, TOKEN).status, 503);
    assert_eq!(world.admin("/readyz").status, 200);
}

#[test]
fn an_agent_with_every_place_taken_is_ready_because_it_still_answers() {
    let world = World::start(&Plan::federate().threads("1").limits("connections: 1, connectionsPerPod: 1"));
    let mut busy = world.client(&CART);
    busy.write_bytes(format_get("/computeMetadata/v1/instance/zone?wait_for_change=true&timeout_sec=300"));
    wait_until_true("the only place to be taken", || world.metric("seawall_long_polls_open") == 1.0);
    let ready = world.admin("/readyz");
    assert_eq!(ready.status, 200, "{ready:?}");
    assert_eq!(world.ask(&PAY, TOKEN).status, 200);
}

#[test]
fn debug_pods_says_who_holds_what() {
    let world = World::start(&Plan::federate());
    world.ask(&CART, TOKEN).token();
    assert_eq!(world.ask(&CART, &identity("https://a.example")).status, 200);
    let mut open = world.client(&CART);
    open.ask(&format_get(PROJECT_ID));
    let page = world.admin("/debug/pods").json();
    assert_eq!((&page["kind"], &page["version"]), (&"pods".into(), &1.into()));
    let cart = world.debug(&CART);
    assert_eq!(cart["address"], "127.0.0.11");
    assert_eq!(cart["service_account"], "cart");
    assert_eq!(cart["google"]["google_service_account"].as_str(), CART.email);
    wait_until_true("the other connections to be over", || world.debug(&CART)["open_connections"] == 1);
    let held = cart["google"]["principals"].as_array().unwrap();
    assert_eq!(held.len(), 2, "{cart}");
    for principal in held {
        assert!((3500..=3600).contains(&principal["expires_in_seconds"].as_u64().unwrap()), "{principal}");
        assert!(principal["renewal_in_seconds"].as_u64().unwrap() < 3000, "{principal}");
        assert_eq!(principal["is_fetching"], false);
    }
    assert_eq!(world.debug(&PAY)["google"]["principals"].as_array().unwrap().len(), 0);
}

/// Any request to the admin port.
fn asked(world: &World, path: &str, headers: &str) -> Answer {
    let mut client = Client::connect(ip(1), world.agent.admin_address);
    client.ask(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
}

/// At its cap it closed whoever came next: the kubelet's probes, and then the kubelet ends the agent.
#[test]
fn probes_are_answered_whoever_holds_connections() {
    let world = World::start(&Plan::federate());
    let begun: [&[u8]; 3] = [b"", b"GET /metrics HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"];
    for bytes in begun {
        let _held: Vec<_> = (0..100)
            .map(|_| {
                let mut client = Client::connect(ip(1), world.agent.admin_address);
                client.write_bytes(bytes);
                client
            })
            .collect();
        for _ in 0..8 {
            assert_eq!(world.admin("/healthz").status, 200);
        }
        assert_eq!(world.admin("/readyz").status, 200);
    }
}

#[test]
fn probes_are_answered_while_forty_clients_go_on_asking() {
    let world = World::start(&Plan::federate());
    let (is_over, asked, admin) = (AtomicBool::new(false), AtomicUsize::new(0), world.agent.admin_address);
    // However a connection or a request ends: these are of the crowd.
    let ask_on = || {
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut client) = Client::try_connect(ip(1), admin) else { continue };
            for page in ["/debug/pods", "/metrics", "/readyz"] {
                let sent = client.stream.write_all(format_get(page).as_bytes());
                if sent.is_ok() && client.stream.read(&mut [0; 256]).is_ok_and(|n| n > 0) {
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|threads| {
        let _over = AtTheEnd(&is_over);
        for _ in 0..40 {
            threads.spawn(ask_on);
        }
        wait_until_true("the crowd to ask", || asked.load(Ordering::Relaxed) > 100);
        // The crowd's address is the prober's here, so the last resort is at work: the oldest goes first.
        for _ in 0..8 {
            assert_eq!(world.admin("/healthz").status, 200);
        }
    });
}

/// Says so when it is dropped, in a panic too.
struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A page whose name is made to resolve to the admin port read who holds what.
#[test]
fn a_name_in_host_reads_nothing_and_probes_are_answered_under_any() {
    let world = World::start(&Plan::federate());
    for page in ["/debug/pods", "/metrics", "/", "/nothing"] {
        for host in ["evil.example", "evil.example:8989", "metadata.google.internal"] {
            let answer = asked(&world, page, &format!("Host: {host}\r\n"));
            assert_eq!(answer.status, 421, "{page} {host}: {answer:?}");
            assert!(answer.body.contains("the Host header must be an IP address or localhost"), "{answer:?}");
        }
        let fetched = asked(&world, page, "Host: 127.0.0.1\r\nOrigin: https://evil.example\r\n");
        assert_eq!(fetched.status, 403, "{page}: {fetched:?}");
    }
    for host in
        ["127.0.0.1", &world.agent.admin_address.to_string(), "10.4.0.7:8989", "[::1]:8989", "localhost:8989"]
    {
        assert_eq!(asked(&world, "/debug/pods", &format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    for probe in ["/healthz", "/readyz"] {
        for host in ["10.4.0.7:8989", "seawall.example", ""] {
            assert_eq!(asked(&world, probe, &format!("Host: {host}\r\n")).status, 200, "{probe} {host}");
        }
    }
}

#[test]
fn the_admin_port_survives_what_it_cannot_read() {
    let world = World::start(&Plan::federate());
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX: \x00\r\n\r\n",
        &[b'x'; 64 * 1024],
    ] {
        let mut client = Client::connect(ip(1), world.agent.admin_address);
        let _ = client.stream.write_all(bytes);
        drop(client);
        assert_eq!(world.admin("/healthz").status, 200);
    }
}

/// Everything that the agent ever said to somebody who may not have a token.
#[derive(Default)]
struct Heard {
    tokens: Vec<String>,
    texts: Vec<String>,
}

impl Heard {
    /// An answer to its rightful owner, who may have the token in it, or anything else, which must hold none.
    fn hear(&mut self, answer: Answer) {
        match answer.status {
            200 if answer.body.contains("access_token") => self.tokens.push(answer.token()),
            200 if answer.body.starts_with("eyJ") => self.tokens.push(answer.body),
            _ => self.texts.push(format!("{answer:?}")),
        }
    }
}

#[test]
fn no_token_stands_in_the_log_the_metrics_the_debug_page_or_an_error() {
    let mut world = World::start(&Plan::federate());
    let mut heard = Heard::default();
    for pod in PODS {
        heard.tokens.push(std::fs::read_to_string(world.files.path("tokens").join(pod.name)).unwrap());
    }
    let faulty = [
        Faults::default(),
        Faults { error_rate: 1.0, html_errors: true, ..Faults::default() },
        Faults { error_rate: 1.0, error_status: Some(429), ..Faults::default() },
        Faults { truncated_body_rate: 1.0, ..Faults::default() },
        Faults { close_rate: 1.0, ..Faults::default() },
        Faults::default(),
    ];
    for (n, faults) in faulty.iter().enumerate() {
        world.cloud.set_faults(faults);
        for pod in PODS {
            for path in [
                TOKEN.to_owned(),
                token_for(&format!("round.{n}")),
                identity(&format!("https://{n}.example")),
            ] {
                heard.hear(world.ask(&pod, &path));
            }
        }
        // A token where no token belongs: what a pod sends is not for the log either.
        let own = heard.tokens.last().unwrap().clone();
        for target in [format!("/{own}"), format!("{TOKEN}?scopes={own}"), format!("{TOKEN}?{own}=1")] {
            heard.hear(world.ask(&CART, &target));
        }
        heard.hear(world.client(&CART).ask(&format!("GET {own}\r\n\r\n")));
        for page in ["/metrics", "/debug/pods", "/readyz", "/nothing"] {
            heard.texts.push(world.admin(page).body);
        }
    }
    // Kubernetes tokens that no cloud takes, and one that is none.
    let foreign = heard.tokens[1].clone();
    world.files.write("tokens/cart-0", &foreign);
    heard.hear(world.ask(&CART, &token_for("foreign")));
    world.files.write("tokens/cart-0", &format!("{foreign}.{foreign}"));
    heard.hear(world.ask(&CART, &token_for("broken")));
    heard.texts.push(world.admin("/debug/pods").body);
    assert_eq!(world.agent.stop().code(), Some(0));
    heard.texts.push(world.agent.log());

    assert!(heard.tokens.len() > 20, "{} tokens", heard.tokens.len());
    let text = heard.texts.join("\n");
    assert!(text.contains("credential issued") && text.contains("upstream_unavailable"), "the log was read");
    for token in &heard.tokens {
        // The last part alone would be enough to give a signature away.
        for part in token.split('.').filter(|part| part.len() > 8) {
            assert!(!text.contains(part), "{part} in\n{text}");
        }
    }
    assert!(!text.contains("ya29.") && !text.contains("eyJ"), "something like a token in\n{text}");
}
