//! A rig's part of what several rigs send together: every n-th hit of one schedule, from one instant on.
//!
//! What an offer and an experiment ask for is the whole's; a part has its share of what a number of them (clients, connections, requests
//! in flight) says, and its hits of the schedule. When an offer was enough is for whoever sees the blocks of all parts: a part goes on
//! until it is told so, or until there is nothing more to send.

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
    /// Its place among so many, from 0.
    pub shard: (u64, u64),
    /// The number of the load, from 1: rigs that have the same one for a load draw the same of what is left to chance.
    pub load_number: u64,
    /// Set by whoever has seen enough of it.
    pub stop_requested: Arc<AtomicBool>,
}

/// The share of a load that a rig sends.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadShare(Option<LoadPart>);

impl LoadShare {
    pub(super) fn of(part: &LoadPart) -> Self {
        Self(Some(part.clone()))
    }

    /// Of how many parts it is one.
    pub(super) fn part_count(&self) -> f64 {
        self.0.as_ref().map_or(1.0, |part| part.shard.1.max(1) as f64)
    }

    /// Its hits of a schedule; of a place that there is not, all of them.
    pub(super) fn shard(&self) -> ScheduleShard {
        let shard = self.0.as_ref().and_then(|part| ScheduleShard::new(part.shard.0, part.shard.1).ok());
        shard.unwrap_or_default()
    }

    /// Returns the share of a trial.
    pub(super) fn scale_trial(&self, whole: &TrialSpec) -> TrialSpec {
        let of = self.part_count();
        TrialSpec { rate: whole.rate / of, most_in_flight: whole.most_in_flight / of, ..*whole }
    }

    /// The load, in this share and when it is to be.
    pub(super) fn scale_load(&self, load: LoadSpec) -> LoadSpec {
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
        own.most_in_flight = own.most_in_flight.div_ceil(part.shard.1.max(1) as usize);
        own.variation.held_idle_connections = share(own.variation.held_idle_connections, part.shard);
        own.variation.connections = own.variation.connections.map(|most| share(most, part.shard).max(1));
        Some((own, Self(Some(part))))
    }

    /// The number of the load, if others send parts of it.
    pub(super) fn load_number(&self) -> Option<u64> {
        self.0.as_ref().map(|part| part.load_number)
    }

    /// True if this is a part of a load. The requests of a part count from the first instant that all parts have.
    pub(super) fn is_part(&self) -> bool {
        self.0.is_some()
    }

    /// True if the coordinator has seen enough.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.0.as_ref().is_some_and(|part| part.stop_requested.load(Ordering::Relaxed))
    }

    /// True if a trial is to end.
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
        let variation = Variation { held_idle_connections: 5, connections: Some(1), ..Variation::NONE };
        Experiment { name: "clients", load, variation, most_in_flight: 10, drain: Duration::ZERO }
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
            (own.variation.held_idle_connections, own.variation.connections, own.most_in_flight),
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
