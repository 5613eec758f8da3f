//! Start, stop, and starting again.

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use seawall_core::Clock;
use seawall_emulator::faults::Faults;
use seawall_emulator::google::GoogleEndpoint;

use crate::support::client::{self, Client, ConnectionEnd, format_get};
use crate::support::namespace::{self, Ground};
use crate::support::process::{Agent, run};
use crate::support::world::{CART, PAY, PROJECT, PROJECT_ID, Plan, TOKEN, World};
use crate::support::{PROGRAM, ip, wait_until_some, wait_until_true};

/// What Kubernetes' shortest grace periods leave; the agent promises to be gone within it.
const GRACE: Duration = Duration::from_secs(5);

fn slow(latency: Duration) -> Faults {
    Faults { latency, ..Faults::default() }
}

fn hanging() -> Faults {
    Faults { hang_rate: 1.0, ..Faults::default() }
}

/// A request for a cold token that has arrived upstream.
fn cold(world: &World) -> Client {
    let mut client = world.client(&CART);
    client.write_bytes(format_get(TOKEN));
    wait_until_true("the exchange to be under way", || {
        world.cloud.endpoint_request_counts(GoogleEndpoint::Exchange).in_flight == 1
    });
    client
}

#[test]
fn a_signal_drains_and_ends_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut world = World::start(&Plan::federate());
        world.cloud.set_faults_on(GoogleEndpoint::Exchange, slow(Duration::from_millis(800)));
        let mut idle = world.client(&PAY);
        assert_eq!(idle.ask(&format_get(PROJECT_ID)).status, 200);
        let mut cold = cold(&world);
        let clock = Clock::system();
        let asked = clock.now();
        world.agent.signal(signal);
        assert_eq!(idle.wait_for_end(), ConnectionEnd::Closed);
        let answer = cold.receive_answer();
        assert!(world.cloud.read_access_token(&answer.token()).is_some());
        assert_eq!(answer.header("connection"), "close");
        assert_eq!(cold.wait_for_end(), ConnectionEnd::Closed);
        assert_eq!(world.agent.wait_for_exit().code(), Some(0));
        assert!(clock.now().since(asked) < GRACE);
        assert!(
            Client::try_connect(CART.at, world.agent.first_listener_address()).is_err(),
            "nobody listens"
        );
        // The process is gone, but who reads its log may still be at the lines before.
        wait_until_true("its last line", || world.agent.log_lines_with_message("stopped").len() == 1);
    }
}

/// Requests that had arrived when the stop began used to be answered with a reset.
#[test]
fn what_has_arrived_before_the_signal_is_answered() {
    let mut world = World::start(&Plan::federate());
    let mut kept: Vec<_> = (0..40).map(|_| world.client(&CART)).collect();
    for client in &mut kept {
        assert_eq!(client.ask(&format_get(PROJECT_ID)).status, 200);
    }
    let mut silent = world.client(&PAY);
    assert_eq!(silent.ask(&format_get(PROJECT_ID)).status, 200);
    // The kernel takes connections and requests while the agent sleeps.
    world.agent.signal(Signal::STOP);
    kept.iter_mut().for_each(|client| client.write_bytes(format_get(PROJECT_ID)));
    let mut new: Vec<_> = (0..40).map(|_| world.client(&CART)).collect();
    new.iter_mut().for_each(|client| client.write_bytes(format_get(PROJECT_ID)));
    world.agent.signal(Signal::TERM);
    world.agent.signal(Signal::CONT);
    for mut client in kept.into_iter().chain(new) {
        assert_eq!(client.receive_answer().status, 200);
        assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
    }
    assert_eq!(silent.wait_for_end(), ConnectionEnd::Closed);
    assert_eq!(world.agent.wait_for_exit().code(), Some(0));
}

