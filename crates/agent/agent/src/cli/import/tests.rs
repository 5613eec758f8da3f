use super::imported_flags::RequiredSetting;
use super::*;

fn request(line: &str) -> Result<ImportCommand, String> {
    let request = ImportCommand::parse(&mut Parser::from_args(line.split_whitespace()));
    request.map(Option::unwrap).map_err(|error| error.to_string())
}

fn imported(line: &str) -> ImportedConfig {
    import(&request(line).unwrap()).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn mistakes(line: &str) -> Vec<String> {
    import(&request(line).unwrap()).unwrap_err().0
}

/// Returns the effective configuration after an import, as `check` prints it.
fn effective(line: &str) -> String {
    let ImportedConfig { yaml, .. } = imported(line);
    crate::config::effective_yaml(
        &AgentConfig::parse(&yaml, Path::new("/etc/seawall"), &DownwardApi::for_node("n1")).unwrap(),
    )
}

const KIAM: &str = "kiam --region eu-central-1 --account 123456789012 --";
const KUBE2IAM: &str = "kube2iam --region eu-central-1 --account 123456789012 --";
/// The flags of the DaemonSet on a GKE cluster, without those that have no value for the agent.
const GKE: &str = "gke-metadata-server --project-number 123456789012 --zone europe-west1-b -- /gke-metadata-server \
                   --token-exchange-endpoint=https://securetoken.googleapis.com/v1/identitybindingtoken \
                   --identity-namespace=reef.svc.id.goog \
                   --identity-provider-id=https://container.googleapis.com/v1/projects/reef/locations/europe-west1/clusters/c";
/// A command line of each tool, in the order of [`TOOLS`].
const LINES: [&str; 3] = [KIAM, KUBE2IAM, GKE];

#[test]
fn kiams_flags_mean_what_they_meant() {
    for (flags, expected) in [
        ("", "duration: \"3600s\""),
        ("", "namePrefix: \"kiam-\""),
        ("", "roleSources: [\"kiam\"]"),
        ("", "httpTokens: \"optional\""),
        ("", "stsEndpoint: \"global\""),
        ("", "baseRoleArn: \"arn:aws:iam::123456789012:role/\""),
        ("", "\"address\":\"0.0.0.0:3100\""),
        ("", "passthroughPaths: []"),
        ("", "tokenKeyFile: \"/var/lib/seawall/token-keys\""),
        ("--port=8181", "\"address\":\"0.0.0.0:8181\""),
        ("--port 8181", "\"address\":\"0.0.0.0:8181\""),
        ("-port 8181", "\"address\":\"0.0.0.0:8181\""),
        ("/kiam server --role-base-arn=arn:aws:iam::999999999999:role/pods/", "role/pods/\""),
        ("--role-base-arn-autodetect", "arn:aws:iam::123456789012:role/\""),
        ("--session=web", "namePrefix: \"web-\""),
        ("--session-duration=15m", "duration: \"3600s\""),
        ("--session-duration=2h30m", "duration: \"9000s\""),
        ("--region=us-west-2", "stsEndpoint: \"regional\""),
        ("--region=us-west-2", "region: \"us-west-2\""),
        ("--assume-role-arn=kiam-server", "role: \"arn:aws:iam::123456789012:role/kiam-server\""),
        ("--level=debug", "logLevel: \"debug\""),
        ("--kubeconfig=/k", "kubeconfig: \"/k\""),
        ("--allow-route-regexp=^$", "passthroughPaths: []"),
        (
            "--allow-route-regexp=^/latest/meta-data/ami-id$",
            "passthroughPaths: [\"/latest/meta-data/ami-id\"]",
        ),
        ("--whitelist-route-regexp=meta-data", "passthroughPaths: [\".*(?:meta-data).*\"]"),
    ] {
        let effective = effective(&format!("{KIAM} {flags}"));
        assert!(effective.contains(expected), "{flags}: {expected} in {effective}");
    }
}

#[test]
fn kube2iams_flags_mean_what_they_meant() {
    for (flags, expected) in [
        ("", "namespaceRestrictions: false"),
        ("", "roleSources: [\"kube2iam\"]"),
        ("", "\"address\":\"0.0.0.0:8181\""),
        ("", "stsEndpoint: \"global\""),
        ("", "tokenKeyFile: \"/var/lib/seawall/token-keys\""),
        ("--app-port=80", "\"address\":\"0.0.0.0:80\""),
        (
            "--base-role-arn=arn:aws:iam::999999999999:role",
            "baseRoleArn: \"arn:aws:iam::999999999999:role/\"",
        ),
        (
            "--base-role-arn=arn:aws:iam::999999999999:role/a/",
            "baseRoleArn: \"arn:aws:iam::999999999999:role/a/\"",
        ),
        ("--auto-discover-base-arn", "baseRoleArn: \"arn:aws:iam::123456789012:role/\""),
        ("--namespace-restrictions", "namespaceRestrictions: true"),
        ("--namespace-restrictions=0", "namespaceRestrictions: false"),
        ("--namespace-restriction-format=regexp", "namespaceRestrictionFormat: \"regexp\""),
        ("--node=$(NODE_NAME)", "nodeName: \"n1\""),
        ("--node=n2", "nodeName: \"n2\""),
        ("--use-regional-sts-endpoint", "stsEndpoint: \"regional\""),
        ("--metadata-addr=127.0.0.1:1", "upstreamUrl: \"http://127.0.0.1:1\""),
        ("--iam-role-session-ttl=2h", "duration: \"7200s\""),
        ("--iam-enable-pod-identity-tags", "\"kubernetes-pod-uid\""),
        ("--verbose --log-level=warning", "logLevel: \"debug\""),
        ("--log-level=warning", "logLevel: \"warn\""),
    ] {
        let effective = effective(&format!("{KUBE2IAM} {flags}"));
        assert!(effective.contains(expected), "{flags}: {expected} in {effective}");
    }
}

#[test]
fn gkes_flags_mean_what_they_meant() {
    for (flags, expected) in [
        ("", "exchange: \"identitybindingtoken\""),
        ("", "stsUrl: \"https://securetoken.googleapis.com\""),
        ("", "workloadPool: \"reef.svc.id.goog\""),
        ("", "tokenAudience: \"reef.svc.id.goog\""),
        (
            "",
            "workloadIdentityProvider: \"identitynamespace:reef.svc.id.goog:https://container.googleapis.com/v1/projects/reef/",
        ),
        ("", "projectId: \"reef\""),
        ("", "numericProjectId: 123456789012"),
        ("", "zone: \"europe-west1-b\""),
        ("", "name: \"c\""),
        ("", "location: \"europe-west1\""),
        ("", "realServer: []"),
        ("--passthrough-ksa-list=", "realServer: []"),
        (
            "--workload-pool=other.svc.id.goog",
            "workloadIdentityProvider: \"identitynamespace:other.svc.id.goog:https",
        ),
        ("--cluster-uid=5eaf", "uid: \"5eaf\""),
        ("--attributes=cluster-name=d,cluster-uid=5eaf,cluster-location=asia-east1", "name: \"d\""),
        ("--attributes=cluster-name=d,cluster-uid=5eaf,cluster-location=asia-east1", "uid: \"5eaf\""),
        (
            "--attributes=cluster-name=d,cluster-uid=5eaf,cluster-location=asia-east1",
            "location: \"asia-east1\"",
        ),
        ("--attributes=team=shop,tier=a=b,empty=", "team: \"shop\""),
        ("--attributes=team=shop,tier=a=b,empty=", "tier: \"a=b\""),
        ("--attributes=team=shop,tier=a=b,empty=", "empty: \"\""),
        (
            "--passthrough-ksa-list=kube-system:kube-dns,knative-serving:controller",
            "realServer: [\"kube-system/kube-dns\",\"knative-serving/controller\"]",
        ),
        (
            "--token-exchange-endpoint=http://127.0.0.1:8790/v1/identitybindingtoken",
            "stsUrl: \"http://127.0.0.1:8790\"",
        ),
    ] {
        let effective = effective(&format!("{GKE} {flags}"));
        assert!(effective.contains(expected), "{flags}: {expected} in {effective}");
    }
}

/// Returns a valid value for a flag whose value cannot be arbitrary.
fn example(flag: &str) -> &'static str {
    match flag {
        "role-base-arn" | "base-role-arn" => "arn:aws:iam::123456789012:role/",
        "assume-role-arn" => "agent",
        "session-duration" | "iam-role-session-ttl" => "20m",
        "namespace-restriction-format" => "glob",
        "metadata-addr" => "169.254.169.254",
        "region" => "eu-west-1",
        "level" | "log-level" => "info",
        "iam-role-key" => "example.com/role",
        "node" => "node-1",
        "token-exchange-endpoint" => "https://securetoken.googleapis.com/v1/identitybindingtoken",
        "identity-namespace" | "workload-pool" => "reef.svc.id.goog",
        "identity-provider-id" => {
            "https://container.googleapis.com/v1/projects/reef/locations/europe-west1/clusters/c"
        }
        "passthrough-ksa-list" => "kube-system:kube-dns",
        "attributes" => "team=shop",
        _ => "8000",
    }
}

