//! What an API server is asked, and as whom, by a program at a person's hands.

use std::net::TcpStream;
use std::time::Duration;

use seawall_core::Clock;
use seawall_kube::KubeError;
use seawall_kubectl::{Api, LogOptions, ObjectChange, ResourceAttributes, WriteMode};
use seawall_testkit::closure_server::Server;
use serde_json::{Value, json};

use crate::support::{World, header, provider, said};

fn line(request: &str) -> &str {
    request.lines().next().unwrap()
}

/// Takes the token `good`.
fn guarded() -> World {
    World::answering(|request| match header(request, "authorization") {
        Some("Bearer good") => said("200 OK", &json!({})),
        _ => said("401 Unauthorized", &json!({"message": "who?"})),
    })
}

async fn ask(api: &Api) -> Result<Value, KubeError> {
    api.get("/api").await
}

#[tokio::test]
async fn a_collection_is_read_page_by_page() {
    let world = World::answering(|request| {
        let (items, next) =
            if request.contains("continue=more") { (json!(["c"]), "") } else { (json!(["a", "b"]), "more") };
        said("200 OK", &json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items}))
    });
    let listed = world.open().await.list("/api/v1/pods", Some("app=sea,tier!=a b")).await.unwrap();
    assert_eq!((json!(listed.items), &*listed.resource_version), (json!(["a", "b", "c"]), "7"));
    let first = "GET /api/v1/pods?labelSelector=app%3Dsea%2Ctier%21%3Da+b&limit=250 HTTP/1.1";
    assert_eq!(line(&world.asked()[0]), first);
    assert_eq!(header(&world.asked()[1], "authorization"), Some("Bearer good"));
}

