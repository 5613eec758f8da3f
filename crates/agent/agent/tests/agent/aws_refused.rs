//! What is forged, foreign, proxied, too long or spelled to lead elsewhere, at the agent's own sockets: one table for the metadata
//! service and one for the containers' endpoint. Each row is refused as it says, and nothing of a credential is in the answer.

use super::support::aws::{CONTAINERS, IRSA, KIAM, NONE, Pod, TTL, World, head};
use super::support::client::{Answer, Client};
use super::support::wait_until_true;
use super::support::world::STRANGER;

/// Longer than any head that is read.
const LONG: usize = 64 * 1024;

/// One request, and how it is refused.
struct Row<'a> {
    pod: Pod,
    /// Method and target.
    line: &'a str,
    headers: &'a str,
    status: u16,
    code: &'a str,
}

/// A request of IRSA's.
fn row<'a>(line: &'a str, headers: &'a str, status: u16, code: &'a str) -> Row<'a> {
    Row { pod: IRSA, line, headers, status, code }
}

fn send(world: &World, to: usize, host: &str, row: &Row<'_>) -> Answer {
    let (method, target) = row.line.split_once(' ').unwrap();
    let mut client = Client::connect(row.pod.at, world.agent.listener_addresses[to]);
    client.write_bytes(head(method, target, host, row.headers));
    if method == "HEAD" { client.receive_answer_to_head() } else { client.receive_answer() }
}