#[test]
fn every_flag_is_understood_alone_and_what_comes_out_is_valid() {
    for (tool, line) in TOOLS.into_iter().zip(LINES) {
        for flag in tool.flags.iter().copied().flatten() {
            // Exactly one form is valid: a boolean flag does not accept this value, and any other flag requires a value.
            let forms = [format!("--{}={}", flag.name, example(flag.name)), format!("--{}", flag.name)];
            let imported = forms.map(|form| import(&request(&format!("{line} {form}")).unwrap()));
            let ([Ok(imported), Err(error)] | [Err(error), Ok(imported)]) = imported else {
                panic!("--{}: {imported:?}", flag.name)
            };
            assert!(error.to_string().contains(&format!("--{}: expected", flag.name)), "{error}");
            assert_is_valid(&imported);
        }
    }
}

fn assert_is_valid(ImportedConfig { yaml, remarks }: &ImportedConfig) {
    AgentConfig::parse(yaml, Path::new(""), &DownwardApi::for_node("n1")).unwrap();
    for remark in remarks.lines() {
        assert!(yaml.contains(&format!("# {remark}\n")), "{remark} in {yaml}");
    }
}

#[test]
fn a_flag_without_an_equal_is_named_with_what_to_do() {
    for (line, flags, expected) in [
        (KIAM, "--cert=a --key=b --ca=c", "--cert, --key, --ca: nothing to do: each agent"),
        (KIAM, "--role-alias=dns=stack-1-dns", "--role-alias: in each pod whose annotation"),
        (KIAM, "--session-duration=15m", "--session-duration: the agent requests sessions of at least 1h"),
        (KIAM, "", "--session-duration: the agent requests sessions of at least 1h"),
        (KIAM, "--session-refresh=5m", "--session-refresh: nothing to do"),
        (KIAM, "--allow-route-regexp=meta-data", "--allow-route-regexp: KIAM matches part of a path"),
        (
            KIAM,
            "--allow-route-regexp=^/latest/user-data$",
            "--allow-route-regexp: this expression lets every pod read the user data, which holds the credentials",
        ),
        (
            KIAM,
            "--whitelist-route-regexp=user-data",
            "--whitelist-route-regexp: this expression lets every pod read",
        ),
        (
            KIAM,
            "--allow-route-regexp=.*",
            "user-data and managed-ssh-keys only if the expression contains that name",
        ),
        (KIAM, "--iptables --host-interface=!eth0 --port=1", "PREROUTING ! -i eth0 -p tcp"),
        (
            KIAM,
            "--host-interface=cali+ --port=1",
            "-i cali+ -p tcp -d 169.254.169.254 --dport 80 -j DNAT --to-destination NODE_ADDRESS:1",
        ),
        (KIAM, "--host-interface=a;b", "-i INTERFACE -p"),
        (KIAM, "agent --level=info server --level=warn", "--level: given twice"),
        (KIAM, "", "KIAM's servers assumed the pods' roles"),
        (KIAM, "--assume-role-arn=a", "--assume-role-arn: KIAM's servers assumed"),
        (KUBE2IAM, "--default-role=a", "--default-role: the agent has no default role for all namespaces"),
        (
            KUBE2IAM,
            "--auto-discover-default-role",
            "--auto-discover-default-role: the agent has no default role",
        ),
        (
            KUBE2IAM,
            "--iam-role-key=example.com/role",
            "--iam-role-key: the agent reads only the annotation iam.amazonaws.com/role:",
        ),
        (
            KUBE2IAM,
            "--namespace-key=example.com/roles",
            "the agent reads only the annotation iam.amazonaws.com/allowed-roles:",
        ),
        (KUBE2IAM, "", "--namespace-restrictions: the restrictions are off"),
        (
            KUBE2IAM,
            "",
            "kube2iam passes all other metadata requests to the real service, and the agent does not.",
        ),
        (GKE, "--logtostderr", "--logtostderr: nothing to do"),
        (GKE, "--enable-identity-endpoint=false", "--enable-identity-endpoint: the agent always serves"),
        (
            GKE,
            "--passthrough-ksa-list=a:b",
            "--passthrough-ksa-list: pods of these ServiceAccounts get the node's",
        ),
        (GKE, "", "the chart also needs `admission: { extraAudiences: [\"reef.svc.id.goog\"] }`"),
        (GKE, "", "pods keep the annotation iam.gke.io/gcp-service-account"),
        (GKE, "--v=2", "--v: the key logLevel sets"),
        (GKE, "", "nor the label iam.gke.io/gke-metadata-server-enabled"),
        (
            GKE,
            "--workload-pool=other.svc.id.goog",
            "--workload-pool: given twice with different values: the last value counts",
        ),
    ] {
        let remarks = imported(&format!("{line} {flags}")).remarks;
        assert!(remarks.contains(expected), "{flags}: {expected} in {remarks}");
    }
    for (line, flags, absent) in [
        (KUBE2IAM, "--iam-role-key=iam.amazonaws.com/role", "--iam-role-key"),
        (KUBE2IAM, "--namespace-restrictions", "--namespace-restrictions"),
        (KUBE2IAM, "--insecure=false", "--insecure"),
        (KIAM, "--allow-route-regexp=^/latest/meta-data/ami-id$", "--allow-route-regexp"),
        (KIAM, "--no-json-log", "--json-log"),
        (GKE, "--enable-identity-endpoint=true", "--enable-identity-endpoint"),
        (GKE, "--passthrough-ksa-list=", "--passthrough-ksa-list"),
        // This text stands for the project and the cluster if `--attributes` does not name them.
        (GKE, "--attributes=cluster-name=d,cluster-location=asia-east1", "given twice"),
    ] {
        let remarks = imported(&format!("{line} {flags}")).remarks;
        assert!(!remarks.contains(absent), "{flags}: {absent} in {remarks}");
    }
}

