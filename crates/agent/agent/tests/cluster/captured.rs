//! `kernel` identity: captured connections, two witnesses, and one agent after another.

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::json;

use crate::support::captured::{ADDRESS, Node, admin, metric};
use crate::support::network::{GATEWAY6, METADATA};
use crate::support::{EMAIL, TOKEN, wait_until_some, wait_until_true};

const FIRST: &str = "aaaaaaaa-0000-0000-0000-000000000001";
const SECOND: &str = "aaaaaaaa-0000-0000-0000-000000000002";

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn each_pod_is_given_its_own_also_on_the_nodes_network_and_nobody_else_anything() {
    let mut node = Node::start(&["cart", "search", "logs"]);
    let agent = node.agent(FIRST);
    let (mut cart, mut search) = (node.pod("cart", "cart"), node.pod("search", "search"));
    let mut logs = node.host_pod("logs", "logs");
    for pod in [&mut cart, &mut search, &mut logs] {
        wait_until_true("the API server's word", || pod.fetch(EMAIL).starts_with("200 "));
        for address in ["169.254.169.254", "fd20:ce::254"] {
            node.check(pod, address);
        }
    }
    let port = agent.first_listener_address().port();
    let refused = node.outside().ask(&format!("fetch {ADDRESS} {port} {TOKEN}"));
    assert!(refused.starts_with("403 ") && refused.contains("host_network"), "{refused}");
    // A proxy in the pod that dials the agent itself is that pod, too.
    let direct = cart.process.ask(&format!("fetch {ADDRESS} {port} {TOKEN}"));
    node.check_answer(&direct, "cart");
    assert!(metric(&agent, "seawall_redirect_connects_total{outcome=\"captured\"}") >= 9.0);
    assert!(metric(&agent, "seawall_redirect_connection_records_total{outcome=\"stored\"}") >= 10.0);
    assert_eq!(metric(&agent, "seawall_redirect_connection_records_total{outcome=\"dropped\"}"), 0.0);
    assert_eq!(metric(&agent, "seawall_redirect_targets_this_agent"), 1.0);
    assert_eq!(metric(&agent, "seawall_redirect_connections_without_record_total"), 0.0);
    assert_eq!(cart.process.ask(&format!("ask connect {METADATA} 443")), "EPERM");
    // No listener of this agent answers there, and the real one is not reached.
    assert_eq!(cart.process.ask("ask connect 169.254.170.23 80"), "EPERM");
    assert_eq!(metric(&agent, "seawall_redirect_connects_total{outcome=\"no_agent\"}"), 1.0);
    assert!(metric(&agent, "seawall_redirect_connects_total{outcome=\"unsupported_port\"}") >= 1.0);
}

/// The agent listened at the node's first address alone. A socket for IPv6 alone cannot reach an IPv4 address (ENETUNREACH).
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn one_agent_serves_a_pod_of_a_dual_stack_node_in_each_family() {
    let mut node = Node::start(&["cart", "logs"]);
    node.have_ipv6();
    let agent = node.agent(FIRST);
    let (mut cart, mut logs) = (node.pod("cart", "cart"), node.host_pod("logs", "logs"));
    node.give_ipv6(&cart);
    for pod in [&mut cart, &mut logs] {
        for (how, address) in [
            ("fetch", "169.254.169.254"),
            ("fetch", "fd20:ce::254"),
            ("fetch_v6only", "fd20:ce::254"),
            ("fetch_v6only", "fd00:ec2::254"),
        ] {
            wait_until_true("the API server's word", || {
                pod.process.ask(&format!("{how} {address} 80 {EMAIL}")).starts_with("200 ")
            });
            let answer = pod.process.ask(&format!("{how} {address} 80 {TOKEN}"));
            node.check_answer(&answer, &pod.account);
        }
    }
    let port = agent.first_listener_address().port();
    let ready = admin(&agent, "/readyz").body;
    assert!(ready.contains(&format!("listening at {ADDRESS}:{port} and [{GATEWAY6}]:{port}\n")), "{ready}");
    assert_eq!(metric(&agent, "seawall_redirect_connects_total{outcome=\"no_family\"}"), 0.0);
    assert_eq!(metric(&agent, "seawall_redirect_connections_without_record_total"), 0.0);
}

