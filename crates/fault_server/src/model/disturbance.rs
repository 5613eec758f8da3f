//! Disturbances of the workers: pauses, drift, a noisy neighbour, warm-up, CPU credits and degradation.
//!
//! All faults of a server share them. Pauses depend only on time and the seed, so a fault may ask for any time.

use fastrand::Rng;

use super::NanosSinceStart;
use super::chance::normal;
use crate::fault_syntax::PlantedFault;

/// All disturbances of a server.
#[derive(Debug)]
pub(super) struct Disturbances {
    pauses: Option<Pauses>,
    paces: Vec<SpeedChange>,
    rng: Rng,
}

/// A disturbance that changes the speed of work.
#[derive(Debug)]
enum SpeedChange {
    Drift {
        amplitude: f64,
        step: NanosSinceStart,
        level: f64,
        steps: u64,
    },
    Bursts {
        share: f64,
        length: NanosSinceStart,
        every: NanosSinceStart,
    },
    WarmUp {
        share: f64,
        time: f64,
        first: Option<NanosSinceStart>,
    },
    Credits {
        times: f64,
        most: f64,
        left: f64,
        at: NanosSinceStart,
    },
    Collapse {
        factor: f64,
        wait: NanosSinceStart,
    },
    Metastable {
        factor: f64,
        wait: NanosSinceStart,
        rest: NanosSinceStart,
        degraded: bool,
        last: NanosSinceStart,
    },
}

/// The number of drift steps per correlation time. The change within a step is negligible.
const STEPS: u64 = 100;

impl Disturbances {
    pub(super) fn new(plants: &[PlantedFault], seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut paces: Vec<_> = plants.iter().filter_map(SpeedChange::new).collect();
        for pace in &mut paces {
            if let SpeedChange::Drift { amplitude, level, .. } = pace {
                *level = *amplitude * normal(&mut rng);
            }
        }
        let pauses = plants.iter().find(|plant| plant.kind.name == "pauses");
        Self { pauses: pauses.map(|plant| Pauses::new(plant, seed)), paces, rng }
    }

    /// Returns the end of work that starts at `start` after this wait, on one of this many workers.
    pub(super) fn end_of_work(
        &mut self,
        start: NanosSinceStart,
        work: NanosSinceStart,
        wait: NanosSinceStart,
        workers: usize,
    ) -> NanosSinceStart {
        let mut times = 1.0;
        for pace in &mut self.paces {
            times *= pace.times(start, work as f64 / 1e9 / workers as f64, wait, &mut self.rng);
        }
        let work =
            if self.paces.is_empty() { work } else { (work as f64 * times).round() as NanosSinceStart };
        self.pauses.as_ref().map_or(start + work, |pauses| pauses.finish(start, work))
    }

    /// Returns this time, or the end of the pause that contains it.
    pub(super) fn end_of_pause(&self, at: NanosSinceStart) -> NanosSinceStart {
        self.pauses.as_ref().map_or(at, |pauses| pauses.finish(at, 0))
    }
}

impl SpeedChange {
    fn new(plant: &PlantedFault) -> Option<Self> {
        let (number, nanos) = (|key| plant.parameter_value(key), |key| plant.parameter_as_nanos(key));
        Some(match plant.kind.name {
            "drift" => {
                let step = (nanos("time") / STEPS).max(1);
                Self::Drift { amplitude: number("amplitude"), step, level: 0.0, steps: 0 }
            }
            "bursts" => {
                Self::Bursts { share: number("share"), length: nanos("length"), every: nanos("every") }
            }
            "warm-up" => Self::WarmUp { share: number("share"), time: number("time"), first: None },
            "credits" => {
                let most = number("amount");
                Self::Credits { times: number("times"), most, left: most, at: 0 }
            }
            "collapse" => Self::Collapse { factor: number("factor"), wait: nanos("wait") },
            "metastable" => {
                let (factor, wait, rest) = (number("factor"), nanos("wait"), nanos("rest"));
                Self::Metastable { factor, wait, rest, degraded: false, last: 0 }
            }
            _ => return None,
        })
    }