#[test]
fn what_cannot_be_meant_is_named_by_its_flag_all_at_once() {
    for (line, flags, expected) in [
        (KIAM, "--foo=1 --bar", &["KIAM has no flag --foo", "KIAM has no flag --bar"][..]),
        (KIAM, "--foo bar", &["KIAM has no flag --foo"]),
        (KIAM, "--no-port", &["KIAM has no flag --no-port"]),
        (KIAM, "--", &["KIAM has no flag --"]),
        (KIAM, "stray", &["\"stray\" is not a flag"]),
        (KIAM, "--port", &["--port: expected a value"]),
        (KIAM, "--port --level=info", &["--port: expected a value"]),
        (KIAM, "--iptables=maybe", &["--iptables: expected true or false"]),
        (KIAM, "--no-iptables=true", &["--iptables: expected true or false"]),
        (KIAM, "--port=http --level=loud", &["--port: found", "--level: found"]),
        (KIAM, "--port=1,2", &["--port: found"]),
        (KIAM, "--role-base-arn=cart", &["--role-base-arn: found"]),
        (KIAM, "--assume-role-arn=a:b", &["--assume-role-arn: found"]),
        (KIAM, "--session-duration=long", &["--session-duration: found \"long\""]),
        (KIAM, "--session-duration=13h", &["--session-duration: found"]),
        (KIAM, "--allow-route-regexp=(", &["--allow-route-regexp: found"]),
        (KIAM, "--allow-route-regexp=a)|(b", &["--allow-route-regexp: found"]),
        (KIAM, "--region=europe", &["--region: found \"europe\""]),
        ("kiam --region eu-west-1 --account 12 --", "", &["--account: found"]),
        (
            "kiam --",
            "",
            &["these flags do not name the AWS region", "these flags do not name the AWS account"],
        ),
        ("kube2iam --", "", &["these flags do not name the AWS region"]),
        (
            "kube2iam --region=eu-west-1 --",
            "--auto-discover-base-arn",
            &["these flags do not name the AWS account"],
        ),
        (KUBE2IAM, "--role-base-arn=a", &["kube2iam has no flag --role-base-arn"]),
        (KUBE2IAM, "--namespace-restriction-format=sql", &["--namespace-restriction-format: found"]),
        (KUBE2IAM, "--metadata-addr=0.0.0.0:8181/x", &["--metadata-addr: found"]),
        (
            GKE,
            "--foo=1 --project-id=reef",
            &["gke-metadata-server has no flag --foo", "gke-metadata-server has no flag --project-id"],
        ),
        (
            GKE,
            "--token-exchange-endpoint=https://example.com/x",
            &[
                "--token-exchange-endpoint: found \"https://example.com/x\", expected sts or identitybindingtoken",
            ],
        ),
        (
            GKE,
            "--token-exchange-endpoint=http://example.com/v1/identitybindingtoken",
            &["--token-exchange-endpoint: found \"http://example.com\", expected an https URL"],
        ),
        (
            GKE,
            "--token-exchange-endpoint=https://sts.googleapis.com/v1/token",
            &["--identity-provider-id: found"],
        ),
        (GKE, "--passthrough-ksa-list=kube-dns", &["--passthrough-ksa-list: found \"kube-dns\""]),
        (GKE, "--attributes=team", &["--attributes: found \"team\""]),
        (GKE, "--attributes=a/b=c,..=d", &["--attributes: found \"c\"", "--attributes: found \"d\""]),
        (
            "gke-metadata-server --project-number x --zone a/b --",
            &GKE[GKE.find("--token").unwrap()..],
            &["--project-number: found \"x\", expected a whole number", "--zone: found \"a/b\""],
        ),
        (
            "gke-metadata-server --",
            "",
            &[
                "these flags do not name the project's number",
                "these flags do not name the zone",
                "these flags do not name the token exchange",
                "these flags do not name the workload identity provider",
                "these flags do not name the project:",
                "these flags do not name the cluster and its location",
            ],
        ),
    ] {
        let mistakes = mistakes(&format!("{line} {flags}"));
        for sentence in expected {
            assert!(
                mistakes.iter().any(|mistake| mistake.contains(sentence)),
                "{flags}: {sentence} in {mistakes:?}"
            );
        }
    }
}