/// The limit that `source-ip` has: there, the next pod at an address is the last one until the API server tells.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn the_next_pod_at_an_address_is_never_taken_for_the_last_one_however_late_the_api_server_tells() {
    let mut node = Node::start(&["cart", "next"]);
    let agent = node.agent(FIRST);
    let mut cart = node.pod("cart", "cart");
    wait_until_true("the API server's word", || cart.fetch(EMAIL).starts_with("200 "));
    node.check(&mut cart, "169.254.169.254");
    let sandbox = node.end(cart);
    let address = sandbox.as_ref().unwrap().address.to_string();
    let mut next = node.bound("next", "next", sandbox, &json!({}));
    for _ in 0..3 {
        let refused = next.fetch(TOKEN);
        assert!(refused.starts_with("503 ") && refused.contains("no_connection_record"), "{refused}");
    }
    assert!(metric(&agent, "seawall_redirect_connections_without_record_total") >= 3.0);
    node.ground.api.set_pod_status("cart", "Succeeded", &address);
    node.ground.api.set_pod_status("next", "Running", &address);
    wait_until_true("the API server's word", || next.fetch(EMAIL).starts_with("200 "));
    node.check(&mut next, "169.254.169.254");
}

/// The attacker makes a network of its own, in which it has the victim's address and the agent's, and connects with the ends that the
/// victim's connection will have.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_pod_that_makes_anothers_ends_its_own_is_named_by_none_of_them() {
    let mut node = Node::start(&["cart", "evil", "logs"]);
    let agent = node.agent(FIRST);
    let (mut cart, mut evil) = (node.pod("cart", "cart"), node.pod("evil", "evil"));
    let mut logs = node.host_pod("logs", "logs");
    for pod in [&mut cart, &mut evil, &mut logs] {
        wait_until_true("the API server's word", || pod.fetch(EMAIL).starts_with("200 "));
    }
    let (port, carts) =
        (agent.first_listener_address().port(), cart.sandbox.as_ref().unwrap().address.to_string());
    for (victim, account, address) in [(&mut cart, "cart", &*carts), (&mut logs, "logs", ADDRESS)] {
        let attacked = evil.process.ask(&format!("attack {address} 40000 {ADDRESS} {port}"));
        assert_eq!(attacked, format!("connected to {ADDRESS} {port}"));
        assert_eq!(
            victim.process.ask(&format!("hold {METADATA} 80 {address} 40000")),
            format!("{address} 40000")
        );
        let answer = victim.process.ask(&format!("fetch_held {TOKEN}"));
        node.check_answer(&answer, account);
        assert_eq!(evil.process.ask("release"), "released");
    }
    node.check(&mut evil, "169.254.169.254");
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_that_ends_leaves_pods_refused_and_the_next_one_serves_them() {
    let mut node = Node::start(&["cart"]);
    let mut cart = node.pod("cart", "cart");
    // Attached, and nobody has been told of yet.
    assert_eq!(cart.fetch(TOKEN), "EPERM");
    for signal in [Signal::TERM, Signal::KILL] {
        let mut agent = node.agent(FIRST);
        wait_until_true("the API server's word", || cart.fetch(EMAIL).starts_with("200 "));
        node.check(&mut cart, "169.254.169.254");
        agent.signal(signal);
        agent.wait_for_exit();
        assert_eq!(cart.fetch(TOKEN), "EPERM", "after {signal:?}");
    }
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_takes_over_from_another_and_no_request_fails_though_none_is_sent_again() {
    let mut node = Node::start(&["cart", "search"]);
    let mut first = node.agent(FIRST);
    let (mut cart, mut search) = (node.pod("cart", "cart"), node.pod("search", "search"));
    for pod in [&mut cart, &mut search] {
        wait_until_true("the API server's word", || pod.fetch(TOKEN).starts_with("200 "));
    }
    cart.process.send_line(&format!("steady new {METADATA} 80 {TOKEN}"));
    search.process.send_line(&format!("steady kept {METADATA} 80 {TOKEN}"));
    let asked = |agent: &_| metric(agent, "seawall_connections_accepted_total");
    wait_until_true("requests", || asked(&first) > 50.0);
    let mut second = node.agent(SECOND);
    assert_eq!(metric(&second, "seawall_redirect_targets_this_agent"), 1.0);
    assert!(
        admin(&first, "/readyz").body.contains("the redirect sends captured connections to another agent")
    );
    let before = asked(&second);
    wait_until_true("requests at the next agent", || asked(&second) > before + 50.0);
    assert!(first.stop().success());
    let before = asked(&second);
    wait_until_true("requests at the next agent alone", || asked(&second) > before + 50.0);
    for pod in [&mut cart, &mut search] {
        pod.process.send_line("stop");
        let said = pod.process.read_answer();
        assert_eq!(pod.process.read_answer(), "stopped");
        let (connections, answers) = said.split_once(" connections: ").unwrap();
        let answered: u32 = answers.strip_prefix("200=").and_then(|n| n.parse().ok()).expect(&said);
        let connections: u32 = connections.parse().unwrap();
        assert!(answered > 150, "{said}");
        assert!(pod.name == "cart" || connections <= 3, "{said}");
        eprintln!("{}: 0 of {answered} requests failed, on {connections} connections", pod.name);
    }
    assert!(second.stop().success());
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_that_stands_by_serves_again_when_the_one_that_took_over_dies() {
    let mut node = Node::start(&["cart"]);
    let first = node.agent(FIRST);
    let mut cart = node.pod("cart", "cart");
    wait_until_true("the API server's word", || cart.fetch(TOKEN).starts_with("200 "));
    let mut second = node.agent(SECOND);
    assert_eq!(metric(&first, "seawall_redirect_targets_this_agent"), 0.0);
    second.signal(Signal::KILL);
    second.wait_for_exit();
    wait_until_some("the other agent", || cart.fetch(TOKEN).starts_with("200 ").then_some(()));
    assert_eq!(metric(&first, "seawall_redirect_targets_this_agent"), 1.0);
}

/// A pod on the node's network listens where the agent died before anybody else does: it would answer every pod, and for ever, if it were
/// taken for the agent.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn who_listens_where_an_agent_died_is_sent_nobody_and_keeps_no_other_agent_away() {
    let mut node = Node::start(&["cart", "evil"]);
    let mut second = node.agent(SECOND);
    let (mut cart, mut evil) = (node.pod("cart", "cart"), node.host_pod("evil", "evil"));
    wait_until_true("the API server's word", || cart.fetch(TOKEN).starts_with("200 "));
    let at = second.first_listener_address();
    let beside = evil.process.ask(&format!("squat {} {}", at.ip(), at.port()));
    assert_eq!(beside, "EADDRINUSE");
    second.signal(Signal::KILL);
    second.wait_for_exit();
    assert_eq!(evil.process.ask(&format!("squat {} {}", at.ip(), at.port())), "listening");
    assert_eq!(cart.fetch(TOKEN), "EPERM");
    let first = node.agent(FIRST);
    node.check(&mut cart, "169.254.169.254");
    // One that stands by is not deceived either.
    let mut second = node.agent(SECOND);
    let at = second.first_listener_address();
    second.signal(Signal::KILL);
    second.wait_for_exit();
    assert_eq!(evil.process.ask(&format!("squat {} {}", at.ip(), at.port())), "listening");
    wait_until_some("the other agent", || {
        let said = cart.fetch(TOKEN);
        assert!(said == "EPERM" || said.starts_with("200 "), "{said}");
        said.starts_with("200 ").then_some(())
    });
    node.check(&mut cart, "169.254.169.254");
    assert_eq!(metric(&first, "seawall_redirect_targets_this_agent"), 1.0);
}

/// The filter of system calls ended an agent that opened an older pin before it removed it, at each start.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_removes_an_older_layout_under_its_own_filter_and_is_ready_then() {
    let mut node = Node::start(&["cart"]);
    let older = node.attach_beside_older_layout();
    let mut cart = node.pod("cart", "cart");
    assert_eq!(cart.process.ask(&format!("ask connect {METADATA} 80")), "EPERM");
    let agent = node.agent(FIRST);
    assert!(!older.exists());
    assert_eq!(metric(&agent, "seawall_redirect_targets_this_agent"), 1.0);
    wait_until_true("the API server's word", || cart.fetch(TOKEN).starts_with("200 "));
    node.check(&mut cart, "169.254.169.254");
}

