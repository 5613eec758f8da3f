//! Conceal mode, rule by rule, from the bytes of requests.

use seawall_http::Refusal;
use seawall_http::path::{BAD_PATH, BAD_TARGET};
use seawall_protocols::google::conceal::{
    ALT_NOT_ALLOWED, CERTIFICATE_BINDING_UNSUPPORTED, CONCEALED, READ_ONLY_METHODS_REFUSAL,
    RECURSION_NOT_ALLOWED, UNKNOWN_PATH,
};
use seawall_protocols::google::query::{
    BAD_PARAMETER_VALUE, BOUND_TOKEN_UNSUPPORTED, REPEATED_PARAMETER, UNKNOWN_PARAMETER,
};
use seawall_protocols::google::request_head_rules::MISSING_METADATA_FLAVOR;
use seawall_protocols::google::scopes::BAD_SCOPES;
use seawall_protocols::request_head_rules::{PROXIED_REQUEST, UNEXPECTED_BODY};

use crate::support::{admit, forward, get, with};

/// The directories of the three API versions that correspond to `instance/`.
const INSTANCES: [&str; 3] =
    ["/0.1/meta-data/", "/computeMetadata/v1beta1/instance/", "/computeMetadata/v1/instance/"];

fn refused(target: &str) -> Option<Refusal> {
    admit(&get(target)).err()
}

#[test]
fn what_pods_need_goes_upstream_as_it_is() {
    for target in [
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/computeMetadata/v1/instance/service-accounts/cart@shop.iam.gserviceaccount.com/email",
        "/computeMetadata/v1/instance/service-accounts/default/?recursive=true",
        "/computeMetadata/v1/instance/service-accounts?recursive=true&alt=json",
        "/computeMetadata/v1/instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform",
        "/computeMetadata/v1/instance/attributes/",
        "/computeMetadata/v1/instance/attributes/cluster-name",
        "/computeMetadata/v1/instance/attributes/kube-labels",
        "/computeMetadata/v1/instance/attributes/identity",
        "/computeMetadata/v1/instance/zone?alt=json",
        "/computeMetadata/v1/project/project-id",
        "/computeMetadata/v1/universe/universe_domain",
        "/computeMetadata/v1/",
        "/computeMetadata/v1",
        "/computemetadata/V1/instance/zone",
        "/computeMetadata/v1beta1/instance/id",
        "/computeMetadata/v1beta1/",
        "/0.1/meta-data/service-accounts/default/acquire?recursive=true",
        "/0.1/meta-data/hostname",
    ] {
        assert_eq!(admit(&get(target)).as_deref(), Ok(target));
    }
}

#[test]
fn requests_for_the_nodes_token_are_known_in_every_version_and_spelling() {
    let is_token = |target: &str| forward(&get(target), |admitted| admitted.is_token_request).unwrap();
    for instance in INSTANCES {
        for name in [
            "service-accounts/default/token",
            "service-accounts/cart@shop.iam.gserviceaccount.com/token?scopes=a&alt=text",
            "service-accounts/default/acquire",
            "Service-Accounts/default/%74OKEN",
            "serviceAccounts/x/../default/token",
            "auth-token",
        ] {
            assert!(is_token(&format!("{instance}{name}")), "{instance}{name}");
        }
        for name in [
            "service-accounts/default/email",
            "service-accounts/default/?recursive=true",
            "service-accounts/token/email",
            "service-accounts/token",
            "attributes/token",
            "zone",
            "",
        ] {
            assert!(!is_token(&format!("{instance}{name}")), "{instance}{name}");
        }
    }
    assert!(!is_token("/"));
}

#[test]
fn other_spellings_go_upstream_in_the_canonical_one() {
    let token = "/computeMetadata/v1/instance/service-accounts/default/token";
    let absolute = format!("http://metadata.google.internal{token}");
    for target in [
        "//computeMetadata/v1/instance//service-accounts/default/token",
        "/computeMetadata/v1/./instance/x/../service-accounts/default/token",
        "/computeMetadata/v1/instance/service-accounts/%64efault/toke%6E",
        "/computeMetadata/v1/instance/service-accounts/default/token?",
        "/computeMetadata/v1/instance/service-accounts/default/token?recursive=false&last_etag=x&timeout_sec=1",
        "/computeMetadata/v1/instance/service-accounts/default/token?scopes=,&transport=mtls&binding-enforcement=iam-policy",
        &absolute,
    ] {
        assert_eq!(admit(&get(target)).as_deref(), Ok(token), "{target}");
    }
    let scopes = format!("{token}?scopes=a%2Cb+a&%61lt=%6Ason&recursive=TRUE");
    assert_eq!(admit(&get(&scopes)), Ok(format!("{token}?recursive=true&alt=json&scopes=a,b")));
}