#[test]
fn the_manifests_of_their_own_documentation_are_understood() {
    for line in [
        "kiam --region eu-west-1 --account 123456789012 -- /kiam agent --iptables --host-interface=cali+ --json-log --port=8181 \
         --cert=/etc/kiam/tls/agent.pem --key=/etc/kiam/tls/agent-key.pem --ca=/etc/kiam/tls/ca.pem --server-address=kiam-server:443 \
         --prometheus-listen-addr=0.0.0.0:9620 --prometheus-sync-interval=5s --gateway-timeout-creation=1s \
         server --json-log --level=warn --bind=0.0.0.0:443 --cert=/etc/kiam/tls/server.pem --key=/etc/kiam/tls/server-key.pem \
         --ca=/etc/kiam/tls/ca.pem --role-base-arn-autodetect --assume-role-arn=arn:aws:iam::123456789012:role/kiam-server --sync=1m",
        "kube2iam --region eu-west-1 -- --base-role-arn=arn:aws:iam::123456789012:role/ --iptables=true --host-ip=$(HOST_IP) \
         --node=$(NODE_NAME) --host-interface=weave --verbose --app-port=8181",
        // The DaemonSet of component version 0.2.21.
        "gke-metadata-server --project-number 123456789012 --zone asia-east1 -- /gke-metadata-server --logtostderr \
         --token-exchange-endpoint=https://securetoken.googleapis.com/v1/identitybindingtoken --identity-namespace=reef.svc.id.goog \
         --identity-provider-id=https://container.googleapis.com/v1/projects/reef/locations/asia-east1/clusters/c \
         --passthrough-ksa-list=kube-system:container-watcher-pod-reader,kube-system:event-exporter-sa,\
kube-system:fluentd-gcp-scaler,kube-system:heapster,kube-system:kube-dns,kube-system:metadata-agent,\
kube-system:network-metering-agent,kube-system:securityprofile-controller,istio-system:istio-ingressgateway-service-account,\
istio-system:cluster-local-gateway-service-account,csm:csm-sync-agent,knative-serving:controller \
         --attributes=cluster-name=c,cluster-uid=5eaf,cluster-location=asia-east1 --enable-identity-endpoint=true \
         --cluster-uid=5eaf",
    ] {
        imported(line);
    }
}

