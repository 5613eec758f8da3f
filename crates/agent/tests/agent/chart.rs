//! What the chart's alerts and board ask for is what the agent exports.
//!
//! The names are read out of the sources, because a metric that is written only in a cluster or beside the redirect would be missing from
//! a running agent's page. What is running is compared, too: with that, the reading is not of nothing.

use std::collections::BTreeSet;
use std::path::Path;

use seawall_testkit::objects;
use serde_json::Value;

use crate::support::world::{Plan, World};

const ALERTS: &str = include_str!("../../../../deploy/helm/seawall/files/alerts.yaml");
const BOARD: &str = include_str!("../../../../deploy/helm/seawall/files/dashboard.json");

/// Names of ours in a text, as they stand there.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with("seawall_") && !word.ends_with('_')).collect()
}

/// The string literals of the sources that are names of ours, tests left out.
fn of_sources(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            of_sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let literals = shipped.split('"').skip(1);
            into.extend(literals.filter(|word| names(word).contains(word)).map(str::to_owned));
        }
    }
}

/// A series' name without what its type adds (OpenMetrics, "Suffixes").
fn family(series: &str) -> &str {
    let ends = ["_total", "_bucket", "_count", "_sum"];
    ends.iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series)
}

fn exported() -> BTreeSet<String> {
    let mut exported = BTreeSet::new();
    of_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut exported);
    exported
}

#[test]
fn alerts_and_board_ask_for_series_that_the_agent_has() {
    let exported = exported();
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let queries: Vec<String> =
        board["panels"].as_array().unwrap().iter().map(|panel| panel["targets"].to_string()).collect();
    for text in queries.iter().map(String::as_str).chain([ALERTS]) {
        let asked = names(text);
        assert!(!asked.is_empty(), "a panel that asks for nothing: {text}");
        for series in asked {
            assert!(exported.contains(family(series)), "{series} is no series of the agent's");
        }
    }
}

#[test]
fn every_family_that_a_running_agent_has_is_found_in_the_sources() {
    let exported = exported();
    let world = World::start(&Plan::federate());
    let page = world.admin("/metrics").body;
    let families: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(families.len() > 20, "{page}");
    for family in families {
        assert!(exported.contains(family), "{family}");
    }
}

#[test]
fn each_alert_says_how_bad_it_is_how_long_it_lasts_and_of_which_agent_it_speaks() {
    let alerts = objects::document(ALERTS);
    let alerts = alerts["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 5);
    for alert in alerts {
        let text = |key: &str| alert[key].as_str().unwrap_or_else(|| panic!("{key} of {alert}"));
        assert!(
            text("alert").starts_with("Seawall") && ["warning", "critical"].contains(&text("severity")),
            "{alert}"
        );
        assert!(text("summary").contains("$labels.instance") && text("for").ends_with('m'), "{alert}");
        let (open, closed) = (text("expr").matches('(').count(), text("expr").matches(')').count());
        assert_eq!(open, closed, "{alert}");
    }
}