/// Idle connections used to stay open until the slowest of the others had ended, and what was sent on them was lost.
#[test]
fn idle_connections_are_closed_while_others_are_still_under_way() {
    let mut world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    let mut idle = world.client(&PAY);
    assert_eq!(idle.ask(&format_get(PROJECT_ID)).status, 200);
    let mut half = world.client(&CART);
    half.write_bytes("GET / HT");
    wait_until_true("both to be there", || world.metric("seawall_connections_open") >= 2.0);
    let clock = Clock::system();
    let asked = clock.now();
    world.agent.signal(Signal::TERM);
    assert_eq!(idle.wait_for_end(), ConnectionEnd::Closed);
    // The half head has the drain's 4 s.
    assert!(clock.now().since(asked) < Duration::from_secs(3));
    assert_eq!(world.agent.wait_for_exit().code(), Some(0));
}

/// A connection whose long answer ended during the drain used to be kept until the drain's end.
#[test]
fn a_connection_that_has_its_last_answer_does_not_prolong_the_drain() {
    let mut world = World::start(&Plan::conceal());
    world.cloud.set_instance_attribute("long", &"x".repeat(300 << 10));
    let mut client = world.client(&CART);
    client.write_bytes(format_get("/computeMetadata/v1/instance/attributes/long"));
    // It is on its way, and its head said that the connection is kept.
    wait_until_true("the answer to begin", || client.stream.peek(&mut [0]).is_ok_and(|n| n > 0));
    let clock = Clock::system();
    let asked = clock.now();
    world.agent.signal(Signal::TERM);
    wait_until_true("the drain to begin", || !world.agent.log_lines_with_message("stopping").is_empty());
    assert_eq!(client.receive_answer().body.len(), 300 << 10);
    assert_eq!(client.wait_for_end(), ConnectionEnd::Closed);
    assert_eq!(world.agent.wait_for_exit().code(), Some(0));
    // The drain would have lasted 4 s.
    assert!(clock.now().since(asked) < Duration::from_secs(3));
}

/// The handlers used to be installed after the agent had said that it serves.
#[test]
fn a_signal_that_comes_at_once_is_obeyed() {
    let world = World::start(&Plan::federate());
    for _ in 0..20 {
        assert_eq!(Agent::start(PROGRAM, &world.files.config()).stop().code(), Some(0));
    }
}

#[test]
fn what_does_not_finish_is_cut_within_the_grace_period() {
    let mut world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    // A head under way is not idle, and this one never ends.
    let mut head = world.client(&CART);
    head.write_bytes("GET / HT");
    wait_until_true("the connection to be accepted", || world.metric("seawall_connections_open") >= 1.0);
    let clock = Clock::system();
    let asked = clock.now();
    assert_eq!(world.agent.stop().code(), Some(0));
    assert!(clock.now().since(asked) < GRACE);
}

#[test]
fn a_second_signal_does_not_wait_for_the_drain() {
    let mut world = World::start(&Plan::federate());
    world.cloud.set_faults_on(GoogleEndpoint::Exchange, hanging());
    let _cold = cold(&world);
    let clock = Clock::system();
    world.agent.signal(Signal::TERM);
    wait_until_true("the drain to begin", || !world.agent.log_lines_with_message("stopping").is_empty());
    let again = clock.now();
    world.agent.signal(Signal::TERM);
    assert_eq!(world.agent.wait_for_exit().code(), Some(1));
    // The drain would have lasted 4 s.
    assert!(clock.now().since(again) < Duration::from_secs(3));
}