#[test]
fn an_expression_is_wrapped_unless_it_is_of_whole_paths_already() {
    for (expression, text, expected) in [
        ("^/latest/meta-data/(a|b)|/latest/x$", "/latest/meta-data/a/c", true),
        ("^/latest/meta-data/(a|b)|/latest/x$", "/y/latest/meta-data/a", false),
        ("^/latest/a$", "/latest/a", true),
        ("^/latest/a$", "/latest/ab", false),
        ("meta-data", "/latest/meta-data/a", true),
        ("^/latest/\\$", "/latest/$x", true),
        ("", "/anything", true),
    ] {
        let flags = vec![format!("--allow-route-regexp={expression}")];
        let request = ImportCommand { flags, ..request(KIAM).unwrap() };
        let yaml = import(&request).unwrap().yaml;
        let line = yaml.lines().find_map(|line| line.trim().strip_prefix("passthroughPaths: ")).unwrap();
        let written: Vec<String> = serde_json::from_str(line).unwrap();
        let pattern = seawall_protocols::aws::Pattern::new(&written[0]).unwrap();
        assert_eq!(pattern.matches(text), expected, "{expression} on {text}: {written:?}");
    }
}

#[test]
fn a_value_without_an_equal_is_shown_nowhere() {
    let ImportedConfig { yaml, remarks } =
        imported(&format!("{KUBE2IAM} --api-token=SECRET --api-token SECRET"));
    assert!(!yaml.contains("SECRET") && !remarks.contains("SECRET"));
    let shown = mistakes(&format!("{KUBE2IAM} --tokne=SECRET")).join(" ");
    assert!(!shown.contains("SECRET"), "{shown}");
}