/// Such a pod may have the node's credentials, and a connection that leads to the real server.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn pods_that_ran_before_the_redirect_are_named_until_they_run_anew_also_after_a_change_of_layout() {
    let mut node = Node::bare(&["cart"]);
    let cart = node.pod("cart-0", "cart");
    let runs_since = |time: &str| {
        let container = json!({
            "name": "main", "image": "local/none:1", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": time}},
        });
        node.ground.api.report_containers(&cart.name, &json!([container]));
    };
    let second = || Timestamp::now().as_second();
    let runs_since_second = |second| runs_since(&Timestamp::from_second(second).unwrap().to_string());
    runs_since_second(second());
    node.attach();
    let attached = second();
    let sentence = "1 pod(s) ran before the redirect was attached, such as reef/cart-0";
    let agent = node.agent(FIRST);
    wait_until_true("the pod to be named", || admin(&agent, "/readyz").body.contains(sentence));
    runs_since("2100-01-01T00:00:00Z");
    wait_until_true("the restarted pod not to be named", || {
        !admin(&agent, "/readyz").body.contains("ran before the redirect")
    });
    // It ran while the older layout was attached, before the next one is.
    wait_until_true("the next second", || second() > attached);
    runs_since_second(second());
    drop(agent);
    node.attach_beside_older_layout();
    let agent = node.agent(SECOND);
    wait_until_true("the pod to be known", || {
        admin(&agent, "/debug/pods").body.contains("cart-0")
            && metric(&agent, "seawall_redirect_targets_this_agent") == 1.0
    });
    assert!(!admin(&agent, "/readyz").body.contains("ran before the redirect"));
}