#[test]
fn killed_and_started_again_it_serves_within_a_second() {
    let mut world = World::start(&Plan::federate());
    let address = world.agent.first_listener_address();
    let plan = Plan { listen: vec![address], ..Plan::federate() };
    world.files.write("agent.yaml", &plan.yaml(world.cloud.address()));
    let clock = Clock::system();
    // The best of three: the machine may be busy with something else for a moment.
    let quickest = (0..3).map(|_| {
        let mut kept = world.client(&CART);
        assert_eq!(kept.ask(&format_get(TOKEN)).status, 200);
        world.agent.signal(Signal::KILL);
        world.agent.wait_for_exit();
        let killed = clock.now();
        world.agent = Agent::start(PROGRAM, &world.files.config());
        assert_eq!(world.ask(&CART, TOKEN).status, 200);
        clock.now().since(killed)
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

#[test]
fn no_thread_has_privileges_or_can_gain_any_or_make_calls_that_agents_do_not() {
    let world = World::start(&Plan::federate().threads("2"));
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    let threads = world.agent.thread_names_and_statuses();
    assert!(threads.len() >= 3, "control and two traffic threads: {threads:?}");
    const NONE_INHERITABLE: &str = "CapInh:\t0000000000000000";
    const NONE_PERMITTED: &str = "CapPrm:\t0000000000000000";
    const NONE_EFFECTIVE: &str = "CapEff:\t0000000000000000";
    for (name, status) in threads {
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2", NONE_INHERITABLE, NONE_PERMITTED, NONE_EFFECTIVE] {
            assert!(status.contains(line), "{name}: {line} in {status}");
        }
    }
}

/// A reader of the log that goes away used to take the agent with it.
#[test]
fn an_agent_whose_log_nobody_reads_any_more_goes_on() {
    let world = World::start(&Plan::federate());
    let mut child =
        crate::support::process::command(PROGRAM, &["--config", world.files.config().to_str().unwrap()]);
    let mut agent = Agent::wait_until_serving(child.stderr(Stdio::piped()).spawn().unwrap());
    let address = agent.first_listener_address();
    // Each fetch is a log line: the last one that is read, and the first one that is not.
    agent.close_log_pipe(|| assert_eq!(client::ask(CART.at, address, TOKEN).status, 200));
    assert_eq!(client::ask(PAY.at, address, TOKEN).status, 200);
    world.cloud.set_faults(&Faults { error_rate: 1.0, ..Faults::default() });
    let path = crate::support::world::token_for("devstorage.read_only");
    assert_eq!(
        client::ask(CART.at, agent.first_listener_address(), &path).status_and_refusal_code(),
        (503, "upstream_unavailable")
    );
    world.cloud.set_faults(&Faults::default());
    wait_until_true("recovery", || client::ask(CART.at, agent.first_listener_address(), &path).status == 200);
    assert_eq!(client::ask(ip(1), agent.admin_address, "/healthz").status, 200);
    assert_eq!(agent.stop().code(), Some(0));
}

/// A full pipe, whose other end is held and not read.
fn full() -> (OwnedFd, Stdio) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let room = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    assert_eq!(rustix::io::write(&writer, &vec![b'x'; room]).unwrap(), room);
    (reader, writer.into())
}

/// An agent whose log is read up to the line that says where it serves.
fn with_stalled_log(world: &World) -> (Agent, ChildStderr) {
    let mut command =
        crate::support::process::command(PROGRAM, &["--config", world.files.config().to_str().unwrap()]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&stderr, 4096).unwrap();
    let mut log = Vec::new();
    while !log.windows(9).any(|bytes| bytes == b"\"serving\"") || !log.ends_with(b"\n") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        log.push(byte[0]);
    }
    (Agent::adopt_running(child, &String::from_utf8(log).unwrap()), stderr)
}

