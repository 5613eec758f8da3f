//! Records the shards in which known clients recently connected, so that a thread accepts from these shards first.
//!
//! A flood from unknown addresses then cannot delay the connections of a quiet pod.

/// The shards in which the thread recently accepted a known client.
/// This type counts time in sweeps, because a clock read for each connection would cost more CPU time than the whole list.
#[derive(Debug, Default)]
pub struct RecentKnownClientShards {
    /// For each shard, the value of `sweeps` at the last accept of a known client, plus one. Zero means that the thread has
    /// accepted no known client in this shard.
    last: Vec<u32>,
    sweeps: u32,
}

impl RecentKnownClientShards {
    /// One minute, as a number of sweeps (`connection_table::SWEEP_INTERVAL`).
    const LATELY: u32 = 240;

    /// Records that the thread has just accepted a known client in this shard.
    pub fn mark_shard_recently_known(&mut self, lane: usize) {
        if self.last.len() <= lane {
            self.last.resize(lane + 1, 0);
        }
        self.last[lane] = self.sweeps + 1;
    }

    /// True if the thread recently accepted a known client in this shard.
    pub fn had_recent_known_client(&self, lane: usize) -> bool {
        self.last.get(lane).is_some_and(|last| *last > 0 && self.sweeps - (last - 1) < Self::LATELY)
    }

    /// Advances the time by one sweep.
    pub fn advance_one_sweep(&mut self) {
        self.sweeps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_known_for_a_minute_from_when_somebody_known_was_last_accepted_in_it() {
        let mut known = RecentKnownClientShards::default();
        known.mark_shard_recently_known(3);
        assert!(
            known.had_recent_known_client(3)
                && !known.had_recent_known_client(2)
                && !known.had_recent_known_client(1000)
        );
        for _ in 1..RecentKnownClientShards::LATELY {
            known.advance_one_sweep();
        }
        assert!(known.had_recent_known_client(3));
        known.mark_shard_recently_known(5);
        known.advance_one_sweep();
        assert!(!known.had_recent_known_client(3) && known.had_recent_known_client(5));
    }
}