/// It used to go on with maps that no program read any more, ready and asked by nobody.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_whose_redirect_is_removed_is_not_ready_and_ends_when_it_is_attached_anew() {
    let mut node = Node::start(&["cart"]);
    let mut agent = node.agent(FIRST);
    let mut cart = node.pod("cart", "cart");
    wait_until_true("the API server's word", || cart.fetch(TOKEN).starts_with("200 "));
    assert_eq!(metric(&agent, "seawall_redirect_attached"), 1.0);
    node.detach();
    wait_until_true("the loss to be noticed", || admin(&agent, "/readyz").body.contains("was removed"));
    assert_eq!(admin(&agent, "/readyz").status, 503);
    assert_eq!(metric(&agent, "seawall_redirect_attached"), 0.0);
    wait_until_true("the loss to be told", || {
        !agent
            .log_lines_with_message("the redirect was removed; run `seawall-agent redirect attach`")
            .is_empty()
    });
    node.attach();
    assert_eq!(agent.wait_for_exit().code(), Some(1), "whoever started it starts it again");
    // What reads the log can be behind the agent's end.
    wait_until_true("the reason to be told", || {
        !agent
            .log_lines_with_message(
                "the redirect was attached again; the agent stops, so that Kubernetes restarts it",
            )
            .is_empty()
    });
    let _next = node.agent(FIRST);
    wait_until_true("the next agent", || cart.fetch(TOKEN).starts_with("200 "));
    node.check(&mut cart, "169.254.169.254");
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_does_not_start_where_nothing_is_attached_and_says_what_to_run() {
    let node = Node::bare(&[]);
    let output = node.command(FIRST).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && log.contains("seawall-agent redirect attach"), "{log}");
}

#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn an_agent_that_has_its_maps_open_keeps_no_capability() {
    let mut node = Node::start(&["cart"]);
    let agent = node.agent(FIRST);
    let mut cart = node.pod("cart", "cart");
    wait_until_true("the API server's word", || cart.fetch(EMAIL).starts_with("200 "));
    let kept = if seawall_redirect::every_map_use_needs_capability() {
        "0000008000000000"
    } else {
        "0000000000000000"
    };
    for (name, status) in agent.thread_names_and_statuses() {
        let expected = if name == "log" { "0000000000000000" } else { kept };
        for line in [
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "CapInh:\t0000000000000000",
            &format!("CapPrm:\t{expected}"),
            &format!("CapEff:\t{expected}"),
        ] {
            assert!(status.contains(line), "{name}: {line} in {status}");
        }
    }
}

