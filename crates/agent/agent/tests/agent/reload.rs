//! Another configuration while the agent runs: who is asked, who is answered by which, and what stays.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use seawall_emulator::aws::AwsEndpoint;

use super::support::aws;
use super::support::client::{Client, ConnectionEnd, format_get};
use super::support::process::{Agent, run};
use super::support::world::{
    CART, DIRECT, Files, MALLORY, PAY, PODS, PROJECT, PROJECT_ID, Plan, Pod, TOKEN, World, identity,
    token_for,
};
use super::support::{PROGRAM, ip, wait_until_true};

const APPLIED: &str = "seawall_config_reloads_total{outcome=\"applied\"}";
const FETCHES_FAILED: &str = "seawall_config_reloads_total{outcome=\"fetches_failed\"}";
const INVALID: &str = "seawall_config_reloads_total{outcome=\"invalid\"}";
const SUCCESSFUL: &str = "seawall_config_last_reload_successful";

/// A question that is answered once there is another token.
const POLL: &str =
    "/computeMetadata/v1/instance/service-accounts/default/token?wait_for_change=true&timeout_sec=300";

impl World {
    fn text(&self) -> String {
        std::fs::read_to_string(self.files.config()).unwrap()
    }

    /// Writes what `edit` makes of the file.
    fn edit(&self, edit: impl FnOnce(String) -> String) {
        self.files.write("agent.yaml", &edit(self.text()));
    }

    /// The same, and returns once it is in force.
    fn reload(&self, edit: impl FnOnce(String) -> String) {
        let before = self.metric(APPLIED);
        self.edit(edit);
        self.agent.signal(Signal::HUP);
        wait_until_true("the configuration to be in force", || self.metric(APPLIED) > before);
    }

    /// Whose a token is: the subject that was exchanged for it, or the node's own account.
    fn holder(&self, token: &str) -> String {
        self.cloud
            .read_access_token(token)
            .unwrap_or_else(|| panic!("not a token of this cloud: {token}"))
            .sub
    }

    /// Who sees the real metadata server.
    fn let_through(&self, pods: &str) {
        self.reload(|text| with_passthrough(&text, pods));
    }
}

fn with_passthrough(text: &str, pods: &str) -> String {
    let others: String =
        text.lines().filter(|line| !line.contains("realServer:")).map(|line| format!("{line}\n")).collect();
    format!("realServer: [{pods}]\n{others}")
}

#[test]
fn what_the_exchange_does_not_hang_on_costs_no_call_and_ends_no_connection() {
    let world = World::start(&Plan::federate());
    let mut kept = world.client(&CART);
    let (token, other) =
        (kept.ask(&format_get(TOKEN)).token(), kept.ask(&format_get(&token_for("other"))).token());
    let calls = world.cloud.calls();
    world.reload(|text| text.replace("logLevel: debug", "logLevel: warn"));
    world.let_through("shop/pay");
    world.reload(|text| text.replace("zone: europe-west1-b", "zone: europe-west1-c"));
    world.reload(|text| text.replace("limits: {  }", "limits: { longPollsPerPod: 1, idleTimeout: 50s }"));
    assert_eq!(kept.ask(&format_get(TOKEN)).token(), token);
    assert_eq!(kept.ask(&format_get(&token_for("other"))).token(), other);
    assert!(kept.ask(&format_get("/computeMetadata/v1/instance/zone")).body.ends_with("/europe-west1-c"));
    assert_eq!(world.cloud.calls(), calls);
    assert_eq!(world.metric("seawall_cached_credentials{cloud=\"google\"}"), 2.0);
    let said = |level: &str| world.agent.log().matches(&format!("\"level\":\"{level}\"")).count();
    let infos = said("INFO");
    world.agent.signal(Signal::USR1);
    wait_until_true("a warning", || said("WARN") > 0);
    assert_eq!(said("INFO"), infos, "what is heard is less by now");
}

#[test]
fn who_is_taken_off_a_list_has_nothing_of_it_from_then_on_on_kept_connections_neither() {
    let world = World::start(&Plan::federate());
    world.let_through("shop/pay");
    let mut kept = world.client(&PAY);
    let of_the_node = world.holder(&kept.ask(&format_get(TOKEN)).token());
    assert_ne!(of_the_node, PAY.subject());
    // The library's own question, asked again and again, and one that waits at the real server.
    kept.ask(&format_get(TOKEN));
    let poll = "/computeMetadata/v1/instance/attributes/cluster-name?wait_for_change=true&timeout_sec=300";
    let mut waiting = world.held(&PAY, &format_get(poll));
    world.let_through("");
    assert_eq!(world.holder(&kept.ask(&format_get(TOKEN)).token()), PAY.subject());
    assert_eq!(waiting.receive_answer().status_and_refusal_code(), (503, "account_changed"));
    assert_eq!(world.holder(&waiting.ask(&format_get(TOKEN)).token()), PAY.subject());
    // And back, with what is remembered of the last one's answers.
    world.let_through("shop/pay, shop/cart");
    assert_eq!(world.holder(&kept.ask(&format_get(TOKEN)).token()), of_the_node);
}