/// Each row of them, against texts that no answer may hold.
fn all_refused(world: &World, to: usize, host: &str, secrets: &[String], rows: &[Row<'_>]) {
    for row in rows {
        let answer = send(world, to, host, row);
        let shown: String = row.headers.chars().take(200).collect();
        let told = format!("{} of {} with {shown:?}: {answer:?}", row.line, row.pod.name);
        assert_eq!(answer.status, row.status, "{told}");
        let is_coded = row.line.starts_with("HEAD ") || answer.body.contains(&format!("\"{}\"", row.code));
        assert!(is_coded, "{}: {told}", row.code);
        assert!(answer.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty(), "{told}");
        assert!(answer.header("retry-after").is_empty(), "{told}");
        assert!(!secrets.iter().any(|secret| told.contains(secret)), "a secret in it: {told}");
    }
}

fn shown(token: &str) -> String {
    format!("X-aws-ec2-metadata-token: {token}\r\n")
}

/// The secrets of the pods' documents.
fn secrets(world: &World) -> Vec<String> {
    let documents = [IRSA, KIAM].map(|pod| world.document(&pod).0);
    let text =
        |name: &'static str| documents.each_ref().map(|document| document[name].as_str().unwrap().to_owned());
    [text("SecretAccessKey"), text("Token")].concat()
}

/// What an operator might let pass, and what is still no pod's.
const OPEN: &str = "passthroughPaths: [\".*credentials.*\", \"/latest/meta-data/mac\"]";

/// Session tokens, each as a header line.
struct Shown {
    /// IRSA's own.
    good: String,
    /// The same, with one bit of it another.
    flipped: String,
    /// Another pod's, another node's, and one that was given to an address of nobody's.
    kiams: String,
    nodes: String,
    strangers: String,
}

impl Shown {
    fn of(world: &World) -> Self {
        let own = world.session_token(&IRSA);
        let mut flipped = own.clone().into_bytes();
        flipped[20] ^= 1;
        let put = head("PUT", "/latest/api/token", "a", TTL);
        Self {
            good: shown(&own),
            flipped: shown(&String::from_utf8(flipped).unwrap()),
            kiams: shown(&world.session_token(&KIAM)),
            nodes: shown(&World::start("", "").session_token(&IRSA)),
            strangers: shown(&world.send(STRANGER, world.agent.listener_addresses[0], &put).body),
        }
    }

    /// The token alone.
    fn own(&self) -> &str {
        self.good.trim_end().rsplit(' ').next().unwrap()
    }

    /// The same name and value in lower case.
    fn lower(&self) -> String {
        self.good.to_ascii_lowercase()
    }
}

const DOCUMENT: &str = "GET /latest/meta-data/iam/security-credentials/irsa";
const LISTING: &str = "GET /latest/meta-data/iam/security-credentials/";
const TOKEN: &str = "PUT /latest/api/token";

#[test]
fn what_is_forged_foreign_or_proxied_is_refused() {
    let world = World::start(OPEN, "");
    let (secrets, shown) = (secrets(&world), Shown::of(&world));
    for rows in [no_token_of_its_own, proxied, asked_for_in_another_way, too_long] {
        rows(&shown, &|rows| all_refused(&world, 0, "169.254.169.254", &secrets, rows));
    }
    // What is refused is refused for what it says: these are not.
    let lower = shown.lower().replace(&shown.own().to_ascii_lowercase(), shown.own());
    for headers in [&*shown.good, &lower] {
        assert_eq!(send(&world, 0, "a", &row(DOCUMENT, headers, 200, "")).status, 200, "{headers}");
    }
}

/// What becomes of some rows.
type Judge<'a> = &'a dyn Fn(&[Row<'_>]);

fn no_token_of_its_own(tokens: &Shown, judge: Judge<'_>) {
    let Shown { good, flipped, kiams, nodes, strangers } = tokens;
    let own = tokens.own();
    judge(&[
        row(DOCUMENT, "", 401, "no_token"),
        row(LISTING, "", 401, "no_token"),
        row(&DOCUMENT.replace("GET", "HEAD"), "", 401, "no_token"),
        row("GET /latest/meta-data/placement/region", "", 401, "no_token"),
        row(&format!("{DOCUMENT}?X-aws-ec2-metadata-token={own}"), "", 401, "no_token"),
        row(DOCUMENT, &format!("Authorization: {own}\r\n"), 401, "no_token"),
        row(DOCUMENT, &good.replace('-', "_"), 401, "no_token"),
        row(DOCUMENT, &shown(""), 401, "bad_token"),
        row(DOCUMENT, &shown("AQAAAA"), 401, "bad_token"),
        row(DOCUMENT, flipped, 401, "bad_token"),
        row(DOCUMENT, &tokens.lower(), 401, "bad_token"),
        row(DOCUMENT, &shown(&own[..40]), 401, "bad_token"),
        row(DOCUMENT, &shown(&own[..own.len() - 1]), 401, "bad_token"),
        row(DOCUMENT, &shown(&format!("{own}A")), 401, "bad_token"),
        row(DOCUMENT, &shown(&format!("{own}=")), 401, "bad_token"),
        row(DOCUMENT, &shown(&format!("\"{own}\"")), 401, "bad_token"),
        row(DOCUMENT, &shown(&format!("{own},{own}")), 401, "bad_token"),
        row(&DOCUMENT.replace("GET", "HEAD"), flipped, 401, "bad_token"),
        row(DOCUMENT, nodes, 401, "bad_token"),
        row(DOCUMENT, kiams, 401, "token_pod_mismatch"),
        row(DOCUMENT, strangers, 401, "token_pod_mismatch"),
        Row { pod: KIAM, ..row(DOCUMENT, good, 401, "token_pod_mismatch") },
        Row { pod: NONE, ..row(LISTING, good, 401, "token_pod_mismatch") },
        row(DOCUMENT, &good.repeat(2), 400, "repeated_header"),
        row(DOCUMENT, &format!("{good}{flipped}"), 400, "repeated_header"),
        row(DOCUMENT, &format!("{good}{}", tokens.lower()), 400, "repeated_header"),
    ]);
}

fn proxied(Shown { good, .. }: &Shown, judge: Judge<'_>) {
    for mark in [
        "X-Forwarded-For: 10.0.0.1",
        "x-forwarded-for: 10.0.0.1",
        "X-Forwarded-For:",
        "Forwarded: for=10.0.0.1",
    ] {
        judge(&[
            row(DOCUMENT, &format!("{good}{mark}\r\n"), 403, "proxied_request"),
            row(&DOCUMENT.replace("GET", "HEAD"), &format!("{mark}\r\n{good}"), 403, "proxied_request"),
            row(LISTING, &format!("{good}{mark}\r\n"), 403, "proxied_request"),
            row(TOKEN, &format!("{TTL}{mark}\r\n"), 403, "proxied_request"),
            row(TOKEN, &format!("{mark}\r\n{mark}\r\n{TTL}"), 403, "proxied_request"),
        ]);
    }
}

fn asked_for_in_another_way(Shown { good, .. }: &Shown, judge: Judge<'_>) {
    for ttl in ["0", "21601", "-1", "1e3", "", "999999999999999999999", "60,60"] {
        judge(&[row(TOKEN, &TTL.replace("21600", ttl), 400, "bad_ttl")]);
    }
    judge(&[
        row(TOKEN, "", 400, "bad_ttl"),
        row(TOKEN, &TTL.repeat(2), 400, "repeated_header"),
        row(TOKEN, &format!("{TTL}Content-Length: 3\r\n"), 400, "unexpected_body"),
        row(TOKEN, &format!("{TTL}Transfer-Encoding: chunked\r\n"), 400, "unexpected_body"),
        row("PUT /2021-07-15/api/token", TTL, 403, "token_only_at_latest"),
        row("PUT /1.0/api/token", TTL, 403, "token_only_at_latest"),
        row("PUT /latest/meta-data/", TTL, 405, "method_not_allowed"),
        row("PUT /latest/api/%74oken/x", TTL, 405, "method_not_allowed"),
        row("GET /latest/api/token", good, 405, "token_method_not_allowed"),
        row("POST /latest/api/token", TTL, 405, "method_not_allowed"),
        row(&DOCUMENT.replace("GET", "POST"), good, 405, "method_not_allowed"),
        row(&DOCUMENT.replace("GET", "DELETE"), good, 405, "method_not_allowed"),
        row(&DOCUMENT.replace("GET", "get"), good, 405, "method_not_allowed"),
    ]);
}

fn too_long(Shown { good, .. }: &Shown, judge: Judge<'_>) {
    let [digits, letters] = ["1", "A"].map(|text| text.repeat(LONG));
    judge(&[
        row(DOCUMENT, &shown(&letters), 431, "head_too_large"),
        row(DOCUMENT, &format!("{good}X-Pad: {letters}\r\n"), 431, "head_too_large"),
        row(DOCUMENT, &format!("{good}X-Forwarded-For: {digits}\r\n"), 431, "head_too_large"),
        row(DOCUMENT, &format!("{good}{letters}: a\r\n"), 431, "head_too_large"),
        row(TOKEN, &format!("{TTL}X-Pad: {letters}\r\n"), 431, "head_too_large"),
        row(TOKEN, &TTL.replace("21600", &digits), 431, "head_too_large"),
        row(&format!("{DOCUMENT}{letters}"), good, 414, "target_too_long"),
    ]);
}

#[test]
fn an_expired_token_opens_nothing() {
    let world = World::start("", "");
    world.document(&IRSA);
    let token = world.ask(&IRSA, "PUT", "/latest/api/token", &TTL.replace("21600", "1")).body;
    // Remembered while it was good, it is refused all the same.
    wait_until_true("the token to expire", || {
        let answer = send(&world, 0, "a", &row(DOCUMENT, &shown(&token), 401, ""));
        answer.status == 401 && answer.body.contains("expired_token")
    });
}

/// A spelling, and how it is refused.
type Spelling = (&'static str, u16, &'static str);

/// Below a directory of roles: another pod's, the instance's, one that nobody has, and what is beside them.
const BELOW_ROLES: &[Spelling] = &[
    // Another pod's role, the instance's, and one that nobody has.
    ("kiam", 403, "wrong_role"),
    ("kiam/", 403, "wrong_role"),
    ("node", 403, "wrong_role"),
    ("nobody", 403, "wrong_role"),
    ("IRSA", 403, "wrong_role"),
    ("/kiam", 403, "wrong_role"),
    ("./kiam", 403, "wrong_role"),
    ("irsa/../kiam", 403, "wrong_role"),
    ("irsa/%2e%2e/kiam", 403, "wrong_role"),
    ("irsa/.%2E/kiam", 403, "wrong_role"),
    ("%6b%69%61%6d", 403, "wrong_role"),
    ("kiam?role=irsa", 403, "wrong_role"),
    ("kiam%3frole", 400, "bad_path"),
    ("irsa/kiam", 404, "not_found"),
    ("team/kiam", 404, "not_found"),
    ("arn:aws:iam::123456789012:role/team/kiam", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role%2fteam%2fkiam", 403, "wrong_role"),
    ("arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fteam%2Fkiam", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role/node", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role/team/irsa", 403, "wrong_role"),
    ("arn:aws:iam::999999999999:role/irsa", 403, "wrong_role"),
    ("arn:aws-cn:iam::123456789012:role/irsa", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role/irsa/../team/kiam", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role/irsa%2f..%2fteam%2fkiam", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role/../kiam", 403, "wrong_role"),
    ("arn:aws:iam::123456789012:role%2f..%2fkiam", 400, "bad_path"),
    ("arn:aws:iam::123456789012:role%252fkiam", 400, "bad_path"),
    ("arn:aws:iam::123456789012:role/team/kiam;x", 400, "bad_path"),
    ("arn:aws:iam::123456789012:role", 404, "not_found"),
    ("arn:aws:iam::123456789012:user/irsa", 404, "not_found"),
    ("arn:aws:sts::123456789012:assumed-role/irsa/shop.irsa", 404, "not_found"),
    ("arn:aws:iam::123456789012:role%2f..%2f..%2f..%2f..%2fuser-data", 400, "bad_path"),
    ("..%2fkiam", 400, "bad_path"),
    ("irsa%2f..%2fkiam", 400, "bad_path"),
    ("irsa%2F%2e%2e%2Fkiam", 400, "bad_path"),
    ("irsa%252f..%252fkiam", 400, "bad_path"),
    ("irsa/%252e%252e/kiam", 400, "bad_path"),
    ("irsa;/../kiam", 400, "bad_path"),
    ("irsa;x=1", 400, "bad_path"),
    ("irsa%3b", 400, "bad_path"),
    ("irsa%00", 400, "bad_path"),
    ("irsa%0d%0aX", 400, "bad_path"),
    ("irsa\\..\\kiam", 400, "malformed_request"),
    ("irsa%5c..%5ckiam", 400, "bad_path"),
    ("irsa%", 400, "bad_path"),
    ("%c0%ae%c0%ae/kiam", 400, "bad_path"),
    // And what is beside the roles.
    ("%2e%2e/%2e%2e/user-data", 404, "not_found"),
    ("%2e%2e/%2e%2e/%2e%2e/user-data", 404, "not_found"),
    ("../../../user-data", 404, "not_found"),
    ("..%2f..%2f..%2fuser-data", 400, "bad_path"),
];

/// Below a version: what is the instance's own.
const BELOW_VERSION: &[Spelling] = &[
    ("user-data", 404, "not_found"),
    ("user-data/", 404, "not_found"),
    ("USER-DATA", 404, "not_found"),
    ("/user-data", 404, "not_found"),
    ("./user-data", 404, "not_found"),
    ("%75ser-data", 404, "not_found"),
    ("meta-data/%2e%2e/user-data", 404, "not_found"),
    ("meta-data//..//user-data", 404, "not_found"),
    ("user-data?x=/latest/meta-data/mac", 404, "not_found"),
    ("meta-data/..%2fuser-data", 400, "bad_path"),
    ("user-data;x", 400, "bad_path"),
    ("user%2ddata%2f", 400, "bad_path"),
    ("%2575ser-data", 400, "bad_path"),
    ("\\user-data", 400, "malformed_request"),
    ("dynamic/instance-identity/pkcs7", 404, "not_found"),
    ("dynamic/instance-identity/signature", 404, "not_found"),
    ("dynamic/instance-identity/rsa2048", 404, "not_found"),
    ("dynamic/fws/instance-monitoring", 404, "not_found"),
    ("meta-data/managed-ssh-keys/signer-cert", 404, "not_found"),
    ("meta-data/identity-credentials/ec2/security-credentials/ec2-instance", 404, "not_found"),
    ("meta-data/identity-credentials/ec2/security-credentials/ec2-instance/", 404, "not_found"),
    ("meta-data/identity-credentials/ec2/info", 404, "not_found"),
    ("meta-data//identity-credentials/./ec2/security-credentials/ec2-instance", 404, "not_found"),
    ("meta-data/%69dentity-%43redentials/ec2/security-credentials/ec2-instance", 404, "not_found"),
    ("meta-data/IAM/Security-Credentials/irsa", 404, "not_found"),
    ("meta-data/iam/security-credentials-other/irsa", 404, "not_found"),
    ("meta-data/mac/../identity-credentials/ec2/security-credentials/ec2-instance", 404, "not_found"),
];

/// The same with an operator who lets much pass and with one who lets nothing.
#[test]
fn no_spelling_leads_to_another_role_to_user_data_or_to_the_instances_own() {
    for passed in [OPEN, "passthroughPaths: []"] {
        let world = World::start(passed, "");
        let (secrets, good) = (secrets(&world), shown(&world.session_token(&IRSA)));
        for line in lines() {
            all_refused(&world, 0, "169.254.169.254", &secrets, &[row(&line.0, &good, line.1, line.2)]);
        }
        for root in ["", "/", "/9999/", "/latest%2f", "/lates%74/../user-data?", "/latest/..;/"] {
            let line = format!("GET {root}user-data");
            let answer = send(&world, 0, "a", &row(&line, &good, 0, ""));
            assert!([400, 404].contains(&answer.status), "{line}: {answer:?}");
        }
        its_own_is_its_own(&world, &good, &secrets[0]);
    }
}

/// Each spelling in each version, in the form of proxies, and of what is told from its status alone by HEAD as well.
fn lines() -> Vec<(String, u16, &'static str)> {
    let mut roots = vec![("http://169.254.169.254/latest/".to_owned(), BELOW_VERSION)];
    for version in ["latest", "2021-07-15", "1.0"] {
        roots.push((format!("/{version}/meta-data/iam/security-credentials/"), BELOW_ROLES));
        roots.push((format!("/{version}/meta-data/iam/security-credentials-extended/"), BELOW_ROLES));
        roots.push((format!("/{version}/"), BELOW_VERSION));
    }
    let lines = roots.iter().flat_map(|(root, below)| {
        let asked = |method| {
            below.iter().map(move |(end, status, code)| (format!("{method} {root}{end}"), *status, *code))
        };
        asked("GET").chain(asked("HEAD"))
    });
    lines.collect()
}

/// Every spelling of a pod's own role is its own, and without a token nobody's.
fn its_own_is_its_own(world: &World, good: &str, secret: &str) {
    for name in [
        "irsa",
        "irsa/",
        "x/../irsa",
        "%69rsa",
        "irsa?role=kiam",
        "/irsa",
        "arn:aws:iam::123456789012:role/irsa",
        "arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Firsa",
    ] {
        for roles in
            ["latest/meta-data/iam/security-credentials", "1.0/meta-data/iam/security-credentials-extended"]
        {
            let target = format!("/{roles}/{name}");
            let own = world.ask(&IRSA, "GET", &target, good);
            assert_eq!((own.status, own.json()["SecretAccessKey"].as_str()), (200, Some(secret)), "{target}");
            assert_eq!(world.ask(&IRSA, "GET", &target, "").status, 401, "{target}");
        }
    }
}

#[test]
fn the_containers_endpoint_takes_a_pods_own_token_by_its_own_address() {
    let world = World::start("", "");
    let secrets = secrets(&world);
    let good = world.token(&IRSA, CONTAINERS);
    let with = |token: &str| format!("Authorization: {token}\r\n");
    let (payload, ask) = (good.split('.').nth(1).unwrap(), "GET /v1/credentials");
    let own = with(&good);
    all_refused(
        &world,
        1,
        "169.254.170.23",
        &secrets,
        &[
            row(ask, "", 401, "no_authorization"),
            row(ask, &with("Bearer x"), 401, "bad_authorization"),
            row(ask, &with(&format!("Bearer {good}")), 401, "bad_authorization"),
            row(ask, &with(payload), 401, "bad_authorization"),
            row(ask, &with(&good[..good.len() / 3]), 401, "bad_authorization"),
            row(ask, &with(&format!("a.{}.c", &payload[..payload.len() / 2])), 401, "bad_authorization"),
            row(ask, &with(&world.token(&KIAM, CONTAINERS)), 403, "token_pod_mismatch"),
            row(ask, &with(&world.token(&IRSA, "sts.amazonaws.com")), 403, "token_audience_mismatch"),
            row(ask, &own.repeat(2), 400, "repeated_header"),
            row(ask, &format!("{own}X-Forwarded-For: 1.2.3.4\r\n"), 403, "proxied_request"),
            row(ask, &format!("{own}Forwarded: for=1.2.3.4\r\n"), 403, "proxied_request"),
            row(ask, &format!("{own}Content-Length: 1\r\n"), 400, "unexpected_body"),
            row(ask, &with(&format!("a.{}.c", "A".repeat(10 * 1024))), 401, "bad_authorization"),
            row(ask, &with(&"A".repeat(LONG)), 431, "head_too_large"),
            row("GET /v1/credentials/kiam", &own, 404, "not_found"),
            row("GET /v1/%2e%2e/latest/user-data", &own, 404, "not_found"),
            row("GET /v1%2fcredentials", &own, 400, "bad_path"),
            row("GET /v2/credentials/irsa", &own, 404, "not_found"),
            row("POST /v1/credentials", &own, 405, "method_not_allowed"),
            // The metadata service is not spoken there.
            row("PUT /latest/api/token", TTL, 405, "method_not_allowed"),
            row(
                "GET /latest/meta-data/iam/security-credentials/irsa",
                &shown(&world.session_token(&IRSA)),
                404,
                "not_found",
            ),
        ],
    );
    for host in ["rebound.example", "169.254.169.254", "169.254.170.23.rebound.example"] {
        all_refused(&world, 1, host, &secrets, &[row(ask, &own, 403, "invalid_host")]);
    }
    assert_eq!(world.contain(&IRSA, &good).status, 200);
}
