//! The check that files with one start belong to one run: generators add up if they had one plan, and each a shard of its own.
//!
//! It knows first lines and file names, but no figures. It comes before any sum, because a wrong sum looks like any other.

use anyhow::{bail, ensure};
use serde_json::Value;

use super::generator_file::GeneratorFile;

/// Fields of the plan that may differ between generators: the shard, and settings of each generator or its machine.
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
    // Without a number of requests, the clients of a closed loop are not divided: each generator has its own.
    let divided = configs[0].stages.is_some() || !shard.is_whole() || !overlapping.is_whole();
    if divided && shard.overlaps(overlapping) {
        bail!(
            "{name} is shard {shard} of the run and {others} is shard {overlapping}: the shards overlap, so requests \
             would be counted twice; divide the schedule with `attack --shard`"
        );
    }
    Ok(())
}

/// Returns the differences of two plans. Fields that only one plan has come from another version, and are ignored.
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
