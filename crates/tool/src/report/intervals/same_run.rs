//! Whether files with one start are of one run: generators add up if they had one plan, and each a part of its own.
//!
//! Knows first lines and the names of files, no figures. Asked before anything is added up, because a sum of what does not
//! belong together looks like any other.

use anyhow::{bail, ensure};
use serde_json::Value;

use super::generator_file::GeneratorFile;

/// Which part of the plan is its own, and what `attack --help` says is each generator's own or follows from its machine.
const OWN: &[&str] = &["shard", "max_in_flight", "threads", "busy_poll_seconds", "interval_seconds"];

/// A longer value is not shown: a profile may have thousands of stages.
const SHOWN: usize = 80;

/// Refuses what another of them counts, too, and what is of another plan.
pub(super) fn check_same_run(run: &[GeneratorFile]) -> anyhow::Result<()> {
    for (at, one) in run.iter().enumerate() {
        run[at + 1..].iter().try_for_each(|other| pair(one, other))?;
    }
    Ok(())
}

fn pair(one: &GeneratorFile, other: &GeneratorFile) -> anyhow::Result<()> {
    let (name, others) = (&one.name, &other.name);
    ensure!(name != others, "{name} is given twice: give each file once");
    let differences = differences(&one.raw_header["config"], &other.raw_header["config"]);
    ensure!(
        differences.is_empty(),
        "{name} and {others} begin at the same instant but have different plans: {}",
        differences.join("; ")
    );
    let configs = [one, other].map(|generator| &generator.header.config);
    let [shard, overlapping] = configs.map(|config| config.shard);
    // Clients of a closed loop that no number of hits ends are not divided: each generator has all of its own.
    let divided = configs[0].stages.is_some() || !shard.is_whole() || !overlapping.is_whole();
    if divided && shard.overlaps(overlapping) {
        bail!(
            "{name} is shard {shard} of the run and {others} is shard {overlapping}: the shards overlap, so requests \
             would be counted twice; divide the schedule with `attack --shard`"
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
                format!("{key} is {value} and {others}")
            }
            _ => format!("{key} differs"),
        })
        .collect()
}