#[tokio::test]
async fn what_is_written_is_checked_to_the_letter_and_may_be_tried_without_being_done() {
    let world = World::answering(|_| said("200 OK", &json!({"kind": "Job"})));
    let api = world.open().await;
    let jobs = "/apis/batch/v1/namespaces/shop/jobs";
    assert_eq!(api.create(jobs, &json!({"a": 1}), WriteMode::DryRun).await.unwrap(), json!({"kind": "Job"}));
    api.merge_patch(&format!("{jobs}/x"), &json!({"b": 2}), WriteMode::Persist).await.unwrap();
    api.delete(&format!("{jobs}/x"), WriteMode::Persist).await.unwrap();
    api.delete(&format!("{jobs}/x"), WriteMode::DryRun).await.unwrap();
    let asked = world.asked();
    let lines: Vec<&str> = asked.iter().map(|request| line(request)).collect();
    let query = "fieldManager=seawall&fieldValidation=Strict";
    assert_eq!(
        lines,
        [
            format!("POST {jobs}?{query}&dryRun=All HTTP/1.1"),
            format!("PATCH {jobs}/x?{query} HTTP/1.1"),
            format!("DELETE {jobs}/x HTTP/1.1"),
            format!("DELETE {jobs}/x HTTP/1.1"),
        ]
    );
    assert!(asked[2].contains(r#""dryRun":[]"#) && asked[3].contains(r#""dryRun":["All"]"#));
    assert!(asked[0].ends_with(r#"{"a":1}"#) && asked[2].contains(r#""propagationPolicy":"Background""#));
    assert_eq!(header(&asked[1], "content-type"), Some("application/merge-patch+json"));
}

#[tokio::test]
async fn whether_something_may_be_done_is_asked_before_it_is_tried() {
    let world = World::answering(|request| {
        let allowed = request.contains(r#""subresource":"attach""#);
        said("201 Created", &json!({"status": {"allowed": allowed, "reason": "RBAC"}}))
    });
    let api = world.open().await;
    let attach = ResourceAttributes {
        verb: "get",
        resource: "pods",
        subresource: "attach",
        namespace: "shop",
        ..ResourceAttributes::default()
    };
    assert!(api.review_access(&attach).await.unwrap().is_allowed);
    let verdict = api.review_access(&ResourceAttributes { subresource: "", ..attach }).await.unwrap();
    assert_eq!((verdict.is_allowed, &*verdict.reason), (false, "RBAC"));
    assert!(world.asked()[0].contains(r#""namespace":"shop""#));
}

#[tokio::test]
async fn a_refusal_is_told_as_the_server_puts_it() {
    let world =
        World::answering(|_| said("403 Forbidden", &json!({"message": "pods is forbidden: User \"me\""})));
    let failure = ask(&world.open().await).await.unwrap_err();
    assert_eq!(failure.to_string(), "the API server denies access: pods is forbidden: User \"me\"");
}

#[tokio::test]
async fn a_watch_tells_what_is_there_what_has_gone_and_how_far_it_is() {
    let world = World::answering(|_| {
        let events = [
            json!({"type": "ADDED", "object": {"n": 1}}),
            json!({"type": "MODIFIED", "object": {"n": 2}}),
            json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}),
            json!({"type": "DELETED", "object": {"n": 3}}),
            json!({"type": "ERROR", "object": {"code": 410, "message": "too old"}}),
        ];
        let body: String = events.iter().map(|event| format!("{event}\n")).collect();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    });
    let mut watching = world.open().await.watch("/api/v1/pods", Some("a=b"), "7").await.unwrap();
    let mut told = Vec::new();
    let end = loop {
        match watching.next().await {
            Ok(Some(ObjectChange::Changed(object))) => told.push(format!("now {object}")),
            Ok(Some(ObjectChange::Deleted(object))) => told.push(format!("gone {object}")),
            Ok(Some(ObjectChange::Bookmark(version))) => told.push(format!("until {version}")),
            end => break end.map(|_| ()),
        }
    };
    assert_eq!(told, [r#"now {"n":1}"#, r#"now {"n":2}"#, "until 9", r#"gone {"n":3}"#]);
    assert_eq!(end, Err(KubeError::Expired));
    let query = "watch=true&allowWatchBookmarks=true&labelSelector=a%3Db&resourceVersion=7";
    assert_eq!(line(&world.asked()[0]), format!("GET /api/v1/pods?{query} HTTP/1.1"));
}

#[tokio::test]
async fn a_log_is_read_line_by_line_and_none_is_longer_than_a_mebibyte() {
    let world = World::answering(|request| {
        let body = if request.contains("/long/") { "x".repeat(1024 * 1024 + 1) } else { "one\n\ntwo".into() };
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    });
    let api = world.open().await;
    let log =
        LogOptions { container: "seawall", is_followed: true, tail_lines: Some(9), ..LogOptions::default() };
    let mut lines = api.log("shop", "p", log).await.unwrap();
    let mut read = Vec::new();
    while let Some(line) = lines.next_line(|| {}).await.unwrap() {
        read.push(line);
    }
    assert_eq!(read, [&b"one\n"[..], b"\n", b"two"]);
    let asked = "GET /api/v1/namespaces/shop/pods/p/log?container=seawall&follow=true&tailLines=9 HTTP/1.1";
    assert_eq!(line(&world.asked()[0]), asked);
    let mut lines = api.log("shop", "long", LogOptions::default()).await.unwrap();
    assert_eq!(lines.next_line(|| {}).await, Err(KubeError::TooLarge(1024 * 1024)));
}

#[tokio::test]
async fn a_token_is_read_again_at_once_when_it_is_refused() {
    let world = guarded();
    world.write("token", "bad");
    let api = world.open().await;
    assert!(matches!(ask(&api).await, Err(KubeError::Forbidden(_))));
    world.write("token", "good\n");
    assert_eq!(ask(&api).await, Ok(json!({})));
}

#[tokio::test]
async fn who_acts_as_somebody_else_says_so_in_every_request() {
    let world = World::answering(|_| said("200 OK", &json!({})));
    let user = json!({"username": "me", "password": "pw", "as": "you", "as-groups": ["a", "b"]});
    ask(&world.open_as(&user).await.unwrap()).await.unwrap();
    let asked = world.asked().remove(0).to_lowercase();
    assert!(asked.contains("impersonate-user: you\r\n"), "{asked}");
    assert!(asked.contains("impersonate-group: a\r\nimpersonate-group: b\r\n"), "{asked}");
    assert!(asked.contains("authorization: basic bwu6chc=\r\n"), "{asked}");
}

#[tokio::test]
async fn a_server_is_believed_unverified_only_if_the_file_says_so() {
    let world = guarded();
    let user = json!({"tokenFile": "token"});
    let (api, opened) = world.open_with(json!({}), &user, Clock::system()).await.unwrap();
    let failure = ask(&api).await.unwrap_err();
    assert!(failure.is_unreachable() && failure.to_string().contains("certificate"), "{failure}");
    assert!(!opened.is_unverified);
    let anyone = json!({"insecure-skip-tls-verify": true});
    let (api, opened) = world.open_with(anyone, &user, Clock::system()).await.unwrap();
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert!(opened.is_unverified);
    assert_eq!((&*opened.namespace, opened.context.as_deref()), ("shop", Some("c")));
    assert_eq!(opened.server, format!("https://{}", world.stub.address()));
}

#[tokio::test]
async fn the_name_in_the_certificate_may_be_another_than_that_in_the_url() {
    let world = guarded();
    for (name, is_right) in [("localhost", true), ("kubernetes", false)] {
        let cluster = json!({"certificate-authority": "ca.crt", "tls-server-name": name});
        let (api, _) =
            world.open_with(cluster, &json!({"tokenFile": "token"}), Clock::system()).await.unwrap();
        assert_eq!(ask(&api).await.is_ok(), is_right, "{name}");
    }
}

#[tokio::test]
async fn a_proxy_on_this_machine_is_asked_in_plain_http() {
    let world = guarded();
    let stub = Server::start_answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    let (api, opened) = world
        .open_with(json!({"server": stub.url_of_path("/prefix")}), &json!({}), Clock::system())
        .await
        .unwrap();
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert_eq!(opened.server, stub.url_of_path(""));
}

#[tokio::test]
async fn a_proxy_carries_the_connection_and_sees_nothing_of_it() {
    let world = guarded();
    let to = world.stub.address();
    let proxy = Server::start(move |mut peer, _| {
        let head = peer.read_request_head()?;
        assert!(head.starts_with(&format!("CONNECT {to} HTTP/1.1\r\n")), "{head}");
        assert!(head.to_lowercase().contains("proxy-authorization: basic "), "{head}");
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")?;
        peer.relay(TcpStream::connect(to)?)
    })
    .unwrap();
    let url = format!("http://me:pw@{}", proxy.address());
    let cluster = json!({"certificate-authority": "ca.crt", "proxy-url": url});
    let (api, _) = world.open_with(cluster, &json!({"tokenFile": "token"}), Clock::system()).await.unwrap();
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert_eq!(proxy.connection_count(), 1);
}

/// A user whose credentials a program gives.
fn plugin(more: Value) -> Value {
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "./plugin",
        "installHint": "install it", "args": ["get-token", "5318008"], "env": [{"name": "WHO", "value": "5318008"}],
    });
    let Value::Object(more) = more else { panic!("a table") };
    more.into_iter().for_each(|(key, value)| exec[key] = value);
    json!({"exec": exec})
}

/// What a program writes that gives this.
fn credential(status: &Value) -> String {
    let kind =
        json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status});
    format!("echo '{kind}'")
}

#[tokio::test]
async fn a_program_is_run_for_a_token_and_told_what_it_wants_to_know() {
    let world = guarded();
    let here = world.folder.path().display();
    let script = format!(
        "echo \"$KUBERNETES_EXEC_INFO\" > {here}/told; echo \"$WHO $*\" > {here}/called; {}",
        credential(&json!({"token": "good"}))
    );
    world.program("plugin", &script);
    let api = world.open_as(&plugin(json!({"provideClusterInfo": true}))).await.unwrap();
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert_eq!(std::fs::read_to_string(world.path("called")).unwrap(), "5318008 get-token 5318008\n");
    let told: Value = serde_json::from_str(&std::fs::read_to_string(world.path("told")).unwrap()).unwrap();
    assert_eq!(told["spec"]["interactive"], json!(false));
    assert_eq!(told["spec"]["cluster"]["server"], json!(format!("https://{}", world.stub.address())));
    let authority = told["spec"]["cluster"]["certificate-authority-data"].as_str().unwrap();
    assert!(authority.starts_with("LS0tLS1CRUdJTi"), "PEM in base64");
    world.open_as(&plugin(json!({}))).await.unwrap();
    let told: Value = serde_json::from_str(&std::fs::read_to_string(world.path("told")).unwrap()).unwrap();
    assert_eq!(told["spec"]["cluster"], Value::Null);
}

/// Counts its runs in a file, and gives the token that another holds, until the moment that a third holds.
fn counting(world: &World) -> String {
    let here = world.folder.path().display();
    let status = "{\"token\":\"'\"$(cat token)\"'\",\"expirationTimestamp\":\"'\"$(cat until)\"'\"}";
    let kind = "\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\"";
    format!("cd {here}; echo run >> runs; echo '{{{kind},\"status\":{status}}}'")
}

fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.path("runs")).unwrap().lines().count()
}

#[tokio::test]
async fn a_program_is_run_again_when_its_word_has_expired_or_is_refused() {
    let world = guarded();
    let (clock, hand) = Clock::manual();
    world.program("plugin", &counting(&world));
    // A manual clock begins with the year 2026.
    world.write("until", "2026-01-01T00:10:00Z");
    let trusted = json!({"certificate-authority": "ca.crt"});
    let (api, _) = world.open_with(trusted, &plugin(json!({})), clock).await.unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&api).await, Ok(json!({})));
    }
    hand.advance(Duration::from_secs(599));
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert_eq!(runs(&world), 1);
    hand.advance(Duration::from_secs(1));
    world.write("until", "2027-01-01T00:00:00+01:00");
    world.write("token", "bad");
    assert!(matches!(ask(&api).await, Err(KubeError::Forbidden(_))));
    assert_eq!(runs(&world), 3, "for it had expired, and for the refusal");
    world.write("token", "good");
    assert_eq!(ask(&api).await, Ok(json!({})));
    assert_eq!(runs(&world), 4);
}

