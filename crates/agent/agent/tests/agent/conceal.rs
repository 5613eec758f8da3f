//! Conceal mode before a virtual machine's metadata server that reads leniently: what is concealed stays so in every
//! spelling that reaches it, and what is not passes unchanged.

use std::time::Duration;

use seawall_emulator::faults::Faults;
use seawall_emulator::google::{GoogleEndpoint, SECRET_VALUE_MARKER};

use crate::support::client::{Answer, Client, format_get, format_get_with_headers, format_request};
use crate::support::cloud::Cloud;
use crate::support::process::Agent;
use crate::support::world::{CART, Files, PAY, PODS, PROJECT, PROJECT_ID, Plan, STRANGER, TOKEN, World};
use crate::support::{PROGRAM, ip, wait_until_true};

/// The roots of the three API versions.
const ROOTS: [&str; 3] = ["/computeMetadata/v1/", "/computeMetadata/v1beta1/", "/0.1/meta-data/"];

/// The machine's own answer, without anybody between.
fn direct(world: &World, target: &str) -> Answer {
    Client::connect(ip(1), world.cloud.address()).ask(&format_get(target))
}

/// The paths of every leaf whose value is marked as concealed, found by asking the machine itself.
fn secret_paths(world: &World) -> Vec<String> {
    let mut paths = Vec::new();
    for root in ROOTS {
        let tree = direct(world, &format!("{root}?recursive=true&alt=text")).body;
        let marked = tree.lines().filter(|line| line.contains(SECRET_VALUE_MARKER));
        paths.extend(marked.map(|line| format!("{root}{}", line.split_once(' ').unwrap().0)));
    }
    paths
}

/// Ways to write a path, some of which a lenient server takes for the same one.
fn spellings(path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap();
    let first = name.chars().next().unwrap();
    let (lower, rest) = (u32::from(first), &name[1..]);
    let encoded = format!("%{lower:02x}{rest}");
    vec![
        path.to_owned(),
        path.to_uppercase(),
        format!("{folder}/{}", name.to_uppercase()),
        format!("{folder}/{encoded}"),
        format!("{folder}/%25{lower:02x}{rest}"),
        format!("{folder}/{}", name.replace('-', "%2D")),
        format!("{folder}/{}", name.replace('-', "_")),
        format!("{folder}%2F{name}"),
        format!("{folder}%5c{name}"),
        format!("{folder}//{name}"),
        format!("/{path}"),
        format!("{folder}/./{name}"),
        format!("{folder}/x/../{name}"),
        format!("{folder}/x/%2e%2e/{name}"),
        format!("{folder}/cluster-name/../{name}"),
        format!("{path}/"),
        format!("{path}/."),
        format!("{path}%20"),
        format!("{path}%00"),
        format!("{path};x=1"),
        format!("{path}?alt=json"),
        format!("{path}?alt=text&x=1"),
        format!("{path}?recursive=true"),
        format!("{path}?wait_for_change=true&last_etag=NONE"),
        format!("{folder}/?recursive=true&alt=text"),
        format!("{folder}/?%72ecursive=%74rue"),
        format!("{folder}/?recursive"),
        format!("{folder}/?recursive=false&recursive=true"),
        format!("http://metadata.google.internal{path}"),
        format!("HTTP://169.254.169.254:80{path}"),
        format!("{folder}/{name}#x"),
        format!("{folder}\\{name}"),
        format!(
            "{}/instance/service-accounts/../attributes/{name}",
            &path[..path.find("/instance").unwrap_or(0)]
        ),
    ]
}

#[test]
fn what_is_concealed_stays_concealed_in_every_spelling_of_every_version() {
    let world = World::start(&Plan::conceal());
    let paths = secret_paths(&world);
    assert!(paths.len() >= 15, "five attributes and the keys of the project, in three versions: {paths:?}");
    let mut leaks = 0;
    let mut client = world.client(&CART);
    for target in paths.iter().flat_map(|path| spellings(path)) {
        // The machine itself gives many of them away; else this would prove nothing.
        if !target.contains(['\\', '#']) && !target.starts_with("HTTP") {
            leaks += usize::from(direct(&world, &target).body.contains(SECRET_VALUE_MARKER));
        }
        // Each on a connection on which an allowed request has passed, as a second and not a first one.
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
        let answer = client.ask(&format_get(&target));
        assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
        assert!(!answer.body.contains(SECRET_VALUE_MARKER), "{target}: {answer:?}");
        if answer.header("connection") == "close" {
            client = world.client(&CART);
        }
    }
    assert!(leaks > paths.len() * 8, "only {leaks} spellings reach a secret");
}

