//! What real clients send, in their order, and what they check in the answers. Read in the sources named at each
//! test, at the releases of 2026; the end-to-end suite runs the clients themselves.

use seawall_protocols::google::MetadataTree;

use crate::support::{admit, body, direct, exchange, header, impersonating, status};

/// A request as a client writes it, from a request line without version and header lines.
fn request(line: &str, headers: &[&str]) -> String {
    let mut raw = format!("{line} HTTP/1.1\r\nHost: 169.254.169.254\r\n");
    headers.iter().for_each(|header| raw.extend([header, "\r\n"]));
    raw + "\r\n"
}

/// A 200 whose flavour header is right, as all probes demand; its body.
fn accepted(tree: &MetadataTree, raw: &str) -> String {
    let response = exchange(tree, raw);
    assert_eq!((status(&response), header(&response, "Metadata-Flavor")), ("200", Some("Google")), "{raw}");
    body(&response).to_owned()
}

const TOKEN: &str = r#"{"access_token":"ya29.token","expires_in":3599,"token_type":"Bearer"}"#;

/// cloud.google.com/go/compute/metadata 0.10 and cloud.google.com/go/auth 0.24: the probe has no flavour header.
#[test]
fn what_go_asks_is_answered_as_it_checks_it() {
    let headers = ["User-Agent: gcloud-golang/0.1", "Accept-Encoding: gzip", "Metadata-Flavor: Google"];
    for tree in [impersonating(), direct()] {
        let get =
            |path: &str| accepted(&tree, &request(&format!("GET /computeMetadata/v1/{path}"), &headers));
        accepted(&tree, &request("GET /", &headers[..2]));
        assert_eq!(get("universe/universe-domain"), "googleapis.com");
        assert_eq!(get("project/project-id"), "shop-prod");
        assert_eq!(get("instance/zone").rsplit('/').next(), Some("europe-west4-a"));
        assert_eq!(get("instance/attributes/").trim().split('\n').count(), 3);
        for query in [
            "",
            "?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform%2Chttps%3A%2F%2Fa",
            "?transport=mtls",
            "?transport=alts",
        ] {
            assert_eq!(get(&format!("instance/service-accounts/default/token{query}")), TOKEN);
        }
    }
    // Only with an S2A or DirectPath at hand does it insist, and its error then holds the body of a 400.
    let bound = "GET /computeMetadata/v1/instance/service-accounts/default/token?binding-enforcement=on&transport=mtls";
    let refused = exchange(&direct(), &request(bound, &headers));
    assert!(status(&refused) == "400" && refused.contains("certificate-bound"), "{refused}");
    let identity = "GET /computeMetadata/v1/instance/service-accounts/default/identity?audience=https%3A%2F%2Fa.example&format=full&licenses=TRUE";
    assert_eq!(accepted(&impersonating(), &request(identity, &headers)), "e30.e30.c2ln");
    let refused = exchange(&direct(), &request(identity, &headers));
    assert_eq!(status(&refused), "404", "NotDefinedError, which is not retried");
}

