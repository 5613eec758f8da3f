//! `doctor` as it is typed, on machines with a planted fault: network namespaces that have loopback alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a test that cannot be held here says so")]

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};

use seawall_testkit::waiting::wait_until_true;
use serde_json::Value;

fn seawall(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

/// Set inside a namespace.
const INSIDE: &str = "SEAWALL_TEST_NAMESPACE";

/// Whether the test of this name is in a namespace of its own, with loopback alone. If it is not, it is started again in one, where
/// this machine lets anybody make one; what follows is for inside.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        return true;
    }
    let unshare = |program: &std::ffi::OsStr, words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--"]).arg(program).args(words).env(INSIDE, "1").stdin(Stdio::null()).output()
    };
    if !unshare("true".as_ref(), &[]).is_ok_and(|output| output.status.success()) {
        eprintln!("{test}: no network namespace can be made here (unshare --net is refused)");
        return false;
    }
    let inside =
        unshare(std::env::current_exe().unwrap().as_os_str(), &[test, "--exact", "--nocapture"]).unwrap();
    let said = [&inside.stdout[..], &inside.stderr].map(String::from_utf8_lossy).concat();
    assert!(inside.status.success() && said.contains("1 passed"), "inside its namespace:\n{said}");
    false
}

fn set(setting: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{setting}"), value).unwrap();
}