#[test]
fn no_text_of_a_flag_leaves_its_place_in_the_file() {
    for text in ["a\nlisten: [here]", "\"", "a: b", "# x", "\u{0}", "é\u{202e}", "{", &"x".repeat(100_000)] {
        for (tool, line) in TOOLS.into_iter().zip(LINES) {
            for flag in tool.flags.iter().copied().flatten() {
                let flags = vec![format!("--{}={text}", flag.name)];
                // The import may also fail. If it succeeds, `import` has checked that the result is valid.
                if let Ok(imported) = import(&ImportCommand { flags, ..request(line).unwrap() }) {
                    assert!(!imported.yaml.contains("listen: [here]\n"), "{}", imported.yaml);
                }
            }
        }
    }
}

#[test]
fn bad_use_is_told_apart_from_bad_flags() {
    for line in [
        "",
        "kiam",
        "kiam --port=1",
        "azure -- --x",
        "kiam --port=1 --",
        "kiam --region --",
        "kiam eu-west-1 --",
        "kiam region eu-west-1 --",
    ] {
        assert!(request(line).is_err(), "{line}");
    }
}

/// The tools were once listed in three places.
#[test]
fn a_tool_of_the_list_is_in_the_help_with_its_own_options_and_in_what_bad_use_is_told() {
    let (usage, told) = (usage(), request("").unwrap_err());
    for tool in TOOLS {
        let line =
            usage.lines().find(|line| line.contains(&format!(" import {} ", tool.command_name))).unwrap();
        assert!(told.contains(tool.command_name), "{told}");
        for own in tool.options {
            assert!(
                line.contains(&format!("[--{} {}]", own.seawall_option_name, own.value_placeholder)),
                "{line}"
            );
            let told =
                request(&format!("{} --{} --", tool.command_name, own.seawall_option_name)).unwrap_err();
            assert!(
                told.contains(&format!("missing argument for option '--{}'", own.seawall_option_name)),
                "{told}"
            );
        }
        let told = request(&format!("{} --nobodys x --", tool.command_name)).unwrap_err();
        assert!(told.contains("--nobodys"), "{told}");
    }
}

