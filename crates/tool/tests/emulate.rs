//! `seawall emulate` as a script uses it: start, wait without sleeping, ask, end.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use seawall_cause::class::CauseClass;
use serde_json::Value;

fn seawall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.arg("emulate").args(args);
    command
}

fn run(args: &[&str]) -> Output {
    seawall(args).output().unwrap()
}

/// A folder of this test alone, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A running emulator; killed when dropped, so that a failing test leaves nothing behind.
struct Emulator {
    child: Child,
    ready: Value,
}

impl Emulator {
    fn start(cloud: &str, args: &[&str]) -> Self {
        let args = [&[cloud, "--listen", "127.0.0.1:0", "--json"], args].concat();
        let mut child = seawall(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, ready: serde_json::from_str(&line).unwrap() }
    }

    fn text(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap()
    }

    fn get(&self, path: &str) -> String {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nhost: m\r\nmetadata-flavor: Google\r\nconnection: close\r\n\r\n"
        ))
    }

    fn post(&self, path: &str, form: &str) -> String {
        let length = form.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: m\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n{form}"
        ))
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.text("address")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end_by(mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_emulated_google_says_where_it_is_and_ends_with_zero() {
    for signal in ["TERM", "INT"] {
        let folder = folder(&format!("google-{signal}"));
        let (pods, ready) = (folder.join("pods"), folder.join("ready.json"));
        std::fs::write(&ready, "an earlier run's").unwrap();
        let google = Emulator::start(
            "google",
            &[
                "--demo-pods",
                pods.to_str().unwrap(),
                "reef/coral",
                "deep/squid=ink@p.iam.gserviceaccount.com",
                "-ready-file",
                ready.to_str().unwrap(),
                "-node",
                "node-7",
            ],
        );
        let told: Value = serde_json::from_str(&std::fs::read_to_string(&ready).unwrap()).unwrap();
        assert_eq!(told, google.ready);
        assert!(google.get("/computeMetadata/v1/instance/name").ends_with("\r\n\r\nnode-7"));
        assert!(google.get("/emulator/counts").contains("\"exchanges\":{}"));
        let tokens = google.ready["pods"].as_array().unwrap();
        assert_eq!(tokens[1]["account"], "ink@p.iam.gserviceaccount.com");
        for token in tokens {
            let file = Path::new(token["token_file"].as_str().unwrap());
            assert_eq!((mode(file), std::fs::read_to_string(file).unwrap().matches('.').count()), (0o600, 2));
        }
        assert_eq!(google.end_by(signal), Some(0));
        assert!(!ready.exists());
    }
}

#[test]
fn an_emulated_aws_says_where_it_is_gives_roles_to_its_pods_and_ends_with_zero() {
    let folder = folder("aws");
    let (pods, keys) = (folder.join("pods"), folder.join("kiam.keys"));
    let user = format!("kiam={}", keys.display());
    let aws = Emulator::start(
        "aws",
        &[
            "--demo-pods",
            pods.to_str().unwrap(),
            "reef/coral",
            "deep/squid=arn:aws:iam::210987654321:role/ink",
            "--user",
            &user,
            "--without-tokens",
            "--fractions",
        ],
    );
    let told = aws.ready["pods"].as_array().unwrap();
    assert_eq!(told[0]["role"], "arn:aws:iam::123456789012:role/coral");
    assert_eq!(told[1]["role"], "arn:aws:iam::210987654321:role/ink");
    assert_eq!((mode(&keys), mode(Path::new(told[0]["token_file"].as_str().unwrap()))), (0o600, 0o600));
    assert!(std::fs::read_to_string(&keys).unwrap().starts_with("[default]\naws_access_key_id = AKIA"));
    assert!(aws.get("/latest/meta-data/iam/security-credentials/").ends_with("\r\n\r\nnode"));
    let assume = |pod: usize, role: usize| {
        let token = std::fs::read_to_string(told[pod]["token_file"].as_str().unwrap()).unwrap();
        let role = told[role]["role"].as_str().unwrap();
        aws.post("/", &format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={role}&RoleSessionName=test&WebIdentityToken={token}"
        ))
    };
    let own = assume(1, 1);
    assert!(own.contains("<Arn>arn:aws:sts::210987654321:assumed-role/ink/test</Arn>"), "{own}");
    assert!(own.contains(".250Z</Expiration>"), "{own}");
    assert!(assume(0, 1).starts_with("HTTP/1.1 403"), "another's role");
    assert!(aws.get("/emulator/counts").contains("\"taken_by\":\"system:serviceaccount:deep:squid\""));
    assert_eq!(aws.end_by("TERM"), Some(0));
}

