//! The shards of a schedule that no file has: without them, the report does not cover the whole run.
//!
//! This module knows shards and file names, but no figures. [`same_run`](super::same_run) checks that no shard is there twice.
//! Generators of a closed loop can each be a whole run.

use std::collections::BTreeSet;

use seawall_load::schedule::ScheduleShard;

/// Missing shards that are named one by one.
const NAMED: usize = 5;

/// Describes the shards that are missing beside these (each with the name of its file), in a sentence for each number of shards.
pub(super) fn describe_missing_shards(run: &[(&str, ScheduleShard)]) -> Vec<String> {
    let divisions: BTreeSet<u64> = run.iter().map(|(_, shard)| shard.shard_count()).collect();
    divisions.into_iter().filter_map(|of| missing_of(of, run)).collect()
}

fn missing_of(of: u64, run: &[(&str, ScheduleShard)]) -> Option<String> {
    let (files, there): (Vec<&str>, BTreeSet<String>) = run
        .iter()
        .filter(|(_, shard)| shard.shard_count() == of)
        .map(|(file, shard)| (*file, shard.to_string()))
        .unzip();
    let mut absent = (1..=of).map(|number| format!("{number}/{of}")).filter(|shard| !there.contains(shard));
    let named: Vec<_> = absent.by_ref().take(NAMED).collect();
    let names = match (&named[..], absent.count()) {
        ([], _) => return None,
        ([only], _) => format!("shard {only} is"),
        (_, 0) => format!("shards {} are", named.join(", ")),
        (_, more) => format!("shards {} and {more} more are", named.join(", ")),
    };
    Some(format!("{names} missing besides {}: the report covers the given shards only", files.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(shards: &[&str]) -> Vec<String> {
        let run: Vec<_> = shards.iter().map(|shard| ("f", shard.parse().unwrap())).collect();
        describe_missing_shards(&run)
    }

    #[test]
    fn shards_that_no_file_is_of_are_named_and_their_number_is_bounded() {
        assert!(
            told(&["1/1"]).is_empty() && told(&["1/1", "1/1"]).is_empty() && told(&["2/2", "1/2"]).is_empty()
        );
        assert_eq!(
            told(&["1/3", "2/3"]),
            ["shard 3/3 is missing besides f, f: the report covers the given shards only"]
        );
        assert_eq!(
            told(&["2/3"]),
            ["shards 1/3, 3/3 are missing besides f: the report covers the given shards only"]
        );
        let [many] = &told(&["2/1048576"])[..] else { panic!() };
        assert!(
            many.starts_with("shards 1/1048576, 3/1048576, ") && many.contains(" and 1048570 more are"),
            "{many}"
        );
        assert_eq!(told(&["1/2", "2/2", "1/3"]).len(), 1);
        assert_eq!(told(&["1/2", "1/3"]).len(), 2);
    }
}