/// Istio's ambient mode: a proxy of the node connects from the network of each pod that it serves.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_pod_behind_a_trusted_proxy_is_given_its_own_and_no_other_process_speaks_for_it() {
    let mut node = Node::start(&["cart", "search", "ztunnel", "evil"]);
    node.trust_proxy("ztunnel");
    let agent = node.agent(FIRST);
    let port = agent.first_listener_address().port();
    let (mut cart, mut search) = (node.pod("cart", "cart"), node.pod("search", "search"));
    let (mut proxy, mut evil) = (node.pod("ztunnel", "ztunnel"), node.pod("evil", "evil"));
    for pod in [&mut cart, &mut search, &mut proxy, &mut evil] {
        wait_until_true("the API server's word", || pod.fetch(EMAIL).starts_with("200 "));
        node.check(pod, "169.254.169.254");
    }
    for pod in [&cart, &search] {
        let mut inside = node.process_in_network_of(&proxy, pod);
        for _ in 0..3 {
            // The proxy dials what the pod's programs dialled: an address of the metadata server, or the agent to which the
            // programs have led the connection already.
            for (address, port) in [("169.254.169.254", 80), (ADDRESS, port)] {
                let answer = inside.ask(&format!("fetch {address} {port} {TOKEN}"));
                node.check_answer(&answer, &pod.account);
            }
        }
        let refused = node.process_in_network_of(&evil, pod).ask(&format!("fetch {METADATA} 80 {TOKEN}"));
        assert!(refused.starts_with("503 ") && refused.contains("no_connection_record"), "{refused}");
    }
    // The pod's own connections need no proof that the view of pods is current, as before.
    node.check(&mut cart, "169.254.169.254");
    assert_eq!(metric(&agent, "seawall_redirect_connections_without_record_total"), 2.0);
}

/// Without the list, the records of a proxy speak for nobody.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_proxy_that_is_not_in_the_list_speaks_for_nobody() {
    let mut node = Node::start(&["cart", "ztunnel"]);
    let _agent = node.agent(FIRST);
    let (mut cart, proxy) = (node.pod("cart", "cart"), node.pod("ztunnel", "ztunnel"));
    wait_until_true("the API server's word", || cart.fetch(EMAIL).starts_with("200 "));
    let refused = node.process_in_network_of(&proxy, &cart).ask(&format!("fetch {METADATA} 80 {TOKEN}"));
    assert!(refused.starts_with("503 ") && refused.contains("no_connection_record"), "{refused}");
}

const EGRESS: &str = "169.254.172.0/22";

/// On EKS's IPv6 clusters, every AWS SDK asks by IPv4 unless told otherwise, from an address that the network plugin chose.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn a_pod_of_an_ipv6_cluster_is_given_its_own_at_the_address_that_kubernetes_does_not_know() {
    let mut node = Node::start(&["cart", "search", "evil"]);
    node.become_ipv6();
    node.have_egress_range(EGRESS);
    let agent = node.agent(FIRST);
    let port = agent.first_listener_address().port();
    let ready = admin(&agent, "/readyz").body;
    assert!(ready.contains(&format!("[{GATEWAY6}]:{port} and {ADDRESS}:{port}\n")), "{ready}");
    let mut pods = ["cart", "search", "evil"].map(|name| node.ipv6_pod(name, name));
    for pod in &mut pods {
        for address in ["169.254.169.254", "fd00:ec2::254"] {
            let ask = format!("fetch {address} 80 {EMAIL}");
            wait_until_true("the API server's word", || pod.process.ask(&ask).starts_with("200 "));
            node.check(pod, address);
        }
    }
    let [cart, search, evil] = &mut pods;
    // A pod writes records with another's ends, before the other's connection.
    let address = cart.sandbox.as_ref().unwrap().address.to_string();
    let attacked = evil.process.ask(&format!("attack {address} 40000 {ADDRESS} {port}"));
    assert_eq!(attacked, format!("connected to {ADDRESS} {port}"));
    assert_eq!(cart.process.ask(&format!("hold {METADATA} 80 {address} 40000")), format!("{address} 40000"));
    node.check_answer(&cart.process.ask(&format!("fetch_held {TOKEN}")), "cart");
    assert_eq!(evil.process.ask("release"), "released");
    // A process of one pod in the network of another has a record under its own pod, and the route names the other one.
    let mut inside = node.process_in_network_of(evil, search);
    let refused = inside.ask(&format!("fetch {METADATA} 80 {TOKEN}"));
    assert!(refused.starts_with("503 ") && refused.contains("no_connection_record"), "{refused}");
    for pod in &mut pods {
        node.check(pod, "169.254.169.254");
    }
    assert_eq!(metric(&agent, "seawall_redirect_connects_total{outcome=\"no_family\"}"), 0.0);
}