    /// Returns the factor of the duration of work. `spend` is the work in seconds, as a share of all workers' time.
    fn times(&mut self, start: NanosSinceStart, spend: f64, waited: NanosSinceStart, rng: &mut Rng) -> f64 {
        match self {
            Self::Drift { amplitude, step, level, steps } => {
                drift(level, steps, start / *step, *amplitude, rng);
                (1.0 + *level).max(0.1)
            }
            // The first burst comes after a whole `every`, so that a trial starts undisturbed.
            Self::Bursts { share, length, every } => {
                let busy = start >= *every && start % *every < *length;
                if busy { 1.0 / (1.0 - *share) } else { 1.0 }
            }
            Self::WarmUp { share, time, first } => {
                let age = start.saturating_sub(*first.get_or_insert(start)) as f64 / 1e9;
                1.0 / (1.0 - (1.0 - *share) * (-age / *time).exp())
            }
            Self::Credits { times, most, left, at } => {
                let earned = start.saturating_sub(*at) as f64 / 1e9;
                (*left, *at) = ((*left + earned).min(*most), start.max(*at));
                let fast = *left >= spend;
                // Slow work uses the credits that it earns, so spent credits stay spent.
                *left -= spend;
                if fast { 1.0 / *times } else { 1.0 }
            }
            Self::Collapse { factor, wait } => {
                if waited > *wait {
                    *factor
                } else {
                    1.0
                }
            }
            Self::Metastable { factor, wait, rest, degraded, last } => {
                let rested = start.saturating_sub(*last) >= *rest;
                *degraded = waited > *wait || *degraded && !rested;
                *last = start.max(*last);
                if *degraded { *factor } else { 1.0 }
            }
        }
    }
}

/// Advances a first-order autoregressive level to this step.
fn drift(level: &mut f64, steps: &mut u64, now: u64, amplitude: f64, rng: &mut Rng) {
    // After ten correlation times, the old level no longer matters.
    let due = now.saturating_sub(*steps).min(10 * STEPS);
    let keeps = (-1.0 / STEPS as f64).exp();
    for _ in 0..due {
        *level = *level * keeps + amplitude * (1.0 - keeps * keeps).sqrt() * normal(rng);
    }
    *steps = now.max(*steps);
}

/// Pauses of the whole server.
#[derive(Debug)]
struct Pauses {
    length: NanosSinceStart,
    every: NanosSinceStart,
    /// The largest shift of a pause, in nanoseconds.
    jitter: f64,
    seed: u64,
}

impl Pauses {
    fn new(plant: &PlantedFault, seed: u64) -> Self {
        let (length, every) = (plant.parameter_as_nanos("length"), plant.parameter_as_nanos("every"));
        // The shift is half of `jitter`, but at most so large that two pauses cannot meet.
        let jitter =
            (every as f64 * plant.parameter_value("jitter") / 2.0).min((every - length) as f64 / 2.0);
        Self { length, every, jitter, seed }
    }

    /// Returns the start of a pause. The first comes after a whole `every`.
    fn begins(&self, number: u64) -> NanosSinceStart {
        let mut rng = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let shift = self.jitter * (2.0 * rng.f64() - 1.0);
        ((number + 1) as f64 * self.every as f64 + shift) as NanosSinceStart
    }