/// The import once required an AWS region for every tool.
#[test]
fn what_must_be_told_is_the_tools_alone() {
    const NOTHING: SourceTool =
        SourceTool { flags: &[], options: &[], required_settings: &[], ignored_words: &[], ..kiam::KIAM };
    const ITS_OWN: RequiredSetting =
        RequiredSetting { is_missing: |draft| !draft.has_key("tide"), error_message: "tell the tide" };
    const TIDAL: SourceTool = SourceTool { required_settings: &[ITS_OWN], ..NOTHING };
    for (tool, expected) in [(&NOTHING, false), (&TIDAL, true)] {
        let mistakes = import(&ImportCommand { tool, own: Vec::new(), flags: Vec::new() }).unwrap_err().0;
        assert_eq!(mistakes == ["tell the tide"], expected, "{mistakes:?}");
        assert!(!mistakes.iter().any(|mistake| mistake.contains("--region")), "{mistakes:?}");
    }
}

/// The migration pages. The tests run the first example of each page and check the flags in its text.
const PAGES: [(&str, &str); 3] = [
    ("kiam", include_str!("../../../../../../docs/migrate-from-kiam.md")),
    ("kube2iam", include_str!("../../../../../../docs/migrate-from-kube2iam.md")),
    ("gke-metadata-server", include_str!("../../../../../../docs/migrate-from-gke-metadata-server.md")),
];

#[test]
fn the_examples_of_the_migration_pages_can_be_run() {
    for (word, page) in PAGES {
        let start = page.find(&format!("seawall-agent import {word}")).unwrap();
        let command = page[start..].split(" > ").next().unwrap().replace(['\\', '\''], "");
        imported(command.strip_prefix("seawall-agent import ").unwrap());
    }
}

#[test]
fn the_migration_pages_name_only_flags_that_there_are() {
    for (tool, (word, page)) in TOOLS.into_iter().zip(PAGES) {
        assert_eq!(tool.command_name, word);
        let named = page.split('`').filter_map(|text| text.strip_prefix("--"));
        let named = named.map(|text| text.split('=').next().unwrap_or(text));
        // Ignore names with a wildcard and the import's own options.
        let is_own = |name: &str| {
            ["offline", "workload-metadata"].contains(&name)
                || tool.options.iter().any(|own| own.seawall_option_name == name)
        };
        let named: Vec<_> = named.filter(|name| !name.ends_with(['*', '…']) && !is_own(name)).collect();
        assert!(named.len() > 15.min(tool.flags.iter().copied().flatten().count() - 1), "{named:?}");
        for name in named {
            let name = name.strip_prefix("no-").unwrap_or(name);
            assert!(tool.flags.iter().copied().flatten().any(|flag| flag.name == name), "{name}");
        }
    }
}