/// What signs there, reads there and falls back there is nobody's here: AWS's own library for Python.
#[test]
fn an_unmodified_boto3_gets_its_roles_from_an_emulated_aws_by_every_way_and_is_refused_as_by_aws() {
    let folder = folder("boto3");
    let (pods, keys) = (folder.join("pods"), folder.join("kiam.keys"));
    let user = format!("kiam={}", keys.display());
    let demo = ["--demo-pods", pods.to_str().unwrap(), "reef/coral", "--user", &user, "--external-id", "x1"];
    let aws = Emulator::start("aws", &demo);
    let pod = &aws.ready["pods"][0];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/clients/moto/identities.py");
    let asked = Command::new(seawall_testkit::installed_test_parts::cached_test_part_path("moto/bin/python"))
        .arg(script)
        .args([aws.text("url"), keys.to_str().unwrap()])
        .args([pod["token_file"].as_str().unwrap(), pod["role"].as_str().unwrap()])
        .output()
        .unwrap();
    let told = String::from_utf8(asked.stdout).unwrap();
    let coral = "arn:aws:sts::123456789012:assumed-role/coral";
    let expected = [
        "arn:aws:iam::123456789012:user/kiam",
        &format!("{coral}/signed"),
        "AccessDenied",
        "ValidationError",
        &format!("{coral}/token"),
        &format!("{coral}/eks-emulated-coral"),
        "arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0",
        "SignatureDoesNotMatch",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&asked.stderr));
}

#[test]
fn a_port_in_use_is_a_clear_error_and_leaves_the_others_tokens_alone() {
    let folder = folder("port-in-use");
    let pods = folder.join("pods");
    let google = Emulator::start("google", &["--demo-pods", pods.to_str().unwrap(), "reef/coral"]);
    let token = std::fs::read_to_string(pods.join("reef.coral.token")).unwrap();
    let address = google.text("address");
    let second = run(&["google", "--listen", address, "--demo-pods", pods.to_str().unwrap(), "reef/coral"]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(address) && said.contains("in use"), "{said}");
    assert_eq!(std::fs::read_to_string(pods.join("reef.coral.token")).unwrap(), token);
}

#[test]
fn an_issuer_and_its_token_fit_an_emulated_google() {
    let folder = folder("issuer");
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for algorithm in ["rs256", "es256"] {
        let issuer = file(algorithm);
        assert!(run(&["issuer", "--directory", &issuer, "--algorithm", algorithm]).status.success());
        let (key, jwks) = (format!("{issuer}/key.pem"), format!("{issuer}/jwks.json"));
        assert_eq!((mode(key.as_ref()), mode(jwks.as_ref())), (0o600, 0o644));
        let again = run(&["issuer", "--directory", &issuer]);
        assert!(
            !again.status.success()
                && String::from_utf8_lossy(&again.stderr).contains("delete it, or give another --directory")
        );

        let token = file("token");
        let minted = run(&[
            "token",
            "--key",
            &key,
            "--namespace",
            "reef",
            "--service-account",
            "coral",
            "--pod",
            "coral-0",
            "--pod-uid",
            "11111111-2222-4333-8444-555555555555",
            "--audience",
            "reef.svc.id.goog",
            "-lifetime",
            "10m",
            "--output",
            &token,
        ]);
        assert!(minted.status.success(), "{minted:?}");
        assert_eq!(mode(token.as_ref()), 0o600);
        let google =
            Emulator::start("google", &["--jwks", &jwks, "--audience", "reef.svc.id.goog", "--allow-all"]);
        let answer = exchange(&google, &std::fs::read_to_string(&token).unwrap());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("ya29.emu."), "{answer}");
    }
}

