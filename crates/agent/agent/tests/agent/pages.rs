//! What the pages say beside what the program has: each metric, refusal and event is explained, none is that does not exist, and
//! configurations that the pages show are taken.
//!
//! The lists are read out of the sources, because a metric that is written only in a cluster or beside the redirect would be
//! missing from a running agent's page. What is running is compared, too: with that, the reading is not of nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use seawall_http::{Refusal, RequestError};
use seawall_testkit::agent::process::run;
use tempfile::TempDir;

use crate::chart::ALERTS;
use crate::support::PROGRAM;
use crate::support::world::{Plan, World};

const OPERATE: &str = include_str!("../../../../../docs/operate.md");

/// Every page that shows a configuration or names a metric.
const PAGES: [&str; 10] = [
    include_str!("../../../../../README.md"),
    include_str!("../../../../../THREAT-MODEL.md"),
    include_str!("../../../../../docs/install.md"),
    OPERATE,
    include_str!("../../../../../docs/security.md"),
    include_str!("../../../../../docs/migrate-from-kiam.md"),
    include_str!("../../../../../docs/migrate-from-kube2iam.md"),
    include_str!("../../../../../docs/migrate-from-gke-metadata-server.md"),
    include_str!("../../../../../docs/migrate-from-metadata-concealment.md"),
    include_str!("../../../../../docs/move-nodes.md"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Where the agent's metrics and refusals stand.
const ITS_OWN: [&str; 7] = [
    "agent/src",
    "clouds/src",
    "identity/src",
    "observe/src",
    "protocols/src",
    "server/src",
    "../common/http/src",
];

fn its_own() -> Vec<String> {
    ITS_OWN.iter().flat_map(|folder| sources(&crates().join(folder))).collect()
}

/// The sources below a folder, without their tests.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            texts.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") && path.file_name().unwrap() != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
    texts
}

/// What stands between two quotes right behind each `before`.
fn quoted_behind<'t>(text: &'t str, before: &str) -> impl Iterator<Item = &'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