#[test]
fn nothing_recurses_but_the_service_accounts() {
    let world = World::start(&Plan::conceal());
    for root in ROOTS {
        for folder in
            ["", "instance/", "instance/attributes/", "project/", "project/attributes/", "attributes/"]
        {
            for query in
                ["recursive=true", "recursive=TRUE&alt=text", "recursive", "%72ecursive=1", "alt=json"]
            {
                let target = format!("{root}{folder}?{query}");
                let answer = world.ask(&CART, &target);
                assert!((400..500).contains(&answer.status), "{target}: {answer:?}");
            }
        }
    }
    let accounts = "/computeMetadata/v1/instance/service-accounts/";
    for target in
        [format!("{accounts}?recursive=true"), format!("{accounts}default/?recursive=true&alt=json")]
    {
        let answer = world.ask(&CART, &target);
        assert_eq!((answer.status, &answer.body), (200, &direct(&world, &target).body), "{target}");
    }
}

#[test]
fn the_machines_identity_is_concealed() {
    let world = World::start(&Plan::conceal());
    let account = "/computeMetadata/v1/instance/service-accounts/default";
    for target in [
        format!("{account}/identity?audience=https://shop.example&format=full"),
        format!("{account}/IDENTITY?audience=a"),
        format!("{account}/./identity?audience=a"),
        format!("{account}/%69dentity?audience=a"),
        "/0.1/meta-data/service-accounts/default/identity?audience=a".to_owned(),
        "/computeMetadata/v1beta1/instance/service-accounts/default/identity?audience=a".to_owned(),
    ] {
        let answer = world.ask(&CART, &target);
        assert_eq!(answer.status_and_refusal_code(), (403, "concealed"), "{target}: {answer:?}");
    }
    assert_eq!(
        world.ask(&CART, &format!("{account}/email?audience=a")).status_and_refusal_code(),
        (403, "unknown_parameter")
    );
}

#[test]
fn what_is_allowed_passes_with_the_machines_own_answer() {
    let world = World::start(&Plan::conceal());
    let mut client = world.client(&CART);
    for target in [
        "/",
        "/computeMetadata/",
        "/computeMetadata/v1/",
        PROJECT_ID,
        "/computeMetadata/v1/project/numeric-project-id",
        "/computeMetadata/v1/instance/",
        "/computeMetadata/v1/instance/zone",
        "/computeMetadata/v1/instance/hostname",
        "/computeMetadata/v1/instance/attributes/cluster-name",
        "/computeMetadata/v1/instance/attributes/cluster-uid",
        "/computeMetadata/v1/instance/zone?alt=json",
        "/computeMetadata/v1/instance/network-interfaces/0/ip",
        "/computeMetadata/v1/instance/service-accounts/default/email",
        "/computeMetadata/v1/instance/service-accounts/default/scopes",
        "/computeMetadata/v1beta1/instance/zone",
        "/0.1/meta-data/zone",
        "/computeMetadata/v1/instance/nothing",
        "/computeMetadata/v1/instance",
    ] {
        let (answer, own) = (client.ask(&format_get(target)), direct(&world, target));
        assert_eq!((answer.status, &answer.body), (own.status, &own.body), "{target}");
        for header in ["content-type", "etag", "location"] {
            assert_eq!(answer.header(header), own.header(header), "{header} of {target}");
        }
        assert_eq!(answer.header("metadata-flavor"), "Google", "{target}");
    }
    // The node's own token is what every pod gets in this mode.
    let token = client.ask(&format_get(TOKEN)).token();
    let told = world.cloud.read_access_token(&token).unwrap();
    assert_eq!(told.account.as_deref(), Some("node@seawall-emulator.iam.gserviceaccount.com"));
    assert!(!world.agent.log().contains(&token) && !world.admin("/metrics").body.contains(&token));
}

/// Operators find by the log which workloads need the node's identity, also after the pod has ended.
#[test]
fn the_first_node_token_of_a_pod_is_a_line_of_the_log() {
    let world = World::start(&Plan::conceal());
    let lines = || world.agent.log_lines_with_message("a pod got the node's credentials");
    assert_eq!(world.ask(&CART, PROJECT_ID).status, 200);
    assert!(lines().is_empty(), "{:?}", lines());
    assert_eq!(world.debug(&CART)["google"]["got_node_credentials"], false);
    for _ in 0..3 {
        world.ask(&CART, TOKEN).token();
    }
    wait_until_true("the line", || lines().len() == 1);
    let line = &lines()[0]["fields"];
    assert_eq!((&line["cloud"], &line["pod"]), (&"google".into(), &CART.name.into()));
    assert_eq!(line["service_account"], "shop/cart");
    assert_eq!(world.debug(&CART)["google"]["got_node_credentials"], true);
    assert_eq!(world.debug(&PAY)["google"]["got_node_credentials"], false);
}