/// What a check finds under a name: the status and the whole of it.
fn finding(check: &str, id: &str) -> (String, Value) {
    let output = seawall(&format!("doctor {check} --json -"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut findings = report["findings"].as_array().unwrap().iter();
    let finding = findings.find(|finding| finding["id"] == id).unwrap().clone();
    (finding["status"].as_str().unwrap().to_owned(), finding)
}

fn status(check: &str, id: &str) -> String {
    finding(check, id).0
}

#[test]
fn checks_are_listed_and_one_that_is_not_known_is_refused() {
    let list = seawall("doctor --list");
    assert!(list.status.success());
    assert!(String::from_utf8(list.stdout).unwrap().contains("ports.range ports.use"));
    let refused = seawall("doctor port");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("'port'") && said.contains("unknown check: expected one of ports"), "{said}");
}

/// It ended with 1 and a message, as if a file could not be used.
#[test]
fn a_reader_that_has_seen_enough_is_no_mistake_and_the_verdict_is_the_exit_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command
        .args(["doctor", "ports", "sockets"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!([0, 8, 9, 10].contains(&output.status.code().unwrap()), "{:?}", output.status);
}

#[test]
fn a_name_that_cannot_be_looked_up_is_refused_before_anything_is_asked() {
    let refused = seawall("doctor dns --lookup a.example --lookup a..b");
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("'a..b'") && said.contains("not a valid name"), "{said}");
}

#[test]
fn a_configuration_that_is_no_small_regular_file_is_refused_and_not_waited_for() {
    let room = tempfile::tempdir().unwrap();
    let place = |name: &str| room.path().join(name);
    rustix::fs::mknodat(rustix::fs::CWD, place("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::fs::write(place("large"), "nameserver 127.0.0.1\n".repeat(10_000)).unwrap();
    for (name, why) in [
        ("fifo", "is a FIFO, expected a regular file"),
        ("/dev/zero", "is a device, expected a regular file"),
        ("large", "is larger than 65536 bytes"),
    ] {
        let refused = seawall(&format!("doctor dns --resolv-conf {}", place(name).display()));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_name_server_to_which_there_is_no_way_is_told_with_the_systems_word() {
    if !is_inside("a_name_server_to_which_there_is_no_way_is_told_with_the_systems_word") {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let configuration = room.path().join("resolv.conf");
    std::fs::write(&configuration, "nameserver 10.0.0.7\n").unwrap();
    let check = format!("dns --lookup a.example --resolv-conf {}", configuration.display());
    for id in ["dns.servers", "dns.lookup"] {
        let (status, found) = finding(&check, id);
        assert_eq!(status, "error", "{found}");
        assert!(found["reason"].as_str().unwrap().contains("network unreachable"), "{found}");
    }
}

#[test]
fn findings_are_written_for_programs_and_shown_beside_them() {
    let output = seawall("doctor ports --json -");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["kind"], &report["version"]), (&"doctor".into(), &1.into()));
    let worst = report["status"].as_str().unwrap();
    let code = [("ok", 0), ("unknown", 8), ("error", 9), ("warning", 10)]
        .into_iter()
        .find(|(name, _)| *name == worst);
    assert_eq!(output.status.code(), code.map(|(_, code)| code));
    assert!(String::from_utf8(output.stderr).unwrap().contains("ports.range"));
}

#[test]
fn a_range_of_ports_that_is_short_and_used_up_is_found_in_the_kernel_and_a_usual_one_is_not() {
    if !is_inside("a_range_of_ports_that_is_short_and_used_up_is_found_in_the_kernel_and_a_usual_one_is_not")
    {
        return;
    }
    assert_eq!(status("ports", "ports.range"), "ok");
    set("ipv4/ip_local_port_range", "20000 20299");
    set("ipv4/tcp_tw_reuse", "0");
    assert_eq!(status("ports", "ports.range"), "warning");
    let listener = TcpListener::bind("127.0.0.1:1000").unwrap();
    let open = |_| {
        let client = TcpStream::connect("127.0.0.1:1000").unwrap();
        (client, listener.accept().unwrap())
    };
    let mut held: Vec<_> = (0..100).map(open).collect();
    assert_eq!(status("ports", "ports.use"), "ok");
    held.extend((0..180).map(open));
    let (status, found) = finding("ports", "ports.use");
    assert_eq!((status.as_str(), found["measurements"][0]["value"].as_f64()), ("error", Some(280.0)));
    assert!(found["fix"].as_str().unwrap().starts_with("share connections"), "{found}");
    // Closed by the clients first, which keep the ports.
    for (client, accepted) in held {
        drop(client);
        drop(accepted);
    }
    let (status, found) = finding("ports", "ports.use");
    assert_eq!((status.as_str(), found["measurements"][2]["value"].as_f64()), ("error", Some(280.0)));
    assert!(found["reason"].as_str().unwrap().contains("5 new connections/s"), "{found}");
}

#[test]
fn a_listener_that_accepts_nothing_is_found_in_the_kernel_and_one_that_does_is_not() {
    if !is_inside("a_listener_that_accepts_nothing_is_found_in_the_kernel_and_one_that_does_is_not") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:1000").unwrap();
    let statuses = || ["sockets.listen", "sockets.backlog"].map(|id| status("sockets", id));
    let clients: Vec<_> = (0..5).map(|_| TcpStream::connect("127.0.0.1:1000").unwrap()).collect();
    assert_eq!(statuses(), ["ok", "warning"]);
    let accepted: Vec<_> = clients.iter().map(|_| listener.accept().unwrap()).collect();
    assert_eq!(statuses(), ["ok", "ok"]);
    drop(accepted);
    set("core/somaxconn", "16");
    assert_eq!(statuses(), ["ok", "warning"]);
}

/// Answers at port 53 until the test ends: names of the cluster do not exist, each other has an address.
fn serve_names() {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let mut message = buffer[..length].to_vec();
            (message[2], message[3]) = (0x81, 0x80);
            if message.windows(5).any(|part| part == b"local") {
                message[3] = 0x83;
            } else {
                let kind = message[length - 3];
                let size = if kind == 1 { 4 } else { 16 };
                message[7] = 1;
                message.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, size]);
                message.extend(std::iter::repeat_n(1, usize::from(size)));
            }
            socket.send_to(&message, peer).unwrap();
        }
    });
}

