//! What the chart's alerts and board ask for is what the agent exports; `pages` reads that out of the sources.

use std::collections::BTreeSet;

use seawall_testkit::objects;
use serde_json::Value;

use crate::pages::metrics_of_the_sources;

pub(crate) const ALERTS: &str = include_str!("../../../../../deploy/helm/seawall/files/alerts.yaml");
const ALERTS_TEST: &str = include_str!("../../../../../deploy/helm/seawall/ci/alerts-test.yaml");
const BOARD: &str = include_str!("../../../../../deploy/helm/seawall/files/dashboard.json");

/// Names of ours in a text, as they stand there.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.starts_with("seawall_") && !word.ends_with('_')).collect()
}

/// A series' name without what its type adds (OpenMetrics, "Suffixes").
fn family(series: &str) -> &str {
    let ends = ["_total", "_bucket", "_count", "_sum"];
    ends.iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series)
}

#[test]
fn alerts_and_board_ask_for_series_that_the_agent_has() {
    let exported = metrics_of_the_sources();
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
fn each_alert_says_how_bad_it_is_how_long_it_lasts_and_of_which_agent_it_speaks() {
    let alerts = objects::parse_yaml_document(ALERTS);
    let alerts = alerts["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 12);
    for alert in alerts {
        let text = |key: &str| alert[key].as_str().unwrap_or_else(|| panic!("{key} of {alert}"));
        assert!(
            text("alert").starts_with("Seawall") && ["warning", "critical"].contains(&text("severity")),
            "{alert}"
        );
        // Of an agent that does not run, kube-state-metrics tells the node, or how many nodes there are.
        let place = match text("alert") {
            "SeawallNodeWithoutAgent" => "{{ $value }} node(s)",
            "SeawallAgentNeverReady" => "$labels.node",
            _ => "$labels.instance",
        };
        assert!(text("summary").contains(place) && text("for").ends_with('m'), "{alert}");
        let (open, closed) = (text("expr").matches('(').count(), text("expr").matches(')').count());
        assert_eq!(open, closed, "{alert}");
        // Nobody is woken for what a pod's owner can cause.
        let is_critical = text("severity") == "critical";
        assert_eq!(is_critical, text("alert") == "SeawallRedirectNotAttached", "{alert}");
    }
}

/// scripts/alerts-test runs them. Promtool is content with a test of an alert that does not exist.
#[test]
fn each_alert_has_a_test_in_which_it_fires_and_a_healthy_twin_with_series_of_the_same_names() {
    let (alerts, tests) = (objects::parse_yaml_document(ALERTS), objects::parse_yaml_document(ALERTS_TEST));
    let named = |name: &str| {
        let mut tests = tests["tests"].as_array().unwrap().iter();
        tests.find(|test| test["name"] == name).unwrap_or_else(|| panic!("no test {name}"))
    };
    for alert in alerts["alerts"].as_array().unwrap() {
        let name = alert["alert"].as_str().unwrap();
        let (fires, silent) = (named(&format!("{name} fires")), named(&format!("{name} is silent")));
        for (test, is_firing) in [(fires, true), (silent, false)] {
            let rule = &test["alert_rule_test"][0];
            assert_eq!(rule["alertname"], name);
            assert_eq!(!rule["exp_alerts"].as_array().unwrap().is_empty(), is_firing, "{name}");
        }
        assert_eq!(series(fires), series(silent), "{name}");
    }
}

/// The names of a test's series.
fn series(test: &Value) -> BTreeSet<&str> {
    let series = test["input_series"].as_array().unwrap().iter();
    series.map(|series| series["series"].as_str().unwrap().split('{').next().unwrap()).collect()
}