    /// Returns the end of work that starts at `start`. Work of length 0 ends at the end of the pause.
    fn finish(&self, start: NanosSinceStart, work: NanosSinceStart) -> NanosSinceStart {
        let (mut at, mut left) = (start, work);
        // A shifted pause may still last, or may have started, within two periods.
        for number in (start / self.every).saturating_sub(2).. {
            let begins = self.begins(number);
            if begins > at + left {
                break;
            }
            if begins + self.length <= at {
                continue;
            }
            left -= begins.saturating_sub(at).min(left);
            at = begins + self.length;
        }
        at + left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: NanosSinceStart = 1_000_000;

    fn weather(text: &str) -> Disturbances {
        Disturbances::new(&PlantedFault::parse_all(&[text]).unwrap(), 1)
    }

    #[test]
    fn work_stands_still_in_a_pause_and_goes_on_after_it() {
        let mut weather = weather("pauses,length=200ms,every=2s");
        assert_eq!(weather.end_of_pause(1999 * MS), 1999 * MS);
        assert_eq!(weather.end_of_pause(2000 * MS), 2200 * MS);
        assert_eq!(weather.end_of_pause(2199 * MS), 2200 * MS);
        assert_eq!(weather.end_of_pause(2200 * MS), 2200 * MS);
        assert_eq!(weather.end_of_work(1990 * MS, 50 * MS, 0, 1), 2240 * MS);
        assert_eq!(weather.end_of_work(2100 * MS, 3000 * MS, 0, 1), 5400 * MS);
        assert_eq!(weather.end_of_work(0, 1500 * MS, 0, 1), 1500 * MS);
    }

    #[test]
    fn pauses_that_jitter_take_the_same_share_and_keep_their_length() {
        let jittered = weather("pauses,length=100ms,every=1s,jitter=0.5");
        let still = (0..100_000_u64).filter(|n| jittered.end_of_pause(n * MS) > n * MS).count();
        assert!((9_800..=10_000).contains(&still), "{still}");
    }

    #[test]
    fn a_neighbour_slows_work_during_its_bursts_alone() {
        let mut weather = weather("bursts,share=0.5,length=1s,every=10s");
        let took = |weather: &mut Disturbances, at| weather.end_of_work(at, 10 * MS, 0, 1) - at;
        assert_eq!(took(&mut weather, 500 * MS), 10 * MS);
        assert_eq!(took(&mut weather, 10_500 * MS), 20 * MS);
        assert_eq!(took(&mut weather, 11_500 * MS), 10 * MS);
    }

    #[test]
    fn a_drift_has_the_deviation_that_it_was_given() {
        let mut weather = weather("drift,amplitude=0.05,time=1s");
        let levels: Vec<_> = (0..200_000_u64)
            .map(|n| weather.end_of_work(n * 10 * MS, 1000 * MS, 0, 1) - n * 10 * MS)
            .collect();
        let deviations = levels.iter().map(|took| (*took as f64 / 1e9 - 1.0).powi(2));
        let deviation = (deviations.sum::<f64>() / levels.len() as f64).sqrt();
        assert!((deviation - 0.05).abs() < 0.005, "{deviation}");
    }

    #[test]
    fn warming_up_begins_at_its_share_with_the_first_request_and_ends() {
        let mut weather = weather("warm-up,share=0.5,time=5s");
        let hour = 3_600_000 * MS;
        assert_eq!(weather.end_of_work(hour, 10 * MS, 0, 1) - hour, 20 * MS);
        let later = hour + 60_000 * MS;
        assert!(weather.end_of_work(later, 10 * MS, 0, 1) - later < 10_010_000);
    }

    #[test]
    fn credits_last_as_long_as_they_are_spent_faster_than_they_come() {
        let mut weather = weather("credits,times=2,amount=10s");
        let (mut at, work) = (0, 10 * MS);
        let mut fast_until = 0;
        while at < 60_000 * MS {
            let end = weather.end_of_work(at, work, 0, 1);
            if end - at < work {
                fast_until = end;
            }
            at = end;
        }
        // Two credits are spent per second, and one is earned.
        assert!(fast_until.abs_diff(10_000 * MS) < 100 * MS, "{fast_until}");
    }

    #[test]
    fn metastability_outlives_the_wait_that_began_it_and_ends_with_rest() {
        let (mut once, mut for_long) = (weather("collapse"), weather("metastable,rest=3s"));
        let took = |weather: &mut Disturbances, at, wait| {
            (weather.end_of_work(at * MS, 10 * MS, wait * MS, 1) - at * MS) / MS
        };
        for weather in [&mut once, &mut for_long] {
            assert_eq!((took(weather, 0, 100), took(weather, 10, 151)), (10, 15));
        }
        assert_eq!((took(&mut once, 20, 0), took(&mut for_long, 20, 0)), (10, 15));
        assert_eq!((took(&mut for_long, 3000, 0), took(&mut for_long, 6000, 0)), (15, 10));
    }
}
