//! What real clients send, in their order, and what each of them does with the answers. Seen on the wire of nineteen clients; the
//! end-to-end suite runs the clients themselves.

use seawall_protocols::aws::RoleName;

use crate::support::aws::{Scene, container, request};
use crate::support::{body, header, status};

const ROLES: &str = "/latest/meta-data/iam/security-credentials";

/// The body of a 200.
fn accepted(scene: &Scene, line: &str, headers: &[&str]) -> String {
    let response = scene.exchange(&request(line, headers));
    assert_eq!((status(&response), header(&response, "Connection")), ("200", None), "{line}");
    body(&response).to_owned()
}

/// A token, the listing, the document: PUT and two GETs on one connection; the role goes into the third path as it was read.
fn fetch(scene: &Scene, put: &[&str], name_of_header: &str, listing: &str, escape: fn(&str) -> String) {
    let token = accepted(scene, "PUT /latest/api/token", put);
    let shown = format!("{name_of_header}: {token}");
    let role = accepted(scene, &format!("GET {listing}"), &[&shown]);
    let document = accepted(scene, &format!("GET {ROLES}/{}", escape(&role)), &[&shown]);
    for member in ["Code", "LastUpdated", "Type", "AccessKeyId", "SecretAccessKey", "Token", "Expiration"] {
        assert!(document.contains(&format!("\n  \"{member}\" : \"")), "{member} in {document}");
    }
}

/// A pod whose role has every character that a name can have.
fn scene() -> Scene {
    Scene { role: RoleName::new("a+b=c,d.e@f_g-h"), ..Scene::strict() }
}

/// boto3, the command line, Go, Java 1.12 and 2, JavaScript, Ruby, object_store.
#[test]
fn what_most_ask_is_answered() {
    for put in [
        &["X-aws-ec2-metadata-token-ttl-seconds: 21600", "Content-Length: 0"][..],
        &["X-Aws-Ec2-Metadata-Token-Ttl-Seconds: 300", "User-Agent: aws-sdk-go-v2/1.47.7 ft/ec2-imds"],
        &["x-aws-ec2-metadata-token-ttl-seconds: 600", "user-agent: object_store/0.14.2"],
    ] {
        fetch(&scene(), put, "X-aws-ec2-metadata-token", &format!("{ROLES}/"), str::to_owned);
    }
}

/// C++ leaves the slash of the listing away, writes names in lower case and four characters with percent signs.
#[test]
fn what_cpp_asks_is_answered() {
    let put = ["x-aws-ec2-metadata-token-ttl-seconds: 21600", "user-agent: aws-sdk-cpp/1.11.900"];
    let escape =
        |role: &str| role.replace('+', "%2B").replace('=', "%3D").replace(',', "%2C").replace('@', "%40");
    fetch(&scene(), &put, "x-aws-ec2-metadata-token", ROLES, escape);
}

/// Java 1.11 knows no tokens: two GETs, which are answered where tokens are not required, and counted.
#[test]
fn what_java_1_11_asks_is_answered_without_a_token_or_refused() {
    let headers = ["User-Agent: aws-sdk-java/1.11.500 Linux", "Accept: */*", "Connection: keep-alive"];
    let role = accepted(&Scene::new(), &format!("GET {ROLES}/"), &headers);
    accepted(&Scene::new(), &format!("GET {ROLES}/{role}"), &headers);
    let refused = Scene::strict().exchange(&request(&format!("GET {ROLES}/"), &headers));
    assert_eq!(status(&refused), "401");
}

/// Java 1.12 takes a new token for each GET, JavaScript 2 a new connection.
#[test]
fn a_token_is_good_on_any_connection_and_tokens_are_without_number() {
    let scene = scene();
    for _ in 0..100 {
        let token = format!("X-aws-ec2-metadata-token: {}", scene.token(21_600));
        let response = scene.exchange(&request(&format!("GET {ROLES}/"), &[&token, "Connection: close"]));
        assert_eq!((status(&response), header(&response, "Connection")), ("200", Some("close")));
    }
}

/// Where each looks for the region.
#[test]
fn the_region_is_where_each_client_looks_for_it() {
    let scene = Scene::strict();
    let token = format!("X-aws-ec2-metadata-token: {}", scene.token(300));
    let get = |path: &str| accepted(&scene, &format!("GET /latest/{path}"), &[&token]);
    // Go and Java; boto3; C++; Rust.
    assert!(get("dynamic/instance-identity/document").contains("\"region\" : \"eu-central-1\""));
    assert_eq!(get("meta-data/placement/availability-zone/"), "eu-central-1a");
    assert_eq!(get("meta-data/placement/availability-zone"), "eu-central-1a");
    assert_eq!(get("meta-data/placement/region"), "eu-central-1");
}

/// All take the same from the container endpoint; JavaScript 3 and Rust send no name of theirs.
#[test]
fn what_is_asked_of_the_container_endpoint_is_answered() {
    for headers in [
        &["Authorization: e30.e30.c2ln", "User-Agent: python-urllib3/2.8.0", "Accept: application/json"][..],
        &["authorization: e30.e30.c2ln"],
    ] {
        let raw = request("GET /v1/credentials", headers).replace("169.254.169.254", "169.254.170.23");
        let response = container(&raw);
        assert_eq!((status(&response), header(&response, "Content-Type")), ("200", Some("application/json")));
        for member in ["AccessKeyId", "SecretAccessKey", "Token", "Expiration", "AccountId"] {
            assert!(body(&response).contains(&format!("\"{member}\":\"")), "{member} in {response}");
        }
    }
}
