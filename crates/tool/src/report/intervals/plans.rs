//! Whether files with one start are of one run: generators add up if they had one plan, and each a part of its own.
//!
//! Knows first lines and the names of files, no figures. Asked before anything is added up, because a sum of what does not
//! belong together looks like any other.

use anyhow::{bail, ensure};
use serde_json::Value;

use super::generator::GeneratorFile;

/// Which part of the plan is its own, and what `attack --help` says is each generator's own or follows from its machine.
const OWN: &[&str] = &["slice", "in_flight", "threads", "spin", "cadence"];

/// A longer value is not shown: a profile may have thousands of stages.
const SHOWN: usize = 80;

/// Refuses what another of them counts, too, and what is of another plan.
pub(super) fn belong_together(run: &[GeneratorFile]) -> anyhow::Result<()> {
    for (at, one) in run.iter().enumerate() {
        run[at + 1..].iter().try_for_each(|other| pair(one, other))?;
    }
    Ok(())
}

fn pair(one: &GeneratorFile, other: &GeneratorFile) -> anyhow::Result<()> {
    let (name, others) = (&one.name, &other.name);
    ensure!(name != others, "{name} is given twice: its requests would be counted twice");
    let differences = differences(&one.about["configuration"], &other.about["configuration"]);
    ensure!(
        differences.is_empty(),
        "{name} and {others} begin at one instant and are not of one plan: {}",
        differences.join("; ")
    );
    let configurations = [one, other].map(|generator| &generator.header.configuration);
    let [slice, overlapping] = configurations.map(|configuration| configuration.slice);
    // Clients of a closed loop that no number of hits ends are not divided: each generator has all of its own.
    let divided = configurations[0].stages.is_some() || !slice.is_whole() || !overlapping.is_whole();
    if divided && slice.overlaps(overlapping) {
        bail!(
            "{name} is slice {slice} of the run and {others} slice {overlapping}: the same hits would be counted twice; \
             `attack --slice` divides a schedule among generators"
        );
    }
    Ok(())
}

/// What of two plans is not the same. What only one of them has, another version wrote.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    let fields = one.as_object().into_iter().flatten().filter(|(key, _)| !OWN.contains(&key.as_str()));
    let both = fields.filter_map(|(key, value)| Some((key, value, other.get(key)?)));
    both.filter(|(_, value, others)| value != others)
        .map(|(key, value, others)| match [value, others].map(Value::to_string) {
            [value, others] if value.len().max(others.len()) <= SHOWN => {
                format!("{key} {value} and {others}")
            }
            _ => format!("{key} differs"),
        })
        .collect()
}