/// The plugin gives the address, and the kernel the numbers of devices and of the namespace, to the next pod.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn the_next_pod_at_an_address_that_kubernetes_does_not_know_is_never_the_last_one() {
    let mut node = Node::start(&["cart", "next"]);
    node.become_ipv6();
    node.have_egress_range(EGRESS);
    let agent = node.agent(FIRST);
    let mut cart = node.ipv6_pod("cart", "cart");
    wait_until_true("the API server's word", || cart.fetch(EMAIL).starts_with("200 "));
    node.check(&mut cart, "169.254.169.254");
    let sandbox = node.end(cart).unwrap();
    // The API server has told of neither the end of the one nor the other.
    let (again, own) = node.ground.network.renew_egress_sandbox(&sandbox);
    assert_eq!(again.address, sandbox.address);
    let mut next = node.bound("next", "next", Some(again), &json!({}));
    for _ in 0..3 {
        let refused = next.fetch(TOKEN);
        assert!(refused.starts_with("503 ") && refused.contains("no_connection_record"), "{refused}");
    }
    node.ground.api.set_pod_status("cart", "Succeeded", &own.to_string());
    node.ground.api.set_pod_status("next", "Running", &own.to_string());
    wait_until_true("the API server's word", || next.fetch(EMAIL).starts_with("200 "));
    node.check(&mut next, "169.254.169.254");
    drop(agent);
}

/// Without the range, the agent has no IPv4 address on such a node, and the kernel refuses the connect.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn without_an_egress_range_a_pod_of_an_ipv6_cluster_is_refused_by_ipv4() {
    let mut node = Node::start(&["cart"]);
    node.become_ipv6();
    let agent = node.agent(FIRST);
    let mut cart = node.ipv6_pod("cart", "cart");
    let ask = format!("fetch fd00:ec2::254 80 {EMAIL}");
    wait_until_true("the API server's word", || cart.process.ask(&ask).starts_with("200 "));
    assert_eq!(cart.process.ask(&format!("ask connect {METADATA} 80")), "EPERM");
    assert_eq!(metric(&agent, "seawall_redirect_connects_total{outcome=\"no_family\"}"), 1.0);
}

/// The routes of a node with a bridge lead to the bridge, which is no pod.
#[test]
#[ignore = "SKIPPED: needs root and a real API server: run scripts/cluster-test"]
fn behind_a_bridge_a_pod_in_an_egress_range_is_refused_with_the_reason() {
    let mut node = Node::start(&["cart"]);
    node.have_egress_range("10.244.1.0/24");
    let agent = node.agent(FIRST);
    let mut cart = node.pod("cart", "cart");
    wait_until_true("the reason", || {
        let refused = cart.fetch(TOKEN);
        assert!(refused.starts_with("503 "), "{refused}");
        refused.contains("no_route_to_pod")
    });
    // An operator sees it without asking as a pod.
    let ready = admin(&agent, "/readyz").body;
    assert!(
        ready.contains("identity.egressRanges contains 1 address(es) that Kubernetes reports"),
        "{ready}"
    );
}