#[test]
fn a_lookup_of_a_pod_takes_eight_questions_on_the_wire_and_with_a_dot_behind_the_name_two() {
    if !is_inside("a_lookup_of_a_pod_takes_eight_questions_on_the_wire_and_with_a_dot_behind_the_name_two") {
        return;
    }
    serve_names();
    let room = tempfile::tempdir().unwrap();
    let configuration = room.path().join("resolv.conf");
    let text = "nameserver 127.0.0.1\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";
    std::fs::write(&configuration, text).unwrap();
    let look_up = |name: &str| {
        let check = format!("dns --lookup {name} --resolv-conf {}", configuration.display());
        // A machine so busy that an answer was late is asked again.
        let mut told = (0..100).map(|_| finding(&check, "dns.lookup"));
        let is_late = |found: &Value| {
            found["reason"].as_str().is_some_and(|why| why.contains("got no response within"))
        };
        let (status, found) = told.find(|(_, found)| !is_late(found)).unwrap();
        (status, found["measurements"][0]["value"].as_f64())
    };
    assert_eq!(look_up("api.example.com"), ("warning".to_owned(), Some(8.0)));
    assert_eq!(look_up("api.example.com."), ("ok".to_owned(), Some(2.0)));
}

/// Nobody was asked, and it was an error.
#[test]
fn where_no_name_server_is_named_the_one_on_this_machine_is_asked() {
    if !is_inside("where_no_name_server_is_named_the_one_on_this_machine_is_asked") {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let configuration = room.path().join("resolv.conf");
    std::fs::write(&configuration, "# none\n").unwrap();
    let check = format!("dns --lookup api.example.com --resolv-conf {}", configuration.display());
    let (status, found) = finding(&check, "dns.servers");
    assert!(status == "error" && found["fix"].as_str().unwrap().starts_with("set a name server"), "{found}");
    serve_names();
    let (_, found) = finding(&check, "dns.servers");
    assert!(
        found["text"].as_str().unwrap().contains("asks a name server on this machine: 127.0.0.1 answered"),
        "{found}"
    );
    let (_, found) = finding(&check, "dns.lookup");
    assert!(found["text"].as_str().unwrap().contains("tried: api.example.com."), "{found}");
}

/// A program that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts Envoy as a sidecar of Istio's that may use two cores, before a server at 127.0.0.1:1000; it answers when this returns.
fn envoy(room: &std::path::Path, workers: u32, limits: &str) -> Running {
    let configuration = room.join("envoy.yaml");
    let text = include_str!("envoy.yaml").replace("LIMITS", limits).replace("WORKERS", &workers.to_string());
    std::fs::write(&configuration, text).unwrap();
    // It becomes Envoy itself, so that its end is Envoy's.
    let mut command =
        Command::new(seawall_testkit::installed_test_parts::cached_test_part_path("envoy/bin/envoy"));
    command.arg("-c").arg(configuration).args(["--concurrency", &workers.to_string()]);
    command.args(["--log-level", "error", "--use-dynamic-base-id"]).stdin(Stdio::null());
    let running = Running(command.spawn().unwrap());
    wait_until_true("Envoy's admin port", || TcpStream::connect("127.0.0.1:15000").is_ok());
    wait_until_true("Envoy to be live", || status("sidecar", "sidecar.envoy") == "ok");
    running
}

/// A client's GET through Envoy: the status line.
fn through_envoy() -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect("127.0.0.1:15001").unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Answers so many connections with 200, each once all of them are there.
fn answers_together(listener: &TcpListener, count: usize) {
    use std::io::{Read as _, Write as _};
    let all: Vec<_> = (0..count).map(|_| listener.accept().unwrap().0).collect();
    for mut stream in all {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    }
}

#[test]
fn one_worker_and_narrow_limits_are_found_in_a_real_envoy_and_wide_ones_are_fine() {
    if !is_inside("one_worker_and_narrow_limits_are_found_in_a_real_envoy_and_wide_ones_are_fine") {
        return;
    }
    assert_eq!(seawall("doctor sidecar").status.code(), Some(0), "no sidecar is no complaint");
    let room = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:1000").unwrap();
    let statuses = || {
        let output = seawall("doctor sidecar --json -");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        let told = findings.filter(|finding| finding["status"] != "ok");
        told.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // A request holds the only connection, a second waits for it, a third is refused.
    let narrow = envoy(room.path(), 1, "{max_connections: 1, max_pending_requests: 1}");
    let answers = std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let client = || {
            let tell = tell.clone();
            scope.spawn(move || tell.send(through_envoy()).unwrap());
        };
        client();
        let (mut held, _) = server.accept().unwrap();
        client();
        client();
        let refused = told.recv().unwrap();
        std::io::Write::write_all(
            &mut held,
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
        .unwrap();
        drop(held);
        answers_together(&server, 1);
        [refused, told.recv().unwrap(), told.recv().unwrap()]
    });
    assert_eq!(answers, ["HTTP/1.1 503 Service Unavailable", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK"]);
    let told = statuses();
    assert!(told.starts_with(&["sidecar.workers".to_owned(), "sidecar.pending".to_owned()]), "{told:?}");
    drop(narrow);
    let _wide = envoy(room.path(), 2, "{max_connections: 1024}");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(through_envoy)).collect();
        answers_together(&server, 2);
        assert!(clients.into_iter().all(|client| client.join().unwrap() == "HTTP/1.1 200 OK"));
    });
    assert_eq!(statuses(), Vec::<String>::new());
}