#[test]
fn kube_env_is_concealed_in_every_version_and_spelling() {
    for instance in INSTANCES {
        for name in [
            "attributes/kube-env",
            "attributes/kube-env/",
            "attributes/kube-env/x",
            "attributes//kube-env",
            "attributes/./kube-env",
            "attributes/x/../kube-env",
            "attributes/%6bube-env",
            "attributes/kube%2Denv",
            "attributes/kube%2denv?alt=text",
            "attributes/KUBE-ENV",
            "attributes/kube_env",
            "attributes/kubeEnv",
            "x/../attributes/kube-env/.",
            "attributes/kube-env?wait_for_change=true&last_etag=0",
        ] {
            assert_eq!(refused(&format!("{instance}{name}")), Some(CONCEALED), "{instance}{name}");
        }
        for name in [
            "attributes%2fkube-env",
            "attributes/%256bube-env",
            "attributes/kube-env;x",
            "attributes/kube-env%00",
        ] {
            assert_eq!(refused(&format!("{instance}{name}")), Some(BAD_PATH), "{instance}{name}");
        }
    }
}

#[test]
fn the_identity_of_the_machine_is_concealed_in_every_version_and_spelling() {
    for instance in INSTANCES {
        for name in [
            "service-accounts/default/identity",
            "service-accounts/default/identity?audience=x&format=full",
            "service-accounts/cart@shop.iam.gserviceaccount.com/identity",
            "service-accounts/default/identity/",
            "service-accounts/a/b/identity",
            "service-accounts/identity",
            "service-accounts//default//identity",
            "service-accounts/x/../default/%69dentity",
            "Service-Accounts/default/Identity",
            "serviceAccounts/default/identity",
        ] {
            assert_eq!(refused(&format!("{instance}{name}")), Some(CONCEALED), "{instance}{name}");
        }
    }
}

#[test]
fn what_else_gives_the_node_away_is_concealed() {
    for name in [
        "instance/attributes/kubelet-config",
        "instance/attributes/kubeconfig",
        "instance/attributes/configure-sh",
        "instance/attributes/user-data",
        "instance/attributes/ssh-keys",
        "instance/attributes/sshKeys",
        "project/attributes/ssh-keys",
        "project/attributes/sshKeys",
        "instance/attributes/startup-script",
        "project/attributes/startup-script-url",
        "instance/attributes/shutdown-script",
        "instance/attributes/windows-startup-script-ps1",
        "instance/attributes/windows-keys",
        // As 0.1 calls the keys of those who may log in.
        "instance/authorized-keys",
        "instance/attributes/sysprep-specialize-script-cmd",
        "instance/attributes/k8s-node-setup-psm1",
        "instance/gce-workload-certificates/workload-identities",
        "instance/credentials/certs",
        "oslogin/users",
    ] {
        assert_eq!(refused(&format!("/computeMetadata/v1/{name}")), Some(CONCEALED), "{name}");
    }
}

#[test]
fn recursion_is_for_service_accounts_only_however_it_is_asked_for() {
    for query in
        ["recursive", "recursive=", "recursive=true", "recursive=TRUE", "recursive=1", "%72ecursive=true"]
    {
        for path in [
            "/",
            "/0.1/",
            "/0.1/meta-data",
            "/0.1/meta-data/attributes/",
            "/computeMetadata/",
            "/computeMetadata/v1",
            "/computeMetadata/v1/",
            "/computeMetadata/v1/instance",
            "/computeMetadata/v1/instance/",
            "/computeMetadata/v1/instance/attributes/",
            "/computeMetadata/v1/instance/service-accounts/..",
            "/computeMetadata/v1/instance/service-accounts/%2e%2e/attributes",
            "/computeMetadata/v1/project/service-accounts/",
            "/computeMetadata/v1/instance/x/service-accounts/",
            "/computeMetadata/v1/service-accounts/",
            "/computeMetadata/v1beta1/instance/",
        ] {
            assert_eq!(refused(&format!("{path}?{query}")), Some(RECURSION_NOT_ALLOWED), "{path}?{query}");
        }
    }
    for (query, refusal) in [
        ("recursive=false&recursive=true", REPEATED_PARAMETER),
        ("recursive=true&recursive=true", REPEATED_PARAMETER),
        ("recursive=yes", BAD_PARAMETER_VALUE),
        ("recursive=false;recursive=true", BAD_PARAMETER_VALUE),
        ("Recursive=true", UNKNOWN_PARAMETER),
        ("%2572ecursive=true", UNKNOWN_PARAMETER),
        ("alt=json%26recursive%3Dtrue", BAD_PARAMETER_VALUE),
        ("last_etag=a%26recursive%3Dtrue", BAD_PARAMETER_VALUE),
        ("scopes=a%26recursive%3Dtrue", BAD_SCOPES),
        ("wait_for_change=true%26recursive=true", BAD_PARAMETER_VALUE),
    ] {
        assert_eq!(refused(&format!("/computeMetadata/v1/instance/?{query}")), Some(refusal), "{query}");
    }
}