#[test]
fn who_waits_for_a_change_of_its_own_goes_on_waiting() {
    let world = World::start(&Plan::federate());
    let mut kept = world.client(&CART);
    let token = kept.ask(&format_get(TOKEN)).token();
    let mut waiting = world.held(&CART, &format_get(POLL));
    world.let_through("shop/pay");
    let again = waiting.receive_answer();
    assert_eq!(again.token(), token, "told early, of what it has: {again:?}");
}

/// What a provider takes a pod for is the provider's to say, so leases of another exchange are nobody's answer. They are fetched while
/// the old one answers, and who asks finds them.
#[test]
fn leases_of_another_exchange_are_fetched_before_it_is_in_force() {
    let world = World::start(&Plan::federate());
    let mut kept = world.client(&CART);
    let (token, _) = (kept.ask(&format_get(TOKEN)).token(), kept.ask(&format_get(&identity("aud"))).body);
    let (warm, calls) = (world.metric("seawall_credential_cache_hits_total"), world.cloud.calls());
    world.reload(|text| text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
    assert_eq!(world.cloud.calls(), [calls[0] + 2, calls[1] + 1, calls[2] + 1]);
    let (next, id) = (kept.ask(&format_get(TOKEN)).token(), kept.ask(&format_get(&identity("aud"))).body);
    assert_ne!(next, token);
    assert_eq!(world.cloud.identity(&id, "aud")["email"], CART.email.unwrap());
    assert_eq!(world.holder(&next), CART.subject());
    assert_eq!(world.metric("seawall_credential_cache_hits_total"), warm + 2.0, "both were there");
    assert_eq!(
        world.metric("seawall_credential_fetches_total{cloud=\"google\",outcome=\"initial\"}"),
        4.0,
        "counted on"
    );
}

/// Forwards connections to this address. Ends with the test.
fn forward(listener: TcpListener, to: SocketAddr) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(to).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
}

/// A wrong provider, or a cloud that was down, once took valid credentials from all pods. Who must end the old exchange at once restarts
/// the agents.
#[test]
fn a_configuration_with_which_no_fetch_succeeds_takes_no_credential_away_and_is_tried_again() {
    let world = World::start(&Plan::federate());
    let mut kept = world.client(&CART);
    let before = [kept.ask(&format_get(TOKEN)).token(), world.ask(&PAY, TOKEN).token()];
    let upstream = world.cloud.address();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = silent.local_addr().unwrap();
    drop(silent);
    world.edit(|text| {
        text.replace(&format!("stsUrl: \"http://{upstream}"), &format!("stsUrl: \"http://{other}"))
    });
    for count in 1..3 {
        world.agent.signal(Signal::HUP);
        wait_until_true("the agent to refuse the file", || world.metric(FETCHES_FAILED) >= f64::from(count));
    }
    assert_eq!([kept.ask(&format_get(TOKEN)).token(), world.ask(&PAY, TOKEN).token()], before);
    assert_eq!(kept.ask(&format_get(PROJECT_ID)).body, PROJECT);
    let page = world.admin("/readyz");
    let told = "none of 2 fetches from google brought a credential; an error is unavailable";
    assert!(page.status == 200 && page.body.contains(told), "{page:?}");
    assert_eq!(world.metric(SUCCESSFUL), 0.0);

    // The cloud is there again.
    forward(TcpListener::bind(other).unwrap(), upstream);
    let applied = world.metric(APPLIED);
    world.agent.signal(Signal::HUP);
    wait_until_true("the configuration to be in force", || world.metric(APPLIED) > applied);
    assert_ne!(kept.ask(&format_get(TOKEN)).token(), before[0], "by the other exchange");
    assert_eq!(world.metric(SUCCESSFUL), 1.0);
}