fn exchange(google: &Emulator, token: &str) -> String {
    // Every character of these values may stand in a form as it is.
    let body = format!(
        "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&audience={}&scope=s\
         &requested_token_type=urn:ietf:params:oauth:token-type:access_token\
         &subject_token_type=urn:ietf:params:oauth:token-type:jwt&subject_token={token}",
        google.text("provider")
    );
    let mut stream = TcpStream::connect(google.text("address")).unwrap();
    write!(
        stream,
        "POST /v1/token HTTP/1.1\r\nhost: sts\r\nconnection: close\r\ncontent-length: {}\r\n\
         content-type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn an_emulated_google_takes_a_demo_pods_token_in_the_exchange_of_gkes_own_pools() {
    let pods = folder("gke-pool").join("pods");
    let provider = "identitynamespace:reef.svc.id.goog:https://cluster.example";
    let google = Emulator::start(
        "google",
        &["--provider", provider, "--demo-pods", pods.to_str().unwrap(), "reef/coral"],
    );
    assert_eq!(google.ready["audiences"], serde_json::json!(["reef.svc.id.goog"]));
    let token = std::fs::read_to_string(google.ready["pods"][0]["token_file"].as_str().unwrap()).unwrap();
    let body = serde_json::json!({
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": provider,
        "scope": "s",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "subject_token": token,
    });
    let body = body.to_string();
    let length = body.len();
    let answer = google.send(&format!(
        "POST /v1/identitybindingtoken HTTP/1.1\r\nhost: m\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    ));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("ya29.emu."), "{answer}");
}

#[test]
fn bad_flags_and_files_are_named() {
    let folder = folder("bad");
    let broken = folder.join("jwks.json");
    std::fs::write(&broken, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#).unwrap();
    let broken = broken.to_str().unwrap();
    for (args, part) in [
        (&["google"][..], "--jwks"),
        (&["google", "--jwks", "/nonexistent/jwks.json"], "/nonexistent/jwks.json"),
        (&["google", "--jwks", broken], "neither an RSA nor a P-256 key"),
        (&["google", "--jwks", broken, "--throttle", "0"], "RATE:BURST"),
        (&["google", "--jwks", broken, "--error-rate", "2"], "share from 0 to 1"),
        (&["google", "--jwks", broken, "--allow", "reef"], "NAMESPACE/SERVICEACCOUNT=EMAIL"),
        (&["google", "--jwks", broken, "reef/coral"], "--demo-pods"),
        (
            &["google", "--jwks", broken, "--provider", "identitynamespace:reef"],
            "identitynamespace:POOL:CLUSTER",
        ),
        (&["token", "--key", broken, "--namespace", "a", "--service-account", "b", "--audience", "c"], "PEM"),
    ] {
        let output = run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(part), "{args:?} said {said}");
    }
}

#[test]
fn a_server_of_plants_says_what_is_true_of_it_and_ends_with_zero() {
    for signal in ["TERM", "INT"] {
        let plants = ["--fault", "pool,workers=4,service=20ms", "--fault", "rate-limiter,rate=0.01,bucket=3"];
        let server = Emulator::start("server", &[&plants[..], &["--seed", "7"]].concat());
        let told = &server.ready;
        assert_eq!(told["classes"], serde_json::json!(["pool-saturation", "rate-limiter"]));
        assert_eq!((told["limit"].as_f64(), told["limited_by"].as_str()), (Some(0.01), Some("rate-limiter")));
        assert_eq!(told["plants"][0]["limit"]["rate"], 200.0);
        assert_eq!((&told["plants"][0]["parameters"]["workers"], &told["seed"]), (&"4".into(), &7.into()));
        let answers: Vec<_> = (0..4).map(|_| server.get("/")).collect();
        assert!(answers[..3].iter().all(|answer| answer.starts_with("HTTP/1.1 200 OK\r\n")), "{answers:?}");
        assert!(answers[3].starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answers:?}");
        assert_eq!(server.end_by(signal), Some(0));
    }
}

#[test]
fn what_cannot_be_planted_is_told_at_once_and_nothing_listens() {
    let bad = [
        "server",
        "--fault",
        "pool,workers=0,colour=red",
        "--fault",
        "tsunami",
        "--fault",
        "dns",
        "--fault",
        "dns",
    ];
    let refused = run(&bad);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{said}");
    for part in [
        "pool: workers=\"0\" is not a whole number from 1 to",
        "pool has no parameter \"colour\": expected one of workers, service",
        "\"tsunami\" is not a fault: expected one of rate-limiter,",
        "dns can be given only once",
    ] {
        assert!(said.contains(part), "{said}");
    }
    for args in [
        &["server", "--random", "--cause", "generator"][..],
        &["server", "--random", "--fault", "pool"],
        &["server", "--cause", "dns"],
        &["server", "--service-time", "soon"],
    ] {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    let google = Emulator::start("server", &[]);
    let second = run(&["server", "--listen", google.text("address")]);
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use"));
}

#[test]
fn the_same_seed_plants_the_same() {
    let planted =
        |args: &[&str]| Emulator::start("server", &[&["--random"], args].concat()).ready["plants"].clone();
    assert_eq!(planted(&["--seed", "11"]), planted(&["--seed", "11"]));
    let seeds: Vec<_> = (1..6).map(|seed| planted(&["--seed", &seed.to_string()])).collect();
    assert!(seeds.iter().any(|plants| *plants != seeds[0]));
    let both = planted(&["--seed", "3", "--cause", "concurrency-cap", "--cause", "delaying-limiter"]);
    let classes: Vec<_> = both.as_array().unwrap().iter().map(|plant| plant["class"].clone()).collect();
    assert_eq!(classes, ["concurrency-cap", "delaying-limiter"]);
}

#[test]
fn what_can_be_planted_is_listed_and_every_cause_that_is_a_target_s_is_there() {
    let listed = String::from_utf8(run(&["server", "--help"]).stdout).unwrap();
    let mut planted: Vec<_> =
        listed.lines().filter_map(|line| line.split_once("(class ")?.1.strip_suffix(')')).collect();
    let of_no_target = [CauseClass::Generator, CauseClass::Unknown];
    let mut known: Vec<_> = CauseClass::ALL
        .iter()
        .filter(|class| !of_no_target.contains(class))
        .map(|class| class.slug())
        .collect();
    planted.sort_unstable();
    known.sort_unstable();
    assert_eq!(planted, known);
    for example in listed.lines().filter_map(|line| line.trim().strip_prefix("--fault '")?.strip_suffix('\''))
    {
        let server = Emulator::start("server", &["--fault", example]);
        assert_eq!(server.ready["plants"][0]["plant"], example);
    }
}