#[test]
fn a_directory_is_not_asked_for_another_form() {
    for path in ["/", "/0.1/meta-data/", "/computeMetadata/v1beta1/instance/attributes/"] {
        assert_eq!(refused(&format!("{path}?alt=json")), Some(ALT_NOT_ALLOWED), "{path}");
    }
}

/// It used to be refused only where the slash was written.
#[test]
fn a_directory_is_one_without_its_slash_too() {
    for path in [
        "/0.1",
        "/0.1/meta-data",
        "/0.1/meta-data/attributes",
        "/computeMetadata",
        "/computeMetadata/v1",
        "/computeMetadata/v1beta1",
        "/computeMetadata/v1/instance",
        "/computeMetadata/V1/Instance",
        "/computeMetadata/v1/instance/.",
        "/computeMetadata/v1/%69nstance",
        "/computeMetadata/v1/project",
        "/computeMetadata/v1/something-new",
        "/computeMetadata/v1/instance/attributes",
        "/computeMetadata/v1/instance/Attributes",
        "/computeMetadata/v1beta1/project/attributes",
        "/computeMetadata/v1/instance/guest-attributes",
        "/computeMetadata/v1/instance/disks",
        "/computeMetadata/v1/instance/disks/0",
        "/computeMetadata/v1/instance/network-interfaces/0/access-configs/0",
    ] {
        for query in ["alt=json", "alt=text", "recursive=false&alt=json", "%61lt=json"] {
            assert_eq!(refused(&format!("{path}?{query}")), Some(ALT_NOT_ALLOWED), "{path}?{query}");
        }
    }
}

#[test]
fn a_leaf_is_asked_for_in_another_form_whatever_its_user_called_it() {
    for path in [
        "/0.1/meta-data/zone",
        "/0.1/meta-data/attributes/disks",
        "/computeMetadata/v1/instance/zone",
        "/computeMetadata/v1/instance/tags",
        "/computeMetadata/v1/project/project-id",
        "/computeMetadata/v1/universe/universe-domain",
        "/computeMetadata/v1/instance/attributes/disks",
        "/computeMetadata/v1/instance/attributes/attributes",
        "/computeMetadata/v1/instance/attributes/0",
        "/computeMetadata/v1/instance/network-interfaces/0/ip",
        "/computeMetadata/v1/instance/network-interfaces/0/forwarded-ips/0",
        "/computeMetadata/v1/instance/service-accounts/default",
    ] {
        let target = format!("{path}?alt=json");
        assert_eq!(admit(&get(&target)).as_deref(), Ok(&*target));
    }
}

#[test]
fn unknown_keys_and_those_of_identity_are_refused() {
    for query in ["a=b", "audience=x", "format=full", "licenses=TRUE", "username=root", "%61udience=x"] {
        assert_eq!(
            refused(&format!("/computeMetadata/v1/instance/zone?{query}")),
            Some(UNKNOWN_PARAMETER),
            "{query}"
        );
    }
}

#[test]
fn unknown_apis_are_refused() {
    for path in [
        "/computeMetadata/v2/",
        "/computeMetadata/v1x/instance/zone",
        "/computeMetadata/v1alpha1/",
        "/0.2/meta-data/",
        "/0.1/user-data",
        "/latest/meta-data/",
        "/x",
        "/v1/instance/zone",
    ] {
        assert_eq!(refused(path), Some(UNKNOWN_PATH), "{path}");
    }
    for target in ["https://metadata/computeMetadata/v1/", "http://a@b/computeMetadata/v1/"] {
        let refusal = crate::support::refusal_of_target(target);
        assert_eq!(refusal, Some(BAD_TARGET), "{target}");
    }
}

