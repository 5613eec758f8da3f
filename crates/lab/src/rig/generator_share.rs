//! One generator's part of a load that several generators send: every n-th request of one schedule, from a common start.
//!
//! A trial and an experiment describe the whole load. A part has its share of their numbers (clients, connections, requests in
//! flight) and its requests of the schedule. The coordinator sees the blocks of all parts and decides when a trial has enough. A
//! part continues until the coordinator stops it, or until nothing is left to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seawall_cause::experiment::{Experiment, ExperimentLoad as Asked};
use seawall_load::plan::LoadSpec;
use seawall_load::schedule::ScheduleShard;
use seawall_search::observation::{BLOCK_SECONDS, BlockCounts};
use seawall_search::trial_spec::TrialSpec;

/// The part of a load that this generator sends, and its time.
#[derive(Debug, Clone)]
pub struct LoadPart {
    /// The first instant, in nanoseconds since the Unix epoch.
    pub start_at: i64,
    /// The index of this part, from 0, and the number of parts.
    pub shard: (u64, u64),
    /// The number of the load, from 1. Generators with the same number draw the same random numbers.
    pub load_number: u64,
    /// Set by the coordinator to end this part, because it has seen enough blocks of all parts.
    pub stop_requested: Arc<AtomicBool>,
}

/// The share of a load that this generator sends; the whole load if it is the only one.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadShare(Option<LoadPart>);

impl LoadShare {
    pub(super) fn of(part: &LoadPart) -> Self {
        Self(Some(part.clone()))
    }

    /// Returns the number of parts of the load.
    pub(super) fn part_count(&self) -> f64 {
        self.0.as_ref().map_or(1.0, |part| part.shard.1.max(1) as f64)
    }

    /// Returns the shard of the schedule; the whole schedule for an invalid index.
    pub(super) fn shard(&self) -> ScheduleShard {
        let shard = self.0.as_ref().and_then(|part| ScheduleShard::new(part.shard.0, part.shard.1).ok());
        shard.unwrap_or_default()
    }

    /// Returns the share of a trial.
    pub(super) fn scale_trial(&self, whole: &TrialSpec) -> TrialSpec {
        let of = self.part_count();
        TrialSpec { rate: whole.rate / of, in_flight_cap: whole.in_flight_cap / of, ..*whole }
    }

    /// Returns this share of the load, with the common start.
    pub(super) fn with_shard_and_start(&self, load: LoadSpec) -> LoadSpec {
        LoadSpec { shard: self.shard(), start_unix_ns: self.0.as_ref().map(|part| part.start_at), ..load }
    }

    /// Returns the share of an experiment, without its schedule; none if there are fewer clients than parts and this part has no client.
    pub(super) fn scale_experiment(&self, whole: &Experiment) -> Option<(Experiment, Self)> {
        let Some(part) = &self.0 else { return Some((whole.clone(), self.clone())) };
        let mut own = whole.clone();
        let mut part = part.clone();
        if let Asked::Clients { clients, .. } = &mut own.load {
            part.shard.1 = part.shard.1.min(*clients as u64);
            *clients = share(*clients, part.shard);
            if *clients == 0 {
                return None;
            }
        }
        own.in_flight_cap = own.in_flight_cap.div_ceil(part.shard.1.max(1) as usize);
        own.variation.held_idle_connections = share(own.variation.held_idle_connections, part.shard);
        own.variation.max_connections =
            own.variation.max_connections.map(|most| share(most, part.shard).max(1));
        Some((own, Self(Some(part))))
    }

    /// Returns the number of the load; none if no other generator sends parts of it.
    pub(super) fn load_number(&self) -> Option<u64> {
        self.0.as_ref().map(|part| part.load_number)
    }

    /// Returns true if this is a part of a load. The times of its requests count from the common start.
    pub(super) fn is_part(&self) -> bool {
        self.0.is_some()
    }

    /// Returns true if the coordinator has seen enough.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.0.as_ref().is_some_and(|part| part.stop_requested.load(Ordering::Relaxed))
    }

    /// Returns true if the trial is to end.
    pub(super) fn is_enough(&self, offer: &TrialSpec, blocks: &[BlockCounts]) -> bool {
        if !self.is_part() {
            return offer.is_enough(blocks);
        }
        self.is_stop_requested()
            || (blocks.len() as f64 + 0.5) * BLOCK_SECONDS >= offer.max_duration.as_secs_f64()
    }
}

fn share(whole: usize, (index, of): (u64, u64)) -> usize {
    let (index, of) = (index as usize, of.max(1) as usize);
    if index < of { whole / of + usize::from(index < whole % of) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_cause::experiment::Variation;

    use super::*;

    fn part(index: u64, of: u64) -> LoadShare {
        LoadShare::of(&LoadPart {
            start_at: 7,
            shard: (index, of),
            load_number: 1,
            stop_requested: Arc::default(),
        })
    }

    fn clients(clients: usize) -> Experiment {
        let load = Asked::Clients { clients, lasts: Duration::from_secs(1), requests: 100 };
        let variation = Variation { held_idle_connections: 5, max_connections: Some(1), ..Variation::NONE };
        Experiment { name: "clients", load, variation, in_flight_cap: 10, drain: Duration::ZERO }
    }

    #[test]
    fn clients_are_shared_and_who_has_none_sends_nothing_of_theirs() {
        let shares = |of: u64, whole| -> Vec<_> {
            let own = (0..of).map(|index| part(index, of).scale_experiment(&clients(whole)));
            own.map(|own| own.map(|(own, share)| (own.load, share.shard().shard_count()))).collect()
        };
        let load = |clients| Asked::Clients { clients, lasts: Duration::from_secs(1), requests: 100 };
        assert_eq!(shares(3, 7), [Some((load(3), 3)), Some((load(2), 3)), Some((load(2), 3))]);
        assert_eq!(shares(3, 2), [Some((load(1), 2)), Some((load(1), 2)), None]);
        let own = part(1, 3).scale_experiment(&clients(7)).unwrap().0;
        assert_eq!(
            (own.variation.held_idle_connections, own.variation.max_connections, own.in_flight_cap),
            (2, Some(1), 4)
        );
    }

    #[test]
    fn a_rig_by_itself_sends_all_of_it() {
        let (own, share) = LoadShare::default().scale_experiment(&clients(7)).unwrap();
        assert_eq!(own, clients(7));
        assert!(
            share.shard().is_whole()
                && !share.is_part()
                && !share.is_stop_requested()
                && share.load_number().is_none()
        );
    }
}