#[test]
fn what_pods_may_not_send_never_reaches_the_machine() {
    let world = World::start(&Plan::conceal());
    let flavor = "Metadata-Flavor: Google\r\n";
    let before = world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).calls;
    for (method, target, headers, status, code) in [
        ("GET", TOKEN, "X-Forwarded-For: 1.2.3.4\r\n", 403, "proxied_request"),
        ("GET", TOKEN, "x-forwarded-for:\r\n", 403, "proxied_request"),
        ("GET", TOKEN, "Forwarded: for=1.2.3.4\r\n", 403, "proxied_request"),
        ("POST", TOKEN, "", 403, "method_not_allowed"),
        ("PUT", "/latest/api/token", "", 403, "method_not_allowed"),
        ("DELETE", PROJECT_ID, "", 403, "method_not_allowed"),
        ("GET", "/latest/meta-data/", "", 403, "unknown_path"),
        ("GET", "/computeMetadata/v2/", "", 403, "unknown_path"),
        ("GET", "/v1/token", "", 403, "unknown_path"),
        ("GET", "/emulator/counts", "", 403, "unknown_path"),
        ("GET", "/computeMetadata/v1/instance/zone?x=1", "", 403, "unknown_parameter"),
    ] {
        // Another method ends its connection.
        let mut client = world.client(&CART);
        let answer = client.ask(&format_request(method, target, "HTTP/1.1", &format!("{flavor}{headers}")));
        assert_eq!(answer.status_and_refusal_code(), (status, code), "{method} {target}: {answer:?}");
    }
    let mut client = world.client(&CART);
    for target in [PROJECT_ID, "/0.1/meta-data/zone", "/computeMetadata/v1beta1/instance/zone"] {
        let answer = client.ask(&format_request("GET", target, "HTTP/1.1", ""));
        assert_eq!(
            answer.status_and_refusal_code(),
            (403, "missing_metadata_flavor"),
            "{target}: {answer:?}"
        );
    }
    assert_eq!(world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).calls, before);
}

#[test]
fn a_machine_that_cannot_be_reached_is_503_until_it_can() {
    let mut world = World::start(&Plan::conceal());
    let upstream = world.cloud.address();
    assert_eq!(world.ask(&CART, PROJECT_ID).status, 200);
    assert_eq!(world.admin("/readyz").status, 200);
    // An emulator somewhere else takes the place of the one that is gone.
    world.cloud = Cloud::start(&PODS);
    let answer = world.ask(&CART, PROJECT_ID);
    assert_eq!(answer.status_and_refusal_code(), (503, "upstream_unreachable"), "{answer:?}");
    let ready = world.admin("/readyz");
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.body.contains("503"), "{ready:?}");
    world.cloud = Cloud::start_at(upstream, &PODS);
    wait_until_true("the machine to be found", || world.ask(&CART, PROJECT_ID).status == 200);
    assert_eq!(world.admin("/readyz").status, 200);
}

#[test]
fn what_the_machine_says_when_it_fails_is_passed_on_or_named() {
    let world = World::start(&Plan::conceal());
    let status = |status| Faults { error_rate: 1.0, error_status: Some(status), ..Faults::default() };
    for (faults, expected) in [
        (status(500), 500),
        (status(429), 429),
        (status(404), 404),
        (Faults { close_rate: 1.0, ..Faults::default() }, 503),
        (Faults { latency: Duration::from_millis(300), ..Faults::default() }, 200),
    ] {
        world.cloud.set_faults_on(GoogleEndpoint::Metadata, faults.clone());
        assert_eq!(world.ask(&CART, PROJECT_ID).status, expected, "{faults:?}");
    }
    world.cloud.set_faults(&Faults::default());
    world.cloud.set_instance_attribute("large", &"x".repeat(2 << 20));
    let answer = world.ask(&CART, "/computeMetadata/v1/instance/attributes/large");
    assert_eq!(answer.status_and_refusal_code(), (502, "upstream_too_large"));
}

const ATTRIBUTE: &str = "/computeMetadata/v1/instance/attributes/cluster-name";