/// An emulated cloud that ends with the test; it answers when this returns.
fn emulated(cloud: &str, address: &str, words: &str, room: &std::path::Path) -> Running {
    use std::io::BufRead as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["emulate", cloud, "--json", "--listen", address]).args(words.split_whitespace());
    command
        .arg("--demo-pods")
        .arg(room.join(address))
        .arg("shop/cart")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    Running(child)
}

/// What is not ok, of all that `doctor identity` says with this environment; it shows no credential.
fn identity(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command
        .args(["doctor", "identity", "--json", "-"])
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    // What the emulated clouds' tokens and keys begin with.
    assert!(["ya29.", "ASIA", "eyJ"].iter().all(|begin| !said.contains(begin)), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["status"] != "ok");
    let word = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    // A machine so busy that an answer was late is no fault of the server.
    findings
        .filter(|finding| finding["id"] != "identity.latency")
        .map(|finding| (word(finding, "id"), word(finding, "status")))
        .collect()
}

#[test]
fn emulated_metadata_servers_are_found_where_sdks_find_them_with_what_they_lend() {
    if !is_inside("emulated_metadata_servers_are_found_where_sdks_find_them_with_what_they_lend") {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    assert_eq!(identity(&[]), [], "no server is no complaint");
    let pod = ("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let told = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(id, status)| ((*id).to_owned(), (*status).to_owned())).collect()
    };
    let google = emulated("google", "127.0.0.1:1001", "", room.path());
    let google_host = ("GCE_METADATA_HOST", "127.0.0.1:1001");
    assert_eq!(identity(&[google_host]), []);
    assert_eq!(identity(&[google_host, pod]), told(&[("identity.node", "warning")]));
    drop(google);
    assert_eq!(identity(&[google_host]), told(&[("identity.servers", "error")]));
    let short = emulated("google", "127.0.0.1:1002", "--token-lifetime 200s", room.path());
    assert_eq!(identity(&[("GCE_METADATA_HOST", "127.0.0.1:1002")]), told(&[("identity.life", "warning")]));
    drop(short);
    // Where SDKs look by themselves.
    let status = Command::new("ip").args(["address", "add", "169.254.169.254/32", "dev", "lo"]).status();
    assert!(status.unwrap().success());
    let aws = emulated("aws", "169.254.169.254:80", "", room.path());
    assert_eq!(identity(&[]), []);
    assert_eq!(identity(&[pod]), told(&[("identity.node", "warning")]));
    drop(aws);
    let _thrashing = emulated("aws", "169.254.169.254:80", "--session-lifetime 15m", room.path());
    assert_eq!(identity(&[]), told(&[("identity.life", "error")]));
}