/// Lines lost, as the agent's metrics have it.
fn lost(agent: &Agent) -> u64 {
    let metrics = client::ask(ip(1), agent.admin_address, "/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("seawall_log_lines_dropped_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// The agent stopped for good at a full pipe: cold credentials were 503, the admin port was dead, SIGTERM ended nothing.
#[test]
fn a_log_reader_that_stalls_costs_log_lines_and_nothing_else() {
    let world = World::start(&Plan::federate());
    let (mut agent, mut stderr) = with_stalled_log(&world);
    // Each ignored signal is a line.
    wait_until_true("lines to be lost", || {
        for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::QUIT] {
            agent.signal(signal);
        }
        lost(&agent) > 0
    });
    assert_eq!(client::ask(CART.at, agent.first_listener_address(), TOKEN).status, 200);
    assert_eq!(client::ask(ip(1), agent.admin_address, "/readyz").status, 200);
    // Somebody reads again, and is told.
    let before = lost(&agent);
    let mut log = String::new();
    let mut bytes = [0; 4096];
    while !log.contains("log lines were dropped") {
        let n = stderr.read(&mut bytes).unwrap();
        assert!(n > 0, "{log}");
        log.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    let line = log.lines().find(|line| line.contains("log lines were dropped")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line["fields"]["dropped"].as_u64().unwrap() >= before, "{line}");
    assert_eq!(agent.stop().code(), Some(0));
}

#[test]
fn nobody_who_does_not_read_keeps_the_agent_from_its_end() {
    let world = World::start(&Plan::federate());
    let (mut agent, _stderr) = with_stalled_log(&world);
    wait_until_true("lines to be lost", || {
        agent.signal(Signal::HUP);
        agent.signal(Signal::QUIT);
        lost(&agent) > 0
    });
    let clock = Clock::system();
    let asked = clock.now();
    assert_eq!(agent.stop().code(), Some(0));
    assert!(clock.now().since(asked) < GRACE);

    // Nor from a complaint: the pipe is full before it starts.
    let (_reader, writer) = full();
    let mut check = crate::support::process::command(PROGRAM, &["check", "--config", "/nowhere/agent.yaml"]);
    let mut check = check.stderr(writer).spawn().unwrap();
    let ended = wait_until_some("the complaint to be given up", || check.try_wait().unwrap());
    assert_eq!(ended.code(), Some(1));
}

/// They ended the agent without a drain.
#[test]
fn signals_that_ask_for_no_end_are_named_and_ignored() {
    let mut world = World::start(&Plan::federate());
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2"), (Signal::QUIT, "SIGQUIT")] {
        world.agent.signal(signal);
        wait_until_true(name, || world.agent.log().contains(name));
    }
    world.agent.signal(Signal::PIPE);
    assert_eq!(world.ask(&CART, TOKEN).status, 200);
    assert_eq!(world.agent.stop().code(), Some(0));
}

/// Below a soft limit of 1,024, which shells and some runtimes set, most of `limits.connections` was a promise in vain.
#[test]
fn a_soft_limit_on_descriptors_is_no_limit_on_connections() {
    let world = World::start(&Plan::federate().limits("headerTimeout: 1m"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 64 && exec \"$0\" --config \"$1\"", env!("CARGO_BIN_EXE_seawall-agent")]);
    let shell = shell.arg(world.files.config()).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let agent = Agent::wait_until_serving(shell);
    let mut clients: Vec<_> =
        (0..200).map(|_| Client::connect(CART.at, agent.first_listener_address())).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&format_get(PROJECT_ID)).body, PROJECT);
    }
    assert!(
        clients.iter().all(Client::is_open_without_unread_bytes),
        "none was closed to make room for another"
    );
}

/// It was said at the level of `debug` alone.
#[test]
fn that_connections_cannot_be_accepted_is_a_warning() {
    let world = World::start(&Plan::federate().threads("1"));
    // A thread that has answered has all descriptors that it needs to run.
    assert_eq!(world.client(&CART).ask(&format_get(TOKEN)).status, 200);
    let pid = i32::try_from(world.agent.proc_status_kib("Pid")).ok().and_then(Pid::from_raw);
    let few = Rlimit { current: Some(8), maximum: Some(8) };
    prlimit(pid, Resource::Nofile, few).unwrap();
    let mut waiting = world.client(&CART);
    waiting.write_bytes("G");
    wait_until_true("the warning", || world.agent.log().contains("cannot accept connections"));
}