/// Long polls that the machine itself holds.
fn held(world: &World, n: u64) -> Vec<Client> {
    let before = world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).in_flight;
    let polls = (0..n).map(|_| {
        let mut client = world.client(&CART);
        client.write_bytes(format_get(&format!("{ATTRIBUTE}?wait_for_change=true&timeout_sec=300")));
        client
    });
    let polls = polls.collect();
    wait_until_true("the machine to hold them", || {
        world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).in_flight == before + n
    });
    polls
}

#[test]
fn a_change_at_the_machine_reaches_those_who_wait_for_it() {
    let world = World::start(&Plan::conceal());
    let mut polls = held(&world, 3);
    world.cloud.set_instance_attribute("cluster-name", "atoll");
    for poll in &mut polls {
        let answer = poll.receive_answer();
        assert_eq!((answer.status, answer.body.as_str()), (200, "atoll"));
        assert_eq!(answer.header("etag"), direct(&world, ATTRIBUTE).header("etag"));
    }
}

#[test]
fn long_polls_take_no_place_of_short_requests() {
    let world = World::start(&Plan::conceal().limits("upstreamRequests: 1, longPollsPerPod: 5"));
    let polls = held(&world, 5);
    for _ in 0..5 {
        assert_eq!(world.ask(&CART, PROJECT_ID).body, PROJECT);
    }
    let one_more = world.client(&CART).ask(&format_get(&format!("{ATTRIBUTE}?wait_for_change=true")));
    assert_eq!(one_more.status_and_refusal_code(), (503, "too_many_long_polls"));
    assert_eq!(world.ask(&PAY, PROJECT_ID).body, PROJECT);
    // Whoever hangs up frees the place here and at the machine.
    drop(polls);
    wait_until_true("the machine to be rid of them", || {
        world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).in_flight == 0
    });
    held(&world, 5);
}

#[test]
fn short_requests_take_turns_at_the_machine() {
    let world = World::start(&Plan::conceal().limits("upstreamRequests: 2"));
    world.cloud.set_faults_on(
        GoogleEndpoint::Metadata,
        Faults { latency: Duration::from_millis(20), ..Faults::default() },
    );
    let mut clients: Vec<_> = (0..20).map(|_| world.client(&CART)).collect();
    clients.iter_mut().for_each(|client| client.write_bytes(format_get(PROJECT_ID)));
    assert!(clients.iter_mut().all(|client| client.receive_answer().body == PROJECT));
    assert!(
        world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata).peak <= 2,
        "{:?}",
        world.cloud.endpoint_request_counts(GoogleEndpoint::Metadata)
    );
}

/// They could not be answered before their time, and the drain lasted as long as it may.
#[test]
fn long_polls_at_the_machine_do_not_delay_the_end() {
    let mut world = World::start(&Plan::conceal());
    let mut polls = held(&world, 2);
    let clock = seawall_core::Clock::system();
    let asked = clock.now();
    assert_eq!(world.agent.stop().code(), Some(0));
    assert!(clock.now().since(asked) < Duration::from_secs(3));
    for poll in &mut polls {
        let answer = poll.receive_answer();
        assert_eq!(answer.status_and_refusal_code(), (503, "shutting_down"), "{answer:?}");
    }
}

#[test]
fn with_static_identity_a_stranger_gets_nothing_and_with_anyone_what_a_pod_gets() {
    let world = World::start(&Plan::conceal());
    let mut stranger = Client::connect(STRANGER, world.agent.first_listener_address());
    for target in [PROJECT_ID, TOKEN] {
        assert_eq!(
            stranger.ask(&format_get(target)).status_and_refusal_code(),
            (403, "unknown_client"),
            "{target}"
        );
    }
    let plan = Plan { identity: "{ strategy: anyone }", ..Plan::conceal() };
    let files = Files::new(&plan, world.cloud.address());
    let agent = Agent::start(PROGRAM, &files.config());
    let mut stranger = Client::connect(STRANGER, agent.first_listener_address());
    assert_eq!(stranger.ask(&format_get(PROJECT_ID)).body, PROJECT);
    let kube_env = "/computeMetadata/v1/instance/attributes/kube-env";
    assert_eq!(stranger.ask(&format_get(kube_env)).status_and_refusal_code(), (403, "concealed"));
    assert_eq!(
        stranger
            .ask(&format_get_with_headers(PROJECT_ID, "X-Forwarded-For: 1.2.3.4\r\n"))
            .status_and_refusal_code(),
        (403, "proxied_request")
    );
}
