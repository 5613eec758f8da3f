mod clouds;

use std::cell::Cell;
use std::time::Duration;

use seawall_fetch::{FetchError, FetchRequest, FetchResponse};
use seawall_testkit::aws_sdk_models::{RefreshTiming as Rule, SessionTokenUse as Sent, all};

use self::clouds::{
    Aws, CLIENT, EMAIL, LINK_LOCAL, NOW, ODD_TOKENS, POD, SECRET, at_the_address, aws, azure,
    bodies_of_stubs, complaints, flavored, found, google, keys, lent, odd_documents,
};
use super::observed_metadata_server::ServerPrincipal;
use super::refresh_windows::{
    AWS_CONTAINER_CREDENTIALS_WINDOWS, AWS_IMDS_WINDOWS, AZURE_WINDOWS, GOOGLE_WINDOWS,
};
use super::*;
use crate::finding::DoctorStatus;
use crate::finding::test_helpers::{self, fix, reason};
use crate::http_client::fake::{Servers, answer, status};

#[test]
fn a_machine_without_a_server_has_one_finding_and_no_complaint() {
    let servers = Servers::default();
    let told = found(&servers, &[]);
    assert_eq!(
        told.iter().map(|finding| (finding.id, finding.status)).collect::<Vec<_>>(),
        [(SERVERS, DoctorStatus::Ok)]
    );
    assert!(told[0].text.starts_with("no metadata server responds"), "{}", told[0].text);
    servers.serve(LINK_LOCAL, |_| Err(FetchError::ConnectTimeout(Duration::from_millis(500))));
    assert_eq!(complaints(&servers, &[POD]), []);
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_is_a_fault() {
    let mute = at_the_address(aws().reply());
    mute.slow.set(Duration::from_secs(9));
    assert_eq!(complaints(&mute, &[]), [(SERVERS, DoctorStatus::Error)]);
}

/// Outside Google nothing resolves it, and Python's programs found no server, although `doctor` was content.
#[test]
fn a_google_server_whose_name_does_not_resolve_is_warned_of_with_the_lines_for_coredns() {
    let unresolved = FetchError::ConnectFailed("Name or service not known".to_owned());
    let servers = at_the_address(google(EMAIL, 3000, false));
    servers.serve("metadata.google.internal:80", |_| Err(unresolved.clone()));
    let told = found(&servers, &[POD]);
    let name = told.iter().find(|finding| finding.id == NAME).unwrap();
    assert_eq!(name.status, DoctorStatus::Warning);
    assert!(name.text.contains("Name or service not known"), "{}", name.text);
    assert!(fix(name).contains("hosts { 169.254.169.254 metadata.google.internal"), "{}", fix(name));

    let stranger = at_the_address(google(EMAIL, 3000, false));
    stranger.serve("metadata.google.internal:80", |_| status(404));
    assert!(complaints(&stranger, &[POD]).contains(&(NAME, DoctorStatus::Warning)));

    let resolved = found(&at_the_address(google(EMAIL, 3000, false)), &[POD]);
    assert!(resolved.iter().any(|finding| finding.id == NAME && finding.status == DoctorStatus::Ok));
    // Clients that are told of another place do not ask the name, and no other cloud's server has one.
    let elsewhere = at_the_address(google(EMAIL, 3000, false));
    elsewhere.serve("10.0.0.7:80", google(EMAIL, 3000, false));
    assert!(found(&elsewhere, &[("GCE_METADATA_HOST", "10.0.0.7")]).iter().all(|told| told.id != NAME));
    assert!(found(&at_the_address(aws().reply()), &[POD]).iter().all(|told| told.id != NAME));
}

/// Regression: each of these was ok, as if there were no server.
#[test]
fn a_server_that_takes_connections_and_gives_no_answer_that_can_be_read_is_warned_of() {
    let broken =
        || FetchError::ConnectionBroken("the connection ended before the end of the response".to_owned());
    for why in [
        broken(),
        FetchError::TooLarge(1 << 16),
        FetchError::InvalidResponse("malformed chunked body".to_owned()),
    ] {
        let told = found(&at_the_address(|_| Err(why.clone())), &[]);
        assert_eq!((told.len(), told[0].status), (1, DoctorStatus::Warning), "{why}");
        assert!(reason(&told[0]).contains(&why.to_string()), "{:?}", told[0]);
    }
    for nobody in [FetchError::ConnectionRefused, FetchError::ConnectFailed("No route to host".to_owned())] {
        assert_eq!(complaints(&at_the_address(|_| Err(nobody.clone())), &[]), []);
    }
    // If one server responds, the others need not exist.
    let serving = at_the_address(|_| Err(broken()));
    serving.serve("127.0.0.1:80", |_| answer(&keys(-600, 3000)));
    assert_eq!(complaints(&serving, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/")]), []);
}

/// Regression: the check took this server for another cloud's, or for one without credentials, and called it ok.
#[test]
fn a_server_that_answers_everything_with_a_failure_is_a_fault_that_names_it() {
    for code in [500, 502, 503, 504] {
        let told = found(&at_the_address(move |_: &FetchRequest| status(code)), &[]);
        assert_eq!((told.len(), told[0].status), (1, DoctorStatus::Error), "{code}");
        let why = reason(&told[0]);
        assert!(why.starts_with(&format!("the server at {LINK_LOCAL} responds {code}: ")), "{why}");
    }
    // The kind of the server may still be known.
    let azure = |_: &FetchRequest| {
        Ok(FetchResponse::new(503, &[("Content-Type", "application/json")], br#"{"error":"server_error"}"#))
    };
    let amazon = |_: &FetchRequest| Ok(FetchResponse::new(503, &[("Server", "EC2ws")], b""));
    for servers in
        [at_the_address(|_: &FetchRequest| flavored(503, "")), at_the_address(azure), at_the_address(amazon)]
    {
        let complaints = complaints(&servers, &[]);
        assert!(complaints.contains(&(PRINCIPAL, DoctorStatus::Error)), "{complaints:?}");
        assert!(complaints.contains(&(LATENCY, DoctorStatus::Unknown)), "{complaints:?}");
    }
    // Another cloud's server may fail for unknown paths.
    let one_cloud =
        at_the_address(|request: &FetchRequest| match google(EMAIL, 3000, false)(request)?.status() {
            403 => status(500),
            _ => google(EMAIL, 3000, false)(request),
        });
    assert_eq!(complaints(&one_cloud, &[POD]), []);
}

/// The refusal of the token was once kept as a credential, so the same words about the account were not shown.
#[test]
fn a_server_that_refuses_account_and_token_with_the_same_words_is_told_with_them() {
    let words = "seawall: the agent has no account for this pod (code: no_account; is_retryable: no)";
    let servers = at_the_address(|_: &FetchRequest| flavored(403, words));
    let told = serde_json::to_string(&found(&servers, &[])).unwrap();
    assert!(told.contains(words) && !told.contains("contains a credential"), "{told}");
}

/// Seawall's agent is such a server.
#[test]
fn a_server_for_pods_that_refuses_in_json_is_aws_if_it_calls_itself_so() {
    let refusal = |code| {
        let headers = [("Server", "EC2ws"), ("Content-Type", "application/json")];
        Ok(FetchResponse::new(code, &headers, br#"{"error":"no_role"}"#))
    };
    let agent = |has_role: bool| {
        at_the_address(move |request: &FetchRequest| {
            let answer = aws().reply()(request)?;
            let is_listing = request.target.ends_with("security-credentials/");
            match answer.status() {
                200 if !has_role && is_listing => refusal(404),
                200 => Ok(answer),
                code => refusal(code),
            }
        })
    };
    assert_eq!(complaints(&agent(true), &[POD]), []);
    assert_eq!(complaints(&agent(false), &[POD]), [(PRINCIPAL, DoctorStatus::Warning)]);
}

#[test]
fn a_server_that_the_environment_names_and_that_does_not_answer_is_a_fault() {
    for (name, value) in [
        ("GCE_METADATA_HOST", "10.0.0.7"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://10.0.0.7:8080/"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a"),
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://10.0.0.7"),
    ] {
        let told = found(&Servers::default(), &[(name, value)]);
        assert_eq!((told.len(), told[0].status), (1, DoctorStatus::Error), "{name}");
        assert!(reason(&told[0]).contains(name), "{:?}", told[0]);
    }
}

#[test]
fn a_variable_that_cannot_be_asked_is_told_and_nobody_else_asked_in_its_place() {
    for (name, value) in [
        ("GCE_METADATA_HOST", "a b"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "https://user:DoNotShow@a/"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "https://a/"),
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "a"),
    ] {
        let servers = at_the_address(aws().reply());
        let told = found(&servers, &[(name, value)]);
        assert_eq!(told[0].status, DoctorStatus::Unknown, "{name}");
        let why = reason(&told[0]);
        assert!(why.starts_with(name) && !why.contains(SECRET), "{why}");
        let asked = servers.asked.borrow();
        assert_eq!(
            asked.iter().any(|asked| asked.contains("/latest/")),
            !name.starts_with("AWS_EC2"),
            "{name}"
        );
    }
}

/// Regression: the message said that the value is not a URL, although it is one, and it showed long values in full.
#[test]
fn a_variable_that_is_misread_is_told_by_what_was_expected() {
    let told = |name, value: &str| found(&Servers::default(), &[(name, value)]).swap_remove(0);
    let host = told("GCE_METADATA_HOST", "http://127.0.0.1:8080");
    assert_eq!(host.status, DoctorStatus::Error);
    assert!(reason(&host).contains("must be HOST or HOST:PORT") && reason(&host).contains("http://http://"));
    for (name, value, why) in [
        ("GCE_METADATA_HOST", "a".repeat(100_000), "is not HOST or HOST:PORT"),
        ("GCE_METADATA_HOST", "a\u{1b}[31m".to_owned(), "is not HOST or HOST:PORT"),
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "https://a/".to_owned(),
            "this check sends only http:// requests",
        ),
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "127.0.0.1:80".to_owned(), "is not an http:// URL"),
    ] {
        let told = told(name, &value);
        assert_eq!(told.status, DoctorStatus::Unknown, "{name}");
        assert!(
            reason(&told).contains(why) && serde_json::to_string(&told).unwrap().len() < 1000,
            "{told:?}"
        );
    }
}

#[test]
fn each_clouds_server_is_told_by_its_manners_and_is_fine() {
    let whose = |servers: &Servers| -> Vec<_> {
        assert_eq!(complaints(servers, &[POD]), []);
        let told = found(servers, &[POD]).into_iter().filter(|finding| finding.id == PRINCIPAL);
        told.map(|finding| finding.text).collect()
    };
    let named = whose(&at_the_address(google(EMAIL, 3000, false)));
    assert_eq!(named, [format!("Google's metadata server gives credentials of {EMAIL}")]);
    assert_eq!(
        whose(&at_the_address(aws().reply())),
        ["AWS's metadata service gives credentials of role shop"]
    );
    let named = whose(&at_the_address(azure));
    assert_eq!(
        named,
        [format!("Azure's metadata service gives credentials of managed identity with client id {CLIENT}")]
    );
}

/// Regression: the check ignored these endpoints and used the default address.
#[test]
fn azures_endpoints_are_asked_where_the_environment_names_them_with_its_secret() {
    let token = |life: &str| {
        format!(r#"{{"access_token":"Wq7Rk2Lm9Xv4Tz","client_id":"{CLIENT}","resource":"a",{life}}}"#)
    };
    let end = format!(r#""expires_on":"{}""#, NOW + 3600);
    let new = [("IDENTITY_ENDPOINT", "http://127.0.0.1:42356/msi/token/"), ("IDENTITY_HEADER", SECRET)];
    let old = [("MSI_ENDPOINT", "http://127.0.0.1:42356/a?b=c"), ("MSI_SECRET", SECRET)];
    for (environment, header, target) in [
        (new, "X-IDENTITY-HEADER", "/msi/token/?api-version=2019-08-01&resource="),
        (old, "secret", "/a?b=c&api-version=2017-09-01&resource="),
    ] {
        let servers = Servers::default();
        servers.serve("127.0.0.1:42356", |request| {
            let is_right = request.target.starts_with(target) && request.headers.contains(&(header, SECRET));
            if is_right { answer(&token(&end)) } else { status(400) }
        });
        assert_eq!(complaints(&servers, &environment), []);
        let all = serde_json::to_string(&found(&servers, &environment)).unwrap();
        assert!(all.contains(CLIENT) && all.contains("have 60 min left") && !all.contains(SECRET), "{all}");
        // The servers send a token that MSAL rejects, a refusal of App Service with the secret in its text, and nothing.
        servers.serve("127.0.0.1:42356", |_| answer(&token(r#""expires_in":"3600""#)));
        assert!(complaints(&servers, &environment).contains(&(LATENCY, DoctorStatus::Error)));
        let refusal = format!(r#"{{"statusCode":400,"message":"bad {SECRET}"}}"#);
        servers.serve("127.0.0.1:42356", move |_| Ok(FetchResponse::new(400, &[], refusal.as_bytes())));
        let all = found(&servers, &environment);
        assert_eq!(test_helpers::finding_named(PRINCIPAL, all.clone()).status, DoctorStatus::Unknown);
        assert!(!serde_json::to_string(&all).unwrap().contains(SECRET), "{all:?}");
        assert_eq!(complaints(&Servers::default(), &environment), [(SERVERS, DoctorStatus::Error)]);
    }
}

#[test]
fn azures_endpoints_that_are_not_spoken_to_leave_it_unknown() {
    let endpoint = ("IDENTITY_ENDPOINT", "http://127.0.0.1:42356/");
    let header = ("IDENTITY_HEADER", SECRET);
    let unknown = (SERVERS, DoctorStatus::Unknown);
    for (environment, expected) in [
        (vec![endpoint, header, ("IDENTITY_SERVER_THUMBPRINT", "ab")], unknown),
        (vec![endpoint, ("IMDS_ENDPOINT", "http://127.0.0.1:40342")], unknown),
        (vec![("MSI_ENDPOINT", "http://127.0.0.1:50342/")], unknown),
        (vec![endpoint, ("IDENTITY_HEADER", "DoNot\nShow")], (SERVERS, DoctorStatus::Error)),
    ] {
        let servers = Servers::default();
        assert_eq!(complaints(&servers, &environment), [expected]);
        assert!(servers.asked.borrow().iter().all(|asked| !asked.contains("127.0.0.1")));
    }
    // SDKs without the header's variable use the default address.
    assert_eq!(complaints(&at_the_address(azure), &[endpoint]), []);
}

/// Regression: a server that names Google's flavor in every response hid its credentials of other clouds.
#[test]
fn who_lends_is_told_whatever_flavor_it_names() {
    let flavored = |answer: FetchResponse| {
        let kind = answer.header("content-type").to_owned();
        let headers = [("Metadata-Flavor", "Google"), ("Content-Type", kind.as_str())];
        FetchResponse::new(answer.status(), &headers, answer.body())
    };
    let all = at_the_address(|request: &FetchRequest| {
        let reply = match request.target {
            target if target.starts_with("/latest/") => aws().reply()(request),
            target if target.starts_with("/metadata/") => azure(request),
            _ => google(EMAIL, 3000, false)(request),
        };
        reply.map(flavored)
    });
    let told = found(&all, &[]);
    assert_eq!(told.iter().filter(|finding| finding.id == PRINCIPAL).count(), 3, "{told:?}");
    assert_eq!(test_helpers::complaints(told), []);
}

#[test]
fn somebody_else_at_the_address_is_no_metadata_server() {
    for body in ["<html>", "", "{}", "[1]", "\0\0"] {
        let other =
            at_the_address(move |_| status(404).map(|_| FetchResponse::new(404, &[], body.as_bytes())));
        assert_eq!(found(&other, &[]).len(), 1, "{body}");
        assert_eq!(
            complaints(&other, &[("GCE_METADATA_HOST", "169.254.169.254")]),
            [(SERVERS, DoctorStatus::Error)]
        );
    }
}

/// The test looks at every field of every finding.
#[test]
fn no_credential_is_shown() {
    let containers = |_: &FetchRequest| answer(&keys(-600, 3000));
    let environment = [
        POD,
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/run/token"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://a"),
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://b"),
    ];
    // These responses are valid, and some have the secret in an unexpected field.
    let lists_keys = |request: &FetchRequest| match request.method {
        "PUT" => answer(SECRET),
        _ => answer(&format!("{SECRET} {SECRET}")),
    };
    for is_strange in [false, true] {
        let servers = at_the_address(google(EMAIL, 3000, true));
        servers.serve("169.254.170.23:80", containers);
        servers.serve("b:80", azure);
        if is_strange {
            servers.serve("a:80", lists_keys);
        } else {
            servers.serve("a:80", aws().reply());
        }
        let told = serde_json::to_string(&found(&servers, &environment)).unwrap();
        assert!(told.contains(LIFE) && told.contains(CLIENT), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
}

/// Regression: a server sent a token as the name of its role, account or client, and the finding showed it.
#[test]
fn no_name_is_shown_that_says_a_part_of_what_was_sent_or_lent() {
    const SENT: &str = "eyJhbGci.eyJzdWIi.c2ln";
    for said in ["eyJhbGci.eyJzdWIi.c2ln", "x-EYJHBGCI-x", "zdWIi.c2ln", "session-of-imds", "Wq7Rk2Lm9Xv4Tz"]
    {
        let name = said.to_owned();
        let servers = at_the_address(move |request: &FetchRequest| match request.target {
            _ if request.method == "PUT" => answer("session-of-imds=="),
            "/latest/meta-data/iam/security-credentials/" => answer(&name),
            target if target.starts_with("/latest/") => answer(&lent(&name)),
            "/computeMetadata/v1/instance/service-accounts/default/email" => flavored(
                200,
                &format!("{}@reef.iam.gserviceaccount.com", name.to_lowercase().replace('.', "-")),
            ),
            _ => flavored(200, r#"{"access_token":"Wq7Rk2Lm9Xv4Tz","expires_in":3000}"#),
        });
        let of_containers =
            format!(r#"{{"RoleArn":"arn:aws:iam::123456789012:role/{said}",{}"#, &lent(said)[1..]);
        servers.serve("127.0.0.1:80", move |_| answer(&of_containers));
        let environment = [
            POD,
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", SENT),
        ];
        let told = serde_json::to_string(&found(&servers, &environment)).unwrap().to_lowercase();
        assert!(told.contains("its name contains a credential, so it is not shown"), "{told}");
        assert!(!told.contains(&said.to_lowercase()), "{said}: {told}");
    }
}

#[test]
fn a_client_of_azure_that_is_its_own_token_is_not_shown() {
    let itself = at_the_address(|_| {
        let body = format!(r#"{{"access_token":"{CLIENT}","client_id":"{CLIENT}","expires_in":"3500"}}"#);
        Ok(FetchResponse::new(200, &[("Content-Type", "application/json")], body.as_bytes()))
    });
    let told = serde_json::to_string(&found(&itself, &[])).unwrap();
    assert!(told.contains("is not shown") && !told.contains(CLIENT), "{told}");
}

/// Regression: the check cut the line to 200 characters and requested the rest as a path, and the parent directory, too.
#[test]
fn what_is_no_roles_name_is_neither_shown_nor_asked_for() {
    for listed in ["a".repeat(65), "..".to_owned(), "../../user-data".to_owned(), "shop/../x".to_owned()] {
        let servers = at_the_address(|request: &FetchRequest| match request.method {
            "PUT" => answer(SECRET),
            _ => answer(&listed),
        });
        let told = test_helpers::finding_named(PRINCIPAL, found(&servers, &[]));
        assert_eq!(told.status, DoctorStatus::Unknown, "{listed}");
        let asked = servers.asked.borrow();
        assert!(asked.iter().all(|asked| !asked.contains("security-credentials/") || asked.ends_with('/')));
    }
}

/// A user may set the variable for the token's file to the token itself.
#[test]
fn a_token_that_is_named_as_a_file_is_not_shown() {
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", SECRET),
    ];
    let told = serde_json::to_string(&found(&Servers::default(), &environment)).unwrap();
    assert!(told.contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") && !told.contains(SECRET), "{told}");
}

/// Regression: a finding named the token of a stub as its identity.
#[test]
fn who_answers_every_path_with_a_token_names_nobody() {
    let environment = [POD, ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")];
    for body in &bodies_of_stubs() {
        let servers = at_the_address(|_| flavored(200, body));
        servers.serve("169.254.170.23:80", |_| flavored(200, body));
        let told = serde_json::to_string(&found(&servers, &environment)).unwrap();
        assert!(!told.contains(SECRET) && !told.contains("u001b"), "{body}: {told}");
    }
}

#[test]
fn a_token_with_less_life_than_a_window_is_warned_of_and_one_with_more_is_not() {
    let left = |left| complaints(&at_the_address(google(EMAIL, left, false)), &[]);
    assert_eq!(left(301), []);
    assert_eq!(left(300), [(LIFE, DoctorStatus::Warning)]);
    assert_eq!(left(0), [(LIFE, DoctorStatus::Error)]);
    let told = test_helpers::finding_named(LIFE, found(&at_the_address(google(EMAIL, 230, false)), &[]));
    let why = reason(&told);
    assert!(
        why.contains("for Node (5 min window, 1 request per call)")
            && !why.contains("Google's library for Go"),
        "{why}"
    );
}

/// The server has sessions of 15 minutes for a client with a window of 15 minutes. Two counts tell the calls apart.
#[test]
fn sessions_that_live_no_longer_than_a_window_are_a_fault_and_longer_ones_near_their_end_a_warning() {
    let lives = |begin: i64, end: i64| {
        let servers = at_the_address(Aws { document: keys(begin, end), ..aws() }.reply());
        test_helpers::finding_named(LIFE, found(&servers, &[]))
    };
    let short = lives(-420, 480);
    assert_eq!(short.status, DoctorStatus::Error);
    let why = reason(&short);
    assert!(why.contains("the AWS SDK for Java 1.11 (15 min window, 2 requests per call)"), "{why}");
    assert_eq!(lives(-3000, 600).status, DoctorStatus::Warning);
    assert_eq!(lives(-2100, 1500).status, DoctorStatus::Ok);
    assert_eq!(lives(-3600, 0).status, DoctorStatus::Error);
}

/// Regression: sessions of 16 minutes were ok with 15 minutes and one second left, but not a second later.
#[test]
fn the_verdict_on_sessions_hardly_longer_than_a_window_is_the_same_at_each_second_of_their_life() {
    let status_of = |whole: i64, left: i64| {
        let servers = at_the_address(Aws { document: keys(left - whole, left), ..aws() }.reply());
        test_helpers::finding_named(LIFE, found(&servers, &[])).status
    };
    for left in [960, 901, 900, 60] {
        assert_eq!(status_of(960, left), DoctorStatus::Warning, "{left} s");
        assert_eq!(status_of(900, left.min(900)), DoctorStatus::Error, "{left} s");
    }
    assert_eq!((status_of(1200, 1190), status_of(1200, 890)), (DoctorStatus::Ok, DoctorStatus::Warning));
}

#[test]
fn session_tokens_that_do_not_come_are_told_by_what_follows() {
    let late = || Err(FetchError::Timeout(Duration::from_millis(500)));
    for (put, without, expected) in [
        (Ok(200), 401, DoctorStatus::Ok),
        (Ok(200), 200, DoctorStatus::Ok),
        (late(), 200, DoctorStatus::Error),
        (late(), 401, DoctorStatus::Error),
        (Ok(400), 200, DoctorStatus::Error),
        (Ok(404), 200, DoctorStatus::Warning),
        (Ok(403), 401, DoctorStatus::Error),
    ] {
        let told = found(&at_the_address(Aws { put: put.clone(), without, ..aws() }.reply()), &[]);
        assert_eq!(test_helpers::finding_named(TOKENS, told).status, expected, "{put:?} and {without}");
    }
}

#[test]
fn the_nodes_own_server_is_warned_of_in_a_pod_and_is_fine_on_the_machine_itself() {
    for servers in [
        at_the_address(google("node@reef.iam.gserviceaccount.com", 3000, true)),
        at_the_address(google("123-compute@developer.gserviceaccount.com", 3000, false)),
        at_the_address(Aws { is_own: true, ..aws() }.reply()),
    ] {
        assert_eq!(complaints(&servers, &[POD]), [(NODE, DoctorStatus::Warning)]);
        assert_eq!(complaints(&servers, &[]), []);
    }
}

#[test]
fn answers_that_fail_are_a_fault_and_slow_ones_a_warning() {
    let count = Cell::new(0);
    let fine = google(EMAIL, 3000, false);
    let one_fails = at_the_address(|request: &FetchRequest| {
        count.set(count.get() + u32::from(request.target.ends_with("default/token")));
        if count.get() == 3 && request.target.ends_with("default/token") {
            status(503)
        } else {
            fine(request)
        }
    });
    let latency = test_helpers::finding_named(LATENCY, found(&one_fails, &[]));
    assert_eq!(latency.status, DoctorStatus::Error);
    assert!(latency.text.contains("9 of 10 times") && reason(&latency).contains("503"), "{latency:?}");
    let slow = at_the_address(google(EMAIL, 3000, false));
    for (millis, expected) in [(20, vec![]), (260, vec![(LATENCY, DoctorStatus::Warning)])] {
        slow.slow.set(Duration::from_millis(millis));
        assert_eq!(complaints(&slow, &[]), expected, "{millis} ms");
    }
}

/// Regression: a server of AWS with 300 ms per response had time for only two requests, and the finding was ok.
#[test]
fn a_server_of_which_too_few_answers_fit_into_its_time_is_never_fine() {
    let latency = |servers: &Servers| test_helpers::finding_named(LATENCY, found(servers, &[]));
    let slow = at_the_address(aws().reply());
    for (millis, expected) in [
        (100, DoctorStatus::Ok),
        (180, DoctorStatus::Ok),
        (260, DoctorStatus::Warning),
        (300, DoctorStatus::Warning),
        (400, DoctorStatus::Warning),
        (499, DoctorStatus::Warning),
        // The SDK for Go has given up by then.
        (600, DoctorStatus::Error),
    ] {
        slow.slow.set(Duration::from_millis(millis));
        let told = latency(&slow);
        assert_eq!(told.status, expected, "{millis} ms: {told:?}");
        assert!(told.text.contains(&format!("at most {millis}.0 ms")), "{}", told.text);
    }
}

/// Regression: a missing response counted as "no".
#[test]
fn whether_a_server_is_the_nodes_own_is_not_known_where_it_did_not_answer_that() {
    let silent = at_the_address(|request: &FetchRequest| match request.target.ends_with("disks/") {
        true => Err(FetchError::Timeout(Duration::from_millis(500))),
        false => google(EMAIL, 3000, true)(request),
    });
    assert_eq!(complaints(&silent, &[POD]), [(NODE, DoctorStatus::Unknown)]);
    assert_eq!(complaints(&silent, &[]), []);
}

/// Regression: the finding said that the check requested no credentials, although the server's only response had some.
#[test]
fn the_first_answer_with_credentials_is_one_of_those_that_are_counted() {
    let servers = Servers::default();
    servers.serve("127.0.0.1:80", |_| answer(&keys(-600, 3000)));
    servers.slow.set(Duration::from_millis(700));
    let told = found(&servers, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/")]);
    let latency = test_helpers::finding_named(LATENCY, told.clone());
    assert!(latency.text.contains("gave credentials 1 of 1 times"), "{}", latency.text);
    assert_eq!(test_helpers::finding_named(LIFE, told).status, DoctorStatus::Ok);
}

/// The check's own words may by chance contain a part of an invented token.
#[test]
fn a_server_is_not_said_to_say_what_doctor_says() {
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "token-for-credentials"),
    ];
    let servers = Servers::default();
    servers.serve("127.0.0.1:80", |_| status(401));
    let principal = test_helpers::finding_named(PRINCIPAL, found(&servers, &environment));
    assert!(reason(&principal).contains("it responded 401 to the request for credentials"), "{principal:?}");
}

#[test]
fn of_a_refusal_no_word_is_shown_that_is_as_long_as_a_token_or_not_plain() {
    for (said, is_shown) in [
        ("trace 11111111-2222-3333-4444-555555555555 no such resource", true),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", false),
        ("a\u{202e}b", false),
        ("a\nb", false),
        (&"word ".repeat(60), false),
    ] {
        let body = serde_json::json!({ "error": "invalid", "error_description": said }).to_string();
        let servers = at_the_address(move |_| Ok(FetchResponse::new(403, &[], body.as_bytes())));
        let principal = test_helpers::finding_named(PRINCIPAL, found(&servers, &[]));
        assert_eq!(reason(&principal).contains(said), is_shown, "{principal:?}");
        assert!(
            is_shown || reason(&principal).ends_with("it responded 403 without an error text"),
            "{principal:?}"
        );
    }
}

/// The other servers use up the time.
#[test]
fn a_server_that_was_asked_too_seldom_is_neither_fine_nor_at_fault() {
    let servers = at_the_address(google(EMAIL, 3000, false));
    servers.serve("a:80", aws().reply());
    servers.serve("127.0.0.1:80", |_| answer(&keys(-600, 3000)));
    servers.slow.set(Duration::from_millis(220));
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://a"),
    ];
    let mut told = found(&servers, &environment).into_iter();
    let latency = told.find(|finding| finding.id == LATENCY && finding.text.contains("metadata service"));
    let latency = latency.unwrap();
    assert_eq!(latency.status, DoctorStatus::Unknown, "{latency:?}");
    assert!(reason(&latency).contains("ran out of time"), "{latency:?}");
}

/// Regression: at 600 ms the finding said that a server accepts the connection but sends nothing.
#[test]
fn a_server_that_is_slow_is_not_called_mute() {
    for (servers, expected) in [
        (at_the_address(google(EMAIL, 3000, false)), DoctorStatus::Warning),
        (at_the_address(aws().reply()), DoctorStatus::Error),
        (at_the_address(azure), DoctorStatus::Warning),
    ] {
        for millis in [510, 600, 700] {
            servers.slow.set(Duration::from_millis(millis));
            let told = found(&servers, &[]);
            assert_eq!(told[0].status, DoctorStatus::Ok, "{millis} ms: {told:?}");
            let latency = test_helpers::finding_named(LATENCY, told);
            assert_eq!(latency.status, expected, "{millis} ms: {latency:?}");
            assert!(
                reason(&latency).starts_with("that server is slow: ")
                    && latency.text.contains(&format!("at most {millis}.0 ms")),
                "{latency:?}"
            );
        }
    }
}

#[test]
fn an_answer_with_a_token_that_may_be_late_is_not_called_lost() {
    let slow = at_the_address(Aws { put: Err(FetchError::Timeout(Duration::from_secs(1))), ..aws() }.reply());
    slow.slow.set(Duration::from_millis(600));
    let told = found(&slow, &[]);
    assert!(
        told.iter().all(|finding| finding.id != TOKENS || finding.status == DoctorStatus::Unknown),
        "{told:?}"
    );
}

#[test]
fn the_sdks_that_a_reason_names_are_those_that_ask_that_server() {
    for (servers, who) in [
        (at_the_address(google(EMAIL, 3000, false)), "Google"),
        (at_the_address(aws().reply()), "AWS"),
        (at_the_address(azure), "Azure"),
    ] {
        servers.slow.set(Duration::from_millis(260));
        let latency = test_helpers::finding_named(LATENCY, found(&servers, &[]));
        for other in ["Google", "AWS", "Azure"] {
            assert_eq!(reason(&latency).contains(other), other == who, "{latency:?}");
        }
    }
}

#[test]
fn who_has_no_identity_is_warned() {
    assert_eq!(
        complaints(&at_the_address(google("", 0, false)), &[POD]),
        [(PRINCIPAL, DoctorStatus::Warning)]
    );
    let none = |request: &FetchRequest| match request.method {
        "PUT" => answer(SECRET),
        _ => status(404),
    };
    assert_eq!(complaints(&at_the_address(none), &[POD])[0], (PRINCIPAL, DoctorStatus::Warning));
    let not_found = |_: &FetchRequest| {
        let body = br#"{"error":"invalid_request","error_description":"Identity not found"}"#;
        Ok(FetchResponse::new(400, &[("Content-Type", "application/json")], body))
    };
    assert_eq!(complaints(&at_the_address(not_found), &[POD])[0], (PRINCIPAL, DoctorStatus::Warning));
}

#[test]
fn containers_credentials_are_asked_for_as_the_environment_says() {
    let servers = Servers::default();
    servers.serve("169.254.170.23:80", |request| {
        let is_right = request.target == "/v1/credentials" && request.headers == [("Authorization", SECRET)];
        if is_right { answer(&keys(-600, 3000)) } else { status(401) }
    });
    servers.serve("169.254.170.2:80", |request| {
        if request.target == "/v2/a" { answer(&keys(-600, 3000)) } else { status(404) }
    });
    let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials");
    let file = |file| ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file);
    assert_eq!(complaints(&servers, &[full, file("/var/run/token")]), []);
    assert_eq!(complaints(&servers, &[full, ("AWS_CONTAINER_AUTHORIZATION_TOKEN", SECRET)]), []);
    assert!(complaints(&servers, &[full]).contains(&(LATENCY, DoctorStatus::Error)));
    assert_eq!(complaints(&servers, &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a")]), []);
    // With 14 minutes left, boto3 fetches at every call here, but not at the metadata service.
    servers.serve("169.254.170.2:80", |_| answer(&keys(-3000, 840)));
    assert_eq!(
        complaints(&servers, &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a")]),
        [(LIFE, DoctorStatus::Warning)]
    );
}

/// Regression: a URL without a path sent no request, so a healthy server was an error. A final slash of a path was cut.
#[test]
fn containers_credentials_are_asked_for_at_the_path_that_is_named() {
    for (url, target) in [
        ("http://127.0.0.1:81", "/"),
        ("http://127.0.0.1:81/", "/"),
        ("http://127.0.0.1:81?a=b/", "/?a=b/"),
        ("http://127.0.0.1:81/keys/", "/keys/"),
        ("http://127.0.0.1:81/keys?a=b/", "/keys?a=b/"),
    ] {
        let servers = Servers::default();
        servers.serve("127.0.0.1:81", move |request| {
            if request.target == target { answer(&keys(-600, 3000)) } else { status(404) }
        });
        assert_eq!(complaints(&servers, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]), [], "{url}");
    }
}

/// Regression: the fix for a bad token was to look at the server and a NetworkPolicy.
#[test]
fn a_token_that_cannot_be_read_or_sent_is_a_fault_of_its_own_and_nobody_is_asked() {
    let file = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    for (name, value, why) in [
        (
            file,
            "/var/run/broken",
            "/var/run/broken (AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE) contains a line end",
        ),
        (file, "/nowhere", "/nowhere does not exist"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "DoNot\nShow", "contains a line end"),
    ] {
        let servers = Servers::default();
        servers.serve("169.254.170.23:80", |_| answer(&keys(-600, 3000)));
        let environment =
            [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/keys"), (name, value)];
        let told = found(&servers, &environment).swap_remove(0);
        assert_eq!((told.id, told.status), (SERVERS, DoctorStatus::Error));
        let (reason, fix) = (reason(&told), fix(&told));
        assert!(reason.contains(name) && reason.contains(why) && !reason.contains("Show"), "{reason}");
        assert!(fix.contains("look at the named file") && !fix.contains("NetworkPolicy"), "{fix}");
        assert!(servers.asked.borrow().iter().all(|asked| !asked.contains("/keys")));
    }
}

/// Regression: this was unknown, although the same was an error for the other clouds.
#[test]
fn a_server_of_containers_credentials_that_fails_is_a_fault() {
    let servers = Servers::default();
    servers.serve("169.254.170.2:80", |_| status(503));
    let complaints = complaints(&servers, &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/a")]);
    assert!(complaints.contains(&(PRINCIPAL, DoctorStatus::Error)), "{complaints:?}");
}

#[test]
fn a_host_that_sdks_refuse_for_containers_credentials_is_not_asked() {
    let told = |url| {
        let servers = Servers::default();
        for host in ["10.0.0.7:80", "169.254.169.254:80", "localhost:81", "[::1]:80", "[fd00:ec2::23]:80"] {
            servers.serve(host, |_| answer(&keys(-600, 3000)));
        }
        let told = found(&servers, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]).swap_remove(0);
        let count = servers.asked.borrow().iter().filter(|asked| asked.contains(" /keys")).count();
        (told, count)
    };
    for (url, expected, refuse) in [
        ("http://10.0.0.7/keys", DoctorStatus::Error, "refuse any other address"),
        ("http://169.254.169.254/keys", DoctorStatus::Error, "refuse any other address"),
        ("http://[fd00:ec2::24]/keys", DoctorStatus::Error, "refuse any other address"),
        // Only a lookup where the program runs knows the addresses, and not all SDKs do one.
        ("http://keys.shop.svc/keys", DoctorStatus::Warning, "refuse every host name except localhost"),
    ] {
        let (told, count) = told(url);
        assert_eq!((told.status, count), (expected, 0), "{url}");
        let why = reason(&told);
        assert!(why.contains(refuse) && fix(&told).contains("https://"), "{why}");
    }
    for url in ["http://localhost:81/keys", "http://[::1]/keys", "http://[fd00:ec2::23]/keys"] {
        let (told, count) = told(url);
        assert_eq!((told.status, count), (DoctorStatus::Ok, 10), "{url}");
    }
}

#[test]
fn a_service_that_sdks_are_told_not_to_ask_is_not_asked() {
    let servers = at_the_address(aws().reply());
    found(&servers, &[("AWS_EC2_METADATA_DISABLED", "true")]);
    assert!(servers.asked.borrow().iter().all(|asked| !asked.contains("/latest/")));
}

/// Regression: every response with status 200 counted as credentials.
#[test]
fn an_answer_without_what_sdks_need_is_no_credentials() {
    let no_credentials = [(LATENCY, DoctorStatus::Error), (LIFE, DoctorStatus::Unknown)];
    for document in odd_documents() {
        let servers = at_the_address(Aws { document: document.clone(), ..aws() }.reply());
        assert_eq!(complaints(&servers, &[]), no_credentials, "{document}");
        let servers = Servers::default();
        servers.serve("127.0.0.1:80", |_| answer(&document));
        let environment = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/")];
        let complaints = complaints(&servers, &environment);
        assert!(no_credentials.iter().all(|none| complaints.contains(none)), "{document}: {complaints:?}");
    }
    for token in ODD_TOKENS {
        let servers =
            at_the_address(move |request: &FetchRequest| match request.target.ends_with("default/token") {
                true => flavored(200, token),
                false => google(EMAIL, 3000, false)(request),
            });
        assert_eq!(complaints(&servers, &[]), no_credentials, "{token}");
        let principal = test_helpers::finding_named(PRINCIPAL, found(&servers, &[]));
        assert!(principal.text.contains("gave no credentials"), "{}", principal.text);
    }
    for token in [r#"{"access_token":""}"#, r#"{"access_token":"a"}"#, r#"{"error":"a","expires_in":"9"}"#] {
        let json = [("Content-Type", "application/json")];
        let told = found(&at_the_address(|_| Ok(FetchResponse::new(200, &json, token.as_bytes()))), &[]);
        assert_eq!(test_helpers::complaints(told)[0], no_credentials[0], "{token}");
    }
}

#[test]
fn keys_whose_end_cannot_be_read_leave_their_life_unknown() {
    let document = r#"{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"soon"}"#.to_owned();
    let servers = at_the_address(Aws { document, ..aws() }.reply());
    assert_eq!(complaints(&servers, &[]), [(LIFE, DoctorStatus::Unknown)]);
}

/// Regression: for a connection that was closed at once, the finding said twice that the check waited half a second.
#[test]
fn what_came_in_place_of_credentials_is_told_by_its_kind_and_each_kind_once() {
    let instead = |reply: fn() -> Result<FetchResponse, FetchError>| {
        let servers =
            at_the_address(move |request: &FetchRequest| match request.target.ends_with("default/token") {
                true => reply(),
                false => google(EMAIL, 3000, false)(request),
            });
        reason(&test_helpers::finding_named(LATENCY, found(&servers, &[]))).to_owned()
    };
    for (reply, told) in [
        ((|| status(500)) as fn() -> _, "500 (10 times);"),
        (
            || answer("{}"),
            "200 without an access_token and a whole number of seconds (expires_in) (10 times);",
        ),
        (|| Err(FetchError::ConnectionBroken("reset (os error 104)".to_owned())), "reset (2 times);"),
        (
            || Err(FetchError::Timeout(Duration::from_micros(499_999))),
            "no complete response within 0.5 s (2 times);",
        ),
    ] {
        let why = instead(reply);
        assert!(why.starts_with(&format!("these requests returned no credentials: {told}")), "{why}");
    }
}

/// Regression: at 240 ms the finding said that AWS's server gave no credentials, and that the check requested none.
#[test]
fn who_was_not_asked_for_credentials_is_told_so_wherever_they_are_missing() {
    let slow = at_the_address(aws().reply());
    for millis in [240, 300, 380] {
        slow.slow.set(Duration::from_millis(millis));
        let told = found(&slow, &[]);
        let [latency, life] = [LATENCY, LIFE].map(|id| test_helpers::finding_named(id, told.clone()));
        if life.status == DoctorStatus::Unknown {
            assert_eq!(reason(&life), "the check requested no credentials", "{millis} ms");
            assert!(latency.text.contains("requested no credentials"), "{}", latency.text);
        }
    }
}

#[test]
fn times_at_the_ends_of_what_can_be_told_are_borne() {
    for end in ["9999-12-30T22:00:00Z", "-009999-01-02T01:59:59Z"] {
        let document = format!(
            r#"{{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"{end}","LastUpdated":"{end}"}}"#
        );
        complaints(&at_the_address(Aws { document, ..aws() }.reply()), &[]);
    }
    for left in [i64::MIN, i64::MAX] {
        complaints(&at_the_address(google(EMAIL, left, false)), &[]);
    }
}

#[test]
fn all_servers_together_are_asked_a_hundred_times_at_most_and_for_five_seconds() {
    let environment = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://a"),
        ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://b"),
    ];
    for slow in [0, 1, 100, 499, 500, 9000].map(Duration::from_millis) {
        let servers = at_the_address(google(EMAIL, 3000, true));
        servers.serve("a:80", aws().reply());
        servers.serve("b:80", azure);
        servers.serve("127.0.0.1:80", |_| answer(&keys(-600, 3000)));
        servers.slow.set(slow);
        found(&servers, &environment);
        assert!(servers.passed.get() <= Duration::from_secs(5), "{slow:?}: {:?}", servers.passed.get());
        let count = servers.asked.borrow().len();
        assert!(count <= 100 && (slow > Duration::from_millis(1) || count > 40), "{slow:?}: {count}");
    }
}

/// The windows appear in two lists: the measured model and this crate.
#[test]
fn the_windows_are_those_that_were_measured() {
    let measured = |rule: Rule| match rule {
        Rule::Window(seconds) | Rule::WindowOrHour(seconds) if seconds > 0 => Some(seconds),
        Rule::RandomWindow(most) => Some(most.1),
        _ => None,
    };
    let sent = |tokens: Sent| match tokens {
        Sent::EachFetch(_) => 3,
        Sent::EachGet(_) => 4,
        _ => 2,
    };
    let mut families: Vec<_> = all()
        .filter_map(|family| {
            Some((measured(family.imds_rule.refresh_timing)?, sent(family.wire.session_token_use)))
        })
        .collect();
    let mut here: Vec<_> =
        AWS_IMDS_WINDOWS.iter().map(|window| (window.seconds, window.requests_per_refresh)).collect();
    families.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, families);
    let largest =
        |windows: &[refresh_windows::SdkRefreshWindow]| windows.iter().map(|window| window.seconds).max();
    let containers = all().filter_map(|family| measured(family.container_rule?.refresh_timing)).max();
    assert_eq!(largest(AWS_CONTAINER_CREDENTIALS_WINDOWS), containers);
    // A metadata server for workloads renews both with ten minutes left.
    assert!(largest(GOOGLE_WINDOWS) < Some(600) && largest(AZURE_WINDOWS) < Some(600));
}

/// On such a pod everything was ok, and its SDK never asked the server.
#[test]
fn variables_that_sdks_use_before_every_server_are_named() {
    let servers = Servers::default();
    let told = found(&servers, &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token")]);
    let told = told.iter().find(|finding| finding.id == VARIABLES_SET).unwrap();
    assert_eq!(
        (told.status, told.text.as_str()),
        (DoctorStatus::Ok, "AWS's SDKs use AWS_WEB_IDENTITY_TOKEN_FILE before they ask these servers",)
    );
}

/// The reason was in the response, and the finding sent the reader to the server's log.
#[test]
fn a_refusals_reason_is_shown_and_a_credential_in_it_is_not() {
    let said = |body: &'static str, code: u16| {
        ServerPrincipal::reason_in(&FetchResponse::new(code, &[], body.as_bytes()))
    };
    assert_eq!(
        said("seawall: No AWS role is configured.\n", 404).as_deref(),
        Some("seawall: No AWS role is configured.")
    );
    assert_eq!(said("", 404), None);
    assert_eq!(said("key wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEYab", 403), None, "a word as long as a key");
}