#[tokio::test]
async fn a_program_may_give_a_clients_certificate() {
    let world = World::playing(true, |peer, _| {
        peer.read_request_head()?;
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    });
    let client = world.authority.sign_client_identity().unwrap();
    let status = json!({"clientCertificateData": client.certificate_pem, "clientKeyData": client.key_pem});
    world.write("said", credential(&status).trim_start_matches("echo '").trim_end_matches('\''));
    world.program("plugin", &format!("cat {}", world.path("said").display()));
    assert_eq!(ask(&world.open_as(&plugin(json!({}))).await.unwrap()).await, Ok(json!({})));
}

#[tokio::test]
async fn a_program_that_gives_no_credentials_is_named_and_nothing_of_its_word_is_shown() {
    let world = guarded();
    for (script, what) in [
        ("echo 5318008; exit 7", "ended with exit status: 7\ninstall it"),
        ("kill -9 $$", "ended with signal: 9"),
        ("echo 5318008", "did not write an ExecCredential in JSON"),
        (
            "echo '{\"kind\":\"5318008\",\"apiVersion\":\"v1\"}'",
            "wrote something other than an ExecCredential of",
        ),
        (&credential(&Value::Null), "wrote an ExecCredential without a status"),
        (&credential(&json!({})), "wrote neither a token nor a client's certificate"),
        (&credential(&json!({"clientKeyData": "5318008"})), "expected both"),
        (&credential(&json!({"token": "5318008", "expirationTimestamp": "soon"})), "not RFC 3339"),
        ("yes 5318008", "wrote more than 1 MiB"),
    ] {
        world.program("plugin", script);
        let reason = world.open_as(&plugin(json!({}))).await.unwrap_err().to_string();
        assert!(
            reason.contains("/config: users[\"c\"].user.exec.command: ") && reason.contains(what),
            "{reason}"
        );
        assert!(!reason.contains("5318008"), "{reason}");
    }
    let reason = world.open_as(&plugin(json!({"command": "./gone"}))).await.unwrap_err().to_string();
    assert!(reason.contains("/gone cannot run: No such file") && reason.ends_with("install it"), "{reason}");
}