/// google-auth 2.x `_metadata.py`: ping, account by recursion, then the token under the e-mail it found.
#[test]
fn what_python_asks_is_answered_as_it_checks_it() {
    let headers = [
        "User-Agent: python-requests/2.32",
        "Accept-Encoding: gzip, deflate",
        "Accept: */*",
        "Connection: keep-alive",
        "metadata-flavor: Google",
        "x-goog-api-client: gl-python/3.12 auth/2.40 auth-request-type/at cred-type/mds",
    ];
    for (tree, email) in
        [(impersonating(), "cart@shop-prod.iam.gserviceaccount.com"), (direct(), "shop-prod.svc.id.goog")]
    {
        accepted(&tree, &request("GET /", &headers));
        let accounts = "GET /computeMetadata/v1/instance/service-accounts";
        let info = accepted(&tree, &request(&format!("{accounts}/default/?recursive=true"), &headers));
        assert!(info.contains(&format!(r#""email":"{email}","scopes":["#)), "{info}");
        let scopes = "scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage.read_only";
        let response = exchange(&tree, &request(&format!("{accounts}/{email}/token?{scopes}"), &headers));
        assert_eq!((header(&response, "Content-Type"), body(&response)), (Some("application/json"), TOKEN));
        let domain = exchange(&tree, &request("GET /computeMetadata/v1/universe/universe-domain", &headers));
        assert_eq!(
            (header(&domain, "Content-Type"), body(&domain)),
            (Some("application/text"), "googleapis.com")
        );
    }
}

/// gcp-metadata 8: it probes a directory without its slash, follows the redirect, and wants the flavour at the end.
#[test]
fn what_node_asks_is_answered_as_it_checks_it() {
    let headers =
        ["metadata-flavor: Google", "accept: */*", "accept-encoding: gzip,deflate", "connection: close"];
    for tree in [impersonating(), direct()] {
        let redirect = exchange(&tree, &request("GET /computeMetadata/v1/instance", &headers));
        let location = header(&redirect, "Location").expect("a location");
        assert!(
            accepted(&tree, &request(&format!("GET {location}"), &headers)).contains("service-accounts/\n")
        );
        let token = "GET /computeMetadata/v1/instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform";
        assert_eq!(accepted(&tree, &request(token, &headers)), TOKEN);
        accepted(
            &tree,
            &request("GET /computeMetadata/v1/instance/service-accounts/default/email", &headers),
        );
    }
    let identity = "GET /computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience=https://a.example/b?c=d";
    assert_eq!(accepted(&impersonating(), &request(identity, &headers)), "e30.e30.c2ln");
}

/// gcloud `core/credentials/gce_read.py`: an account listing split at white space, the underscore in the universe.
#[test]
fn what_gcloud_asks_is_answered_as_it_checks_it() {
    let headers = ["Metadata-Flavor: Google", "User-Agent: Python-urllib/3.12", "Connection: close"];
    let tree = impersonating();
    let get = |path: &str| accepted(&tree, &request(&format!("GET /computeMetadata/v1/{path}"), &headers));
    assert_eq!(get("project/numeric-project-id"), "123456789012");
    assert_eq!(get("universe/universe_domain"), "googleapis.com");
    let accounts = get("instance/service-accounts/");
    assert_eq!(
        accounts.split_whitespace().collect::<Vec<_>>(),
        ["cart@shop-prod.iam.gserviceaccount.com/", "default/"]
    );
    get("instance/service-accounts/default/email");
    assert_eq!(
        get(
            "instance/service-accounts/default/identity?audience=https://a.example&format=standard&licenses=FALSE"
        ),
        "e30.e30.c2ln"
    );
}

/// guest-agent `metadata/metadata.go`, and Go's Subscribe, which starts with the tag of its first answer.
#[test]
fn who_watches_with_the_tag_of_its_first_answer_is_held() {
    let headers = ["Metadata-Flavor: Google"];
    let tree = impersonating();
    let query = "timeout_sec=60&alt=json&recursive=true&wait_for_change=true&last_etag=NONE";
    let first = request(&format!("GET /computeMetadata/v1/?{query}"), &headers);
    assert_eq!(crate::support::ask(&tree, &first, |query| query.long_poll.is_some()), Ok(false));
    let response = exchange(&tree, &first);
    let again = first.replace("NONE", header(&response, "ETag").expect("a tag"));
    assert_eq!(
        crate::support::ask(&tree, &again, |query| query.long_poll.map(|hold| hold.timeout.as_secs())),
        Ok(Some(60))
    );
}

/// The same requests in conceal mode, but for the identity of the machine and recursion from the root.
#[test]
fn what_clients_ask_passes_in_conceal_mode() {
    let flavored = ["Metadata-Flavor: Google"];
    for path in [
        "instance",
        "instance/",
        "instance/zone",
        "instance/id",
        "instance/attributes/cluster-name",
        "project/project-id",
        "project/numeric-project-id",
        "universe/universe-domain",
        "universe/universe_domain",
        "instance/service-accounts/",
        "instance/service-accounts/default/?recursive=true",
        "instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform%2Ca",
        "instance/service-accounts/default/token?transport=mtls",
        "instance/service-accounts/default/email?wait_for_change=true&last_etag=",
    ] {
        let raw = request(&format!("GET /computeMetadata/v1/{path}"), &flavored);
        assert!(admit(&raw).is_ok(), "{path}");
    }
    assert_eq!(admit(&request("GET /", &[])).as_deref(), Ok("/"));
}