#[test]
fn what_one_caller_may_changes_on_connections_that_there_are() {
    let world = World::start(&Plan::federate());
    let mut idle = world.client(&CART);
    assert_eq!(idle.ask(&format_get(PROJECT_ID)).status, 200);
    world.reload(|text| text.replace("limits: {  }", "limits: { idleTimeout: 50ms, connectionsPerPod: 1 }"));
    assert_eq!(idle.wait_for_end(), ConnectionEnd::Closed);
    let (mut first, mut second) = (world.client(&PAY), world.client(&PAY));
    assert_eq!(second.ask(&format_get(PROJECT_ID)).status, 200);
    assert_eq!(first.wait_for_end(), ConnectionEnd::Closed, "one at a time");
}

#[test]
fn a_mode_that_changes_gives_nobody_the_other_modes_credentials() {
    let world = World::start(&Plan::conceal());
    let mut kept = world.client(&CART);
    let of_the_node = world.holder(&kept.ask(&format_get(TOKEN)).token());
    for _ in 0..3 {
        world.reload(|text| text.replace("mode: conceal", "mode: federate"));
        assert_eq!(world.holder(&kept.ask(&format_get(TOKEN)).token()), CART.subject());
        world.reload(|text| text.replace("mode: federate", "mode: conceal"));
        assert_eq!(world.holder(&kept.ask(&format_get(TOKEN)).token()), of_the_node);
    }
}