/// The end of a runtime waits for its blocking threads, and a name look-up is one.
#[test]
fn a_name_look_up_that_hangs_does_not_delay_the_end() {
    let ground = namespace::enter("lifecycle::a_name_look_up_that_hangs_does_not_delay_the_end");
    if ground != Ground::Sealed {
        // Passed inside; or no namespace may be made here, and the machine's own name servers are not for this.
        return;
    }
    let _silent = silent_name_servers();
    let world = World::start(&Plan::federate());
    let yaml = Plan::federate().yaml(world.cloud.address());
    let sts = format!("stsUrl: \"http://{}\"", world.cloud.address());
    let yaml = yaml.replace(&sts, "stsUrl: \"https://sts.seawall.example\"");
    world.files.write("agent.yaml", &yaml);
    let mut child =
        crate::support::process::command(PROGRAM, &["--config", world.files.config().to_str().unwrap()]);
    // resolv.conf(5): one look-up takes a minute.
    child.env("RES_OPTIONS", "timeout:30 attempts:2").stderr(Stdio::piped());
    let mut agent = Agent::wait_until_serving(child.spawn().unwrap());
    let mut client = Client::connect(CART.at, agent.first_listener_address());
    client.write_bytes(format_get(TOKEN));
    wait_until_some("the look-up to hang", || {
        agent.thread_names_and_statuses().iter().any(|(name, _)| name.starts_with("tokio")).then_some(())
    });
    let clock = Clock::system();
    let asked = clock.now();
    agent.stop();
    assert!(clock.now().since(asked) < GRACE);
}

/// Every name server of this machine, here: bound, and answering nothing.
fn silent_name_servers() -> Vec<UdpSocket> {
    let resolv = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let named = resolv.lines().filter_map(|line| line.strip_prefix("nameserver ")?.trim().parse().ok());
    let mut servers: Vec<std::net::Ipv4Addr> = named.collect();
    // What resolv.conf(5) says of a file that names none.
    servers.push(ip(1));
    servers.retain(|server| !server.is_unspecified());
    servers.dedup();
    let bind = |server: &std::net::Ipv4Addr| {
        if !server.is_loopback() {
            namespace::ip(&format!("address add {server}/32 dev lo"));
        }
        UdpSocket::bind(SocketAddr::from((*server, 53))).unwrap()
    };
    servers.iter().map(bind).collect()
}

/// Two agents of two pods on the node's network, as in an upgrade.
#[test]
fn two_agents_share_an_admin_address_in_turn_and_each_is_asked_at_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = |name: &str| {
        let path = folder.path().join(format!("{name}.yaml"));
        let text = format!(
            "listen: [\"127.0.0.1:0\"]\nadmin: \"{admin}\"\nadminSocket: {name}.sock\n\
             identity: {{ strategy: static, file: pods.yaml }}\naws: {{ region: eu-west-1 }}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    };
    let pods = "pods:\n  - { address: 10.4.0.7, namespace: shop, pod: cart-0, serviceAccount: cart, tokenFile: token }\n";
    std::fs::write(folder.path().join("pods.yaml"), pods).unwrap();
    let (old, new) = (config("old"), config("new"));
    let ask = |word: &str, config: &Path| run(PROGRAM, &[word, "--config", config.to_str().unwrap()]);
    let absent = ask("probe", &new);
    assert_eq!(absent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("new.sock"), "{absent:?}");

    let mut first = Agent::start(PROGRAM, &old);
    let second = Agent::start(PROGRAM, &new);
    let readyz = || client::ask(ip(1), admin, "/readyz").status;
    assert_eq!(readyz(), 200);
    for config in [&old, &new] {
        assert!(ask("probe", config).status.success());
        let status = ask("status", config);
        let told = String::from_utf8_lossy(&status.stdout);
        assert!(told.starts_with("ready\n") && told.contains("shop/cart-0  10.4.0.7  as cart"), "{told}");
    }
    assert_eq!(
        second.log_lines_with_message("the admin address is free; the agent serves there now").len(),
        0
    );
    first.stop();
    wait_until_true("the next agent to have the address", || {
        second.log_lines_with_message("the admin address is free; the agent serves there now").len() == 1
    });
    assert_eq!(readyz(), 200);
    assert_eq!(ask("probe", &old).status.code(), Some(1));
}