#[test]
fn proxied_requests_are_refused_everywhere() {
    for mark in
        ["X-Forwarded-For: 1.2.3.4", "x-forwarded-for: ", "X-FORWARDED-FOR: a", "Forwarded: for=1.2.3.4"]
    {
        for target in ["/", "/computeMetadata/v1/instance/zone"] {
            let raw = with(target, &format!("Metadata-Flavor: Google\r\n{mark}\r\n"));
            assert_eq!(admit(&raw), Err(PROXIED_REQUEST), "{mark} {target}");
        }
    }
}

#[test]
fn the_flavour_header_is_required_below_the_versions() {
    let flavors = ["Metadata-Flavor: Google", "metadata-flavor: Google", "X-Google-Metadata-Request: True"];
    let others = [
        "",
        "Metadata-Flavor: google",
        "Metadata-Flavor: Something-Else",
        "Metadata-Flavor: ",
        "X-Google-Metadata-Request: 1",
    ];
    let ends = |line: &str| if line.is_empty() { String::new() } else { format!("{line}\r\n") };
    for path in [
        "/computeMetadata/v1/",
        "/computeMetadata/v1/instance/zone",
        "/computeMetadata/v1beta1/instance/zone",
        "/0.1/meta-data/zone",
    ] {
        for flavor in flavors {
            assert_eq!(admit(&with(path, &ends(flavor))).as_deref(), Ok(path), "{flavor}");
        }
        for other in others {
            assert_eq!(admit(&with(path, &ends(other))), Err(MISSING_METADATA_FLAVOR), "{path} {other}");
        }
    }
    for path in ["/", "/0.1", "/0.1/", "/computeMetadata", "/computeMetadata/"] {
        assert_eq!(admit(&with(path, "")).as_deref(), Ok(path));
    }
}

#[test]
fn only_reading_is_allowed() {
    let zone = "/computeMetadata/v1/instance/zone";
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "TRACE"] {
        let raw = get(zone).replacen("GET", method, 1);
        assert_eq!(admit(&raw), Err(READ_ONLY_METHODS_REFUSAL), "{method}");
    }
    let token = "/computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!(admit(&get(token).replacen("GET", "POST", 1)), Err(CERTIFICATE_BINDING_UNSUPPORTED));
    assert_eq!(
        refused(&format!("{token}?transport=mtls&binding-enforcement=on")),
        Some(BOUND_TOKEN_UNSUPPORTED)
    );
    let head = get(zone).replacen("GET", "HEAD", 1);
    assert!(forward(&head, |_| ()).is_ok());
    for framing in ["Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n"] {
        let raw = with(zone, &format!("Metadata-Flavor: Google\r\n{framing}"));
        assert_eq!(admit(&raw), Err(UNEXPECTED_BODY), "{framing}");
    }
    let empty = with(zone, "Metadata-Flavor: Google\r\nContent-Length: 0\r\n");
    assert!(admit(&empty).is_ok());
}

#[test]
fn a_long_poll_is_marked_and_bounded() {
    let zone = "/computeMetadata/v1/instance/zone";
    let hold = |query: &str| {
        forward(&get(&format!("{zone}?{query}")), |forward| {
            (forward.target.into_owned(), forward.long_poll.map(|hold| hold.timeout.as_secs()))
        })
    };
    assert_eq!(hold("alt=text"), Ok((format!("{zone}?alt=text"), None)));
    assert_eq!(
        hold("wait_for_change=true"),
        Ok((format!("{zone}?wait_for_change=true&timeout_sec=300"), Some(300)))
    );
    assert_eq!(
        hold("timeout_sec=60&last_etag=NONE&wait_for_change=TRUE"),
        Ok((format!("{zone}?wait_for_change=true&last_etag=NONE&timeout_sec=60"), Some(60)))
    );
    let probe = forward(&get("/?wait_for_change=true"), |forward| {
        (forward.target.into_owned(), forward.long_poll.is_some())
    });
    assert_eq!(probe, Ok(("/".into(), false)));
}

#[test]
fn a_warm_token_request_is_forwarded_without_a_copy() {
    let raw = get("/computeMetadata/v1/instance/service-accounts/default/token");
    let borrowed = forward(&raw, |forward| matches!(forward.target, std::borrow::Cow::Borrowed(_)));
    assert_eq!(borrowed, Ok(true));
}