fn is_metric(name: &str) -> bool {
    name.starts_with("seawall_")
        && !name.ends_with('_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// As the source has it: the exposition format says of a counter that it is one.
fn without_total(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

pub(crate) fn metrics_of_the_sources() -> BTreeSet<String> {
    let texts = its_own();
    let strings = texts.iter().flat_map(|text| text.split('"').skip(1));
    strings.filter(|word| is_metric(word)).map(str::to_owned).collect()
}

/// The first cells of a heading's table, and the rest of each row.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let section = OPERATE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    // Up to the next heading of the same depth or a lesser one.
    let depth = heading.split(' ').next().unwrap();
    let end = (1..=depth.len()).filter_map(|n| section.find(&format!("\n{} ", "#".repeat(n)))).min();
    let lines = section[..end.unwrap_or(section.len())].lines();
    lines.filter_map(|line| line.strip_prefix("| `")?.split_once("` | ")).collect()
}

#[test]
fn every_metric_is_on_the_page_and_none_is_there_that_does_not_exist() {
    let registered = metrics_of_the_sources();
    let told: BTreeSet<String> = rows("## Metrics")
        .iter()
        .map(|(name, _)| without_total(name.split('{').next().unwrap()).to_owned())
        .collect();
    assert_eq!(told, registered);
}

#[test]
fn a_running_agents_metrics_are_on_the_page_with_the_names_that_they_have_there() {
    let world = World::start(&Plan::federate());
    let answer = world.admin("/metrics");
    let told: BTreeSet<&str> =
        rows("## Metrics").iter().map(|(name, _)| name.split('{').next().unwrap()).collect();
    let mut counted = 0;
    for line in answer.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
        assert!(told.contains(&*name), "{name} is not on the page");
        counted += 1;
    }
    assert!(counted > 20, "{}", answer.body);
}

#[test]
fn pages_name_no_metric_that_does_not_exist() {
    let registered = metrics_of_the_sources();
    for page in PAGES {
        let words = page.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        for name in words.filter(|word| word.starts_with("seawall_") && !word.ends_with('_')) {
            let bare =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(registered.contains(without_total(bare)), "{name}");
        }
    }
}

/// Each as its code and status.
fn refusals_of_the_sources() -> BTreeSet<(String, u16)> {
    let mut found = BTreeSet::new();
    for text in its_own() {
        for refusal in text.split("Refusal::new(").skip(1) {
            let mut parts = refusal.split(',');
            let (status, code) = (parts.next().unwrap().trim(), parts.next().unwrap().trim());
            let code = code.strip_prefix('"').and_then(|code| code.strip_suffix('"'));
            let code = code.unwrap_or_else(|| panic!("a code that is no literal: {}", &refusal[..60]));
            found.insert((code.to_owned(), status.parse().unwrap_or_else(|_| panic!("{code}: {status}"))));
        }
    }
    for flaw in [
        RequestError::TooLarge,
        RequestError::TargetTooLong,
        RequestError::NoVersion,
        RequestError::Version,
        RequestError::Framing,
        RequestError::Malformed(seawall_http::RequestFlaw::NoMethod),
    ] {
        let refusal = Refusal::from(flaw);
        found.insert((refusal.code.to_owned(), refusal.status));
    }
    found
}

#[test]
fn every_refusal_that_a_pod_can_see_is_on_the_page_with_its_status_and_no_other() {
    let mut told = BTreeSet::new();
    for (code, rest) in rows("## Refusals") {
        for status in rest.split(" | ").next().unwrap().split(", ") {
            let status = status.parse().unwrap_or_else(|_| panic!("{code}: {status:?}"));
            assert!(told.insert((code.to_owned(), status)), "{code} {status} stands twice");
        }
    }
    assert_eq!(told, refusals_of_the_sources());
}

#[test]
fn every_reason_of_an_event_is_on_the_page_and_no_other() {
    let source =
        std::fs::read_to_string(crates().with_file_name("common/core/src/kubernetes_events.rs")).unwrap();
    let reasons: BTreeSet<&str> =
        quoted_behind(&source, "=> ").filter(|word| word.chars().all(char::is_alphabetic)).collect();
    assert!(reasons.contains("CredentialsRefusedByPolicy"), "{reasons:?}");
    let told: BTreeSet<&str> = rows("## Events").iter().map(|(reason, _)| *reason).collect();
    assert_eq!(told, reasons);
}

/// What stands in blocks of YAML whose first line is this comment.
fn blocks(name: &str) -> Vec<&'static str> {
    let begin = format!("```yaml\n# {name}\n");
    let rests = PAGES.iter().flat_map(|page| page.split(&*begin).skip(1).collect::<Vec<_>>());
    rests.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// What the chart makes of the key `config` is this and what its mode decides.
fn config_of(values: &str) -> String {
    let (_, below) = values.split_once("\nconfig:\n").unwrap_or_else(|| panic!("no config in {values}"));
    let lines = below.lines().map_while(|line| line.strip_prefix("  "));
    lines.fold("identity: { strategy: source-ip }\n".to_owned(), |text, line| text + line + "\n")
}

#[test]
fn configurations_and_charts_values_on_the_pages_are_taken_by_check() {
    let folder = TempDir::with_prefix("seawall-pages-").unwrap();
    let file = folder.path().join("agent.yaml");
    let (whole, values) = (blocks("agent.yaml"), blocks("values.yaml"));
    assert!(!whole.is_empty() && values.len() >= 2, "{whole:?} {values:?}");
    for yaml in whole.into_iter().map(str::to_owned).chain(values.into_iter().map(config_of)) {
        std::fs::write(&file, &yaml).unwrap();
        let check = run(PROGRAM, &["check", "--offline", "--config", file.to_str().unwrap()]);
        assert_eq!(check.status.code(), Some(0), "{yaml}\n{}", String::from_utf8_lossy(&check.stderr));
    }
}

#[test]
fn every_alert_of_the_chart_has_its_section_and_no_other_is_there() {
    let of_chart: BTreeSet<&str> =
        ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let sections = OPERATE.lines().filter_map(|line| line.strip_prefix("### "));
    let told: BTreeSet<&str> = sections.filter(|word| word.starts_with("Seawall")).collect();
    assert_eq!(told, of_chart);
}