/// One pod's requests, each checked, on a kept connection and on new ones, until it is told to stop.
fn ask_on(world: &World, pod: &Pod, count: &AtomicU64, is_over: &AtomicBool) {
    let own = pod.subject();
    let mut kept = world.client(pod);
    while !is_over.load(Ordering::Relaxed) {
        for answer in
            [kept.ask(&format_get(TOKEN)), world.ask(pod, TOKEN), kept.ask(&format_get(&identity("aud")))]
        {
            assert_eq!(answer.status, 200, "{answer:?}");
            if answer.body.contains("access_token") {
                assert_eq!(world.holder(&answer.token()), own);
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn under_load_no_request_fails_and_no_connection_ends_whatever_is_reloaded() {
    let world = World::start(&Plan::federate());
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let asking: Vec<_> = [CART, PAY, MALLORY, CART, PAY]
            .into_iter()
            .map(|pod| {
                let (world, count, is_over) = (&world, &count, &is_over);
                scope.spawn(move || ask_on(world, &pod, count, is_over))
            })
            .collect();
        let more = |by: u64| {
            let before = count.load(Ordering::Relaxed);
            wait_until_true("requests to be answered", || {
                assert!(asking.iter().all(|one| !one.is_finished()), "one failed");
                count.load(Ordering::Relaxed) >= before + by
            });
        };
        let mut direct = world.client(&DIRECT);
        for round in 0..4 {
            more(50);
            world.let_through("lab/direct");
            assert_ne!(world.holder(&direct.ask(&format_get(TOKEN)).token()), DIRECT.subject(), "{round}");
            world.reload(|text| text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
            world.reload(|text| text.replace("zone: europe-west1-b", "zone: europe-west1-c"));
            more(50);
            world.let_through("");
            assert_eq!(world.holder(&direct.ask(&format_get(TOKEN)).token()), DIRECT.subject(), "{round}");
            world.reload(|text| {
                text.replace("http://localhost", "http://127.0.0.1").replace("west1-c", "west1-b")
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_bad_file_keeps_the_one_in_force_and_says_so_once_where_people_look() {
    let world = World::start(&Plan::federate());
    let good = world.text();
    let bad = good.replace("zone: europe-west1-b", "zone: \"not a zone\"") + "\nnonsense: s3cret-value\n";
    world.files.write("agent.yaml", &bad);
    let lines = || {
        world.agent.log_lines_with_message(
            "the agent refuses the changed configuration; the old configuration stays in force",
        )
    };
    // Lines are written by a thread of their own.
    wait_until_true("it is refused", || world.metric(INVALID) == 1.0 && !lines().is_empty());
    let said = lines()[0]["fields"]["reason"].as_str().unwrap().to_owned();
    let check = run(PROGRAM, &["check", "--config", world.files.config().to_str().unwrap()]);
    let checked = String::from_utf8(check.stderr).unwrap();
    assert!(checked.contains(said.trim_end()) && said.contains("google.zone: found"), "{said}\n{checked}");

    assert_eq!(world.metric(SUCCESSFUL), 0.0);
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    let ready = world.admin("/readyz");
    assert!(
        ready.status == 200 && ready.body.contains("the agent refused the changed configuration at "),
        "{ready:?}"
    );
    let told = world.admin("/debug/pods").json()["configuration"].clone();
    let reason = told["refused"]["reason"].as_str().unwrap();
    assert!(reason.contains("google.zone: expected"), "{reason}");
    for page in ["/readyz", "/debug/pods", "/metrics"] {
        assert!(!world.admin(page).body.contains("s3cret-value"), "{page} shows what stands in a file");
    }
    // Written again with the same content: nobody hears of it again.
    world.files.write("agent.yaml", &bad);
    world.files.write("agent.yaml", &good);
    wait_until_true("it is good again", || world.metric(SUCCESSFUL) == 1.0);
    assert_eq!((world.metric(INVALID), world.metric(APPLIED), lines().len()), (1.0, 0.0, 1));
    assert!(!world.admin("/readyz").body.contains("refused"));
}

#[test]
fn probe_and_status_find_the_agent_by_a_file_that_it_refuses() {
    let world = World::start(&Plan::federate());
    let admin = world.agent.admin_address;
    let file = |more: &str| world.files.write("other.yaml", &format!("admin: \"{admin}\"\n{more}"));
    file("listen: [here]\nnonsense: 1\n");
    let path = world.files.path("other.yaml");
    let probe = run(PROGRAM, &["probe", "--config", path.to_str().unwrap()]);
    assert!(probe.status.success(), "{probe:?}");
    let status = run(PROGRAM, &["status", "--config", path.to_str().unwrap()]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains("configuration ") && text.contains(" in force since "), "{text}");
}

#[test]
fn what_needs_a_restart_is_named_and_nothing_of_its_file_is_in_force() {
    let world = World::start(&Plan::federate());
    world.edit(|text| {
        with_passthrough(&text, "shop/cart").replace("threads: auto", "threads: 2") + "adminSocket: a\n"
    });
    world.agent.signal(Signal::HUP);
    wait_until_true("it is refused", || {
        world.metric("seawall_config_reloads_total{outcome=\"needs_restart\"}") == 1.0
    });
    let told = world.admin("/debug/pods").json()["configuration"]["refused"]["reason"].to_string();
    assert!(told.contains("adminSocket, threads: only a restart applies this change"), "{told}");
    assert_eq!(world.holder(&world.ask(&CART, TOKEN).token()), CART.subject());
}

/// Two kinds of writers that people have: kubelets swap a link beside the file, editors rename over it.
#[test]
fn a_change_is_noticed_however_the_file_is_changed() {
    let files = Files::new(&Plan::federate(), ([127, 0, 0, 1], 9).into());
    let text = std::fs::read_to_string(files.config())
        .unwrap()
        .replace("file: pods.yaml", &format!("file: {}", files.path("pods.yaml").display()));
    for version in ["..v1", "..v2"] {
        std::fs::create_dir(files.path(version)).unwrap();
    }
    files.write("..v1/mounted.yaml", &text);
    files.write("..v2/mounted.yaml", &text.replace("west1-b", "west1-c"));
    symlink("..v1", files.path("..data")).unwrap();
    symlink("..data/mounted.yaml", files.path("mounted.yaml")).unwrap();
    let agent = Agent::start(PROGRAM, &files.path("mounted.yaml"));
    let zone = || {
        super::support::client::ask(
            CART.at,
            agent.first_listener_address(),
            "/computeMetadata/v1/instance/zone",
        )
        .body
    };
    assert!(zone().ends_with("west1-b"));
    symlink("..v2", files.path("..tmp")).unwrap();
    std::fs::rename(files.path("..tmp"), files.path("..data")).unwrap();
    wait_until_true("the swapped link", || zone().ends_with("west1-c"));
    files.write("new.yaml", &text.replace("west1-b", "west1-d"));
    std::fs::rename(files.path("new.yaml"), files.path("mounted.yaml")).unwrap();
    wait_until_true("the renamed file", || zone().ends_with("west1-d"));
    files.write("mounted.yaml", &text);
    wait_until_true("the file that was written over", || zone().ends_with("west1-b"));
}

#[test]
fn a_reload_that_meets_the_stop_keeps_nobody_from_the_end() {
    let mut world = World::start(&Plan::federate());
    world.ask(&CART, TOKEN).token();
    world.edit(|text| text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
    world.agent.signal(Signal::HUP);
    world.agent.signal(Signal::TERM);
    assert_eq!(world.agent.wait_for_exit().code(), Some(0));
}

#[test]
fn of_two_changes_in_a_row_the_last_one_is_in_force() {
    let world = World::start(&Plan::federate());
    world.ask(&CART, TOKEN).token();
    let text = world.text();
    for zone in ["c", "d", "e"] {
        let other = text.replace("west1-b", &format!("west1-{zone}"));
        world
            .files
            .write("agent.yaml", &other.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
        world.agent.signal(Signal::HUP);
    }
    let zone = || world.ask(&CART, "/computeMetadata/v1/instance/zone").body;
    wait_until_true("the last one", || zone().ends_with("west1-e"));
}

/// What is made for each configuration ends with it.
#[test]
fn a_hundred_reloads_leave_nothing_behind() {
    let world = World::start(&Plan::federate());
    let mut kept: Vec<_> = PODS.iter().map(|pod| world.client(pod)).collect();
    // What could not be fetched ahead in time, on a busy machine, is asked for again.
    let mut all_ask = || {
        for client in &mut kept {
            wait_until_true("a token", || client.ask(&format_get(TOKEN)).status == 200);
        }
    };
    let mut reload = |times: usize| {
        for _ in 0..times / 2 {
            world.reload(|text| {
                text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost")
                    .replace("west1-b", "west1-c")
            });
            all_ask();
            world.reload(|text| {
                text.replace("http://localhost", "http://127.0.0.1").replace("west1-c", "west1-b")
            });
            all_ask();
        }
        world.agent.resident_kib()
    };
    let (before, after) = (reload(40), reload(100));
    assert!(after < before + 1024, "{before} KiB, and {after} KiB after a hundred more");
    assert_eq!(world.metric("seawall_cached_credentials{cloud=\"google\"}"), 4.0);
}

/// A full node, while both configurations have all of its credentials: it fits beside what the program takes anyway.
#[test]
fn a_full_nodes_credentials_fit_twice() {
    let named = |name: String| -> &'static str { name.leak() };
    let pod = |n: u8| Pod {
        at: ip(100 + n),
        namespace: "full",
        name: named(format!("pod-{n}")),
        account: named(format!("account-{n}")),
        email: Some(named(format!("account-{n}@seawall-emulator.iam.gserviceaccount.com"))),
    };
    let plan = Plan { pods: (0..110).map(pod).collect(), ..Plan::federate() };
    let world = World::start(&plan);
    let all_have = |what: &str| {
        plan.pods.iter().for_each(|pod| wait_until_true(what, || world.ask(pod, TOKEN).status == 200));
    };
    all_have("a token");
    let before = world.agent.proc_status_kib("VmHWM");
    let calls = world.cloud.calls();
    world.reload(|text| text.replace("stsUrl: \"http://127.0.0.1", "stsUrl: \"http://localhost"));
    all_have("a token by the other exchange");
    let after = world.agent.proc_status_kib("VmHWM");
    assert_eq!(world.cloud.calls(), [calls[0] + 110, calls[1] + 110, calls[2]], "each once");
    assert!(after < before + 2048, "{before} KiB at most before, {after} KiB at most with both");
}

/// Session tokens that were given are good for hours; roles are the configuration's from one request to the next.
#[test]
fn session_tokens_outlive_a_reload_and_roles_that_it_takes_away_do_not() {
    let world = aws::World::start("", "");
    let shown = format!("X-aws-ec2-metadata-token: {}\r\n", world.session_token(&aws::DEFAULT));
    let mut kept = Client::connect(aws::DEFAULT.at, world.agent.listener_addresses[0]);
    let listing = aws::head("GET", aws::ROLES, "169.254.169.254", &shown);
    world.document(&aws::DEFAULT);
    assert_eq!(kept.ask(&listing).body, "plain");
    let document = aws::head("GET", &format!("{}plain", aws::ROLES), "169.254.169.254", &shown);
    let first = kept.ask(&document);
    assert_eq!((first.status, kept.ask(&document).body), (200, first.body.clone()));
    let calls = || world.aws.endpoint_request_counts(AwsEndpoint::AssumeRole).calls;
    let reload = |number: u32, edit: &dyn Fn(String) -> String| {
        world.edit(edit);
        world.agent.signal(Signal::HUP);
        let sample = format!("{APPLIED} {number}");
        wait_until_true("it is in force", || world.admin("/metrics").body.lines().any(|line| line == sample));
    };
    reload(1, &|text| text.replace("plain: plain", "plain: first"));
    let fetched = calls();
    assert_eq!(kept.ask(&listing).body, "first", "the same session token, and another role");
    assert_eq!(kept.ask(&document).status, 403, "as it was asked for again and again before");
    assert_eq!(calls(), fetched, "it was fetched before it was in force");
    reload(2, &|text| {
        text.replace("defaultRoles: { plain: first }", "defaultRoles: {}")
            .replace("irsa, kiam, kube2iam", "irsa, kiam")
    });
    for request in [&listing, &document] {
        let refused = kept.ask(request);
        assert_eq!(refused.status, 404, "{refused:?}");
    }
}
