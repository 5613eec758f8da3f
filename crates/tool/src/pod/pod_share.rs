//! The share of a pod in a number of the whole load.

/// Returns the share of one pod, at least 1: a pod without any could not send its shard of the schedule.
pub(super) fn pod_share(whole: u64, (index, of): (u64, u64)) -> u64 {
    if whole == u64::MAX { whole } else { (whole / of + u64::from(index < whole % of)).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole_and_no_pod_has_none() {
        for (whole, of) in [(10, 3), (64, 20), (7, 7)] {
            assert_eq!((0..of).map(|index| pod_share(whole, (index, of))).sum::<u64>(), whole);
        }
        assert_eq!((pod_share(2, (4, 5)), pod_share(u64::MAX, (1, 5))), (1, u64::MAX));
    }
}