#[tokio::test]
async fn a_program_that_does_not_end_is_ended() {
    let world = guarded();
    let (clock, hand) = Clock::manual();
    let alive = world.path("alive");
    world.program("plugin", &format!("echo $$ > {}; exec sleep 1000", alive.display()));
    let user = plugin(json!({}));
    let opening = world.open_with(json!({}), &user, clock);
    let waiting = async {
        while std::fs::read_to_string(&alive).unwrap_or_default().is_empty() {
            tokio::task::yield_now().await;
        }
        loop {
            hand.advance(Duration::from_secs(180));
            tokio::task::yield_now().await;
        }
    };
    let reason = tokio::select! {
        opened = opening => opened.unwrap_err().to_string(),
        () = waiting => unreachable!(),
    };
    assert!(reason.contains("wrote no credentials within 180s"), "{reason}");
    let id = std::fs::read_to_string(&alive).unwrap();
    let process = std::path::Path::new("/proc").join(id.trim());
    // Killed; gone as soon as its thread has waited for it.
    while process.exists() {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_program_that_must_ask_a_person_is_not_run_without_one() {
    let world = guarded();
    world.program("plugin", &credential(&json!({"token": "good"})));
    // Standard input of tests is no terminal where they run for themselves; where it is one, this is a person.
    if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        return;
    }
    let reason = world.open_as(&plugin(json!({"interactiveMode": "Always"}))).await.unwrap_err().to_string();
    assert!(
        reason.contains("user.exec.interactiveMode: the value Always needs a terminal on standard input"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_context_that_is_not_there_opens_nothing() {
    let world = guarded();
    let choice = seawall_kubectl::KubeconfigSelection {
        context: Some("x".into()),
        ..world.choice(json!({}), &json!({}))
    };
    let reason = Api::open(&choice, provider(), Clock::system()).await.unwrap_err().to_string();
    assert!(reason.ends_with("contexts[\"x\"]: found nothing; expected one of c"), "{reason}");
}
