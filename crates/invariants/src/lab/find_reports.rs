//! Properties that hold for any file that `find` resumes or compares: reading it never panics, writing and reading it again
//! changes nothing, no run is better or worse than itself, and resuming it never panics. Called by `runs.rs` of the crate's tests
//! and by the fuzz target `find`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use seawall_lab::find::compare::{ComparisonVerdict, compare};
use seawall_lab::find::find_report::FindReport;
use seawall_lab::find::plan::{FindPlan, TargetInfo};
use seawall_lab::find::{read_report, resume};
use seawall_search::search_profile::Profile;

/// The bytes of a file.
pub fn check(input: &[u8]) {
    let Ok(answer) = read_report::parse(input) else { return };
    let written = answer.to_json().unwrap();
    assert_eq!(read_report::parse(written.as_bytes()).unwrap(), answer, "{written}");
    if let Ok(compared) = compare(&answer, &answer) {
        assert!(
            !matches!(compared.verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse),
            "{compared:?}"
        );
    }
    if let Some(plan) = plan(&answer) {
        // Either it leads to where the run ended, or it is refused.
        let _ = resume::restore_search(&plan, &answer).map(|mut search| search.next_step());
    }
}

/// Returns the plan of the run, from the configuration in its report.
fn plan(answer: &FindReport) -> Option<FindPlan> {
    let asked = &answer.config;
    let profile =
        [Profile::QUICK, Profile::THOROUGH].into_iter().find(|profile| profile.name == asked.effort)?;
    let target = TargetInfo {
        url: asked.target.clone(),
        count: asked.target_count,
        uses_tls: false,
        has_host_name: false,
    };
    let timeout = asked.timeout_seconds.map(Duration::try_from_secs_f64).transpose().ok()?;
    Some(FindPlan {
        goal: asked.slo.to_search_goal().ok()?,
        profile,
        max_rate: asked.max_rate,
        budget: None,
        looks_for_cause: false,
        target_info: target,
        arrivals: asked.arrivals,
        connections: asked.connections.clone(),
        timeout,
        fingerprint: asked.request_fingerprint.clone(),
    })
}
