//! Draws random faults for the benchmark of `find`, as a pure function of a seed.
//!
//! The ranges are those of the study behind `find` (sections 6 and 7). The rates are those of its goal, 50/s to 20,000/s, log-uniform as
//! far as the class allows.

use fastrand::Rng;

use super::fault_syntax::PlantedFault;
use super::kind::FaultKind;

/// The lowest and highest rate, per second.
const RATES: (f64, f64) = (50.0, 20_000.0);

/// The shortest and longest service time, in seconds; below, the coefficients of variation.
const SERVICES: (f64, f64) = (0.001, 0.120);
const CVS: [f64; 3] = [0.05, 0.2, 1.0];

/// The least and the largest number of workers or places.
const WORKERS: (usize, usize) = (2, 32);

/// The factor of the second fault's limit over the first, so that both faults are visible.
const SECOND: (f64, f64) = (1.05, 1.4);

/// The least bucket size, as seconds of the rate. A client's sender may pause this long and then send a burst; a smaller bucket would break
/// because of the client.
const LATENESS: f64 = 0.02;

/// The least timeout, as a multiple of the service time. With exponential service times, one request in 160,000 takes longer. A shorter
/// timeout would fail some of a thousand requests at any rate, so there would be no limit.
const PATIENCE: f64 = 12.0;

/// Returns the classes that can be drawn: all except `ports`, which is not a fault of the server.
pub fn drawable_classes() -> impl Iterator<Item = &'static str> {
    FaultKind::ALL.iter().filter_map(|kind| kind.cause_class).filter(|class| *class != "ports")
}

/// Draws one fault for each of these classes, or one of a random class if the list is empty. A class that cannot be drawn is left out.
#[must_use]
pub fn draw_faults(wanted: &[&str], seed: u64) -> Vec<PlantedFault> {
    let mut rng = Rng::with_seed(seed);
    let all: Vec<_> = drawable_classes().collect();
    let any = rng.choice(&all).copied();
    let wanted: Vec<_> = if wanted.is_empty() { any.into_iter().collect() } else { wanted.to_vec() };
    let kinds: Vec<_> =
        wanted.into_iter().filter_map(|class| FaultKind::all_of_cause_class(class).next()).collect();
    let mut rate = log_uniform(&mut rng, RATES);
    let most = kinds.iter().map(|kind| most_rate(kind.name)).fold(RATES.1, f64::min);
    // The rate is drawn again within the possible range rather than set to its end.
    rate = if rate > most { log_uniform(&mut rng, (RATES.0, most)) } else { rate };
    let mut plants = Vec::new();
    for kind in kinds {
        plants.extend(drawn(kind.name, rate, &mut rng));
        rate *= between(&mut rng, SECOND);
    }
    plants
}

/// Returns the highest rate of a class: the most workers with the shortest service time, or the limit of real computing and exact
/// counting.
fn most_rate(name: &str) -> f64 {
    match name {
        "pool" | "timeout-chain" | "uneven" | "concurrency-cap" => WORKERS.1 as f64 / 0.002,
        // One thread with at least 0.2 ms of real work.
        "cpu" => 2_000.0,
        "quota" => 2_000.0,
        "connection-cap" | "churn" => 1_000.0,
        _ => RATES.1,
    }
}

fn drawn(name: &str, rate: f64, rng: &mut Rng) -> Option<PlantedFault> {
    let plant = PlantedFault::parse(name).ok()?;
    Some(match name {
        "rate-limiter" => {
            limited(plant, rate, rng).with_parameter("status", [429.0, 503.0, 403.0][rng.usize(..3)])
        }
        "hanging-limiter" => limited(plant, rate, rng),
        "delaying-limiter" => plant
            .with_parameter("rate", round(rate))
            .with_parameter("queue", log_uniform(rng, (0.05, 1.0)).mul_add(rate, 5.0).round()),
        "pool" => workers(plant, rate, rng).with_parameter("queue", queue(rate, rng)),
        "timeout-chain" => {
            let (timeout, tries) = (between(rng, (0.3, 1.2)), rng.usize(1..=3) as f64);
            let plant = workers(plant, rate, rng).with_parameter("tries", tries);
            let timeout = timeout.max(PATIENCE * plant.parameter_value("service"));
            plant.with_parameter("timeout", round_span(timeout))
        }
        "uneven" => uneven(plant, rate, rng),
        "cpu" => plant.with_parameter("work", round_span(1.0 / rate)),
        "quota" => quota(plant, rate, rng),
        "concurrency-cap" => places(plant, rate, rng),
        "connection-cap" => connections(plant, rate, rng),
        "churn" => plant.with_parameter("cost", round_span(1.0 / rate)),
        "keep-alive" => plant.with_parameter("after", log_uniform(rng, (20.0, 500.0)).round()),
        "pauses" => pauses(plant, rng),
        "bandwidth" => {
            let body = log_uniform(rng, (1_000.0, 50_000.0)).round();
            plant.with_parameter("body", body).with_parameter("rate", (rate * (body + 41.0)).round())
        }
        "dns" => plant.with_parameter("delay", round_span(between(rng, (0.05, 0.3)))),
        _ => return None,
    })
}

fn limited(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let least = (rate * LATENESS).max(1.0);
    plant
        .with_parameter("rate", round(rate))
        .with_parameter("bucket", log_uniform(rng, (least, rate)).round())
}

/// Chooses workers and a service time for this rate.
fn workers(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let (count, service) = count_and_service(rate, rng);
    plant.with_parameter("workers", count).with_parameter("service", service).with_parameter("cv", cv(rng))
}

fn places(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let (count, service) = count_and_service(rate, rng);
    let status = [429.0, 503.0][rng.usize(..2)];
    plant
        .with_parameter("places", count)
        .with_parameter("service", service)
        .with_parameter("cv", cv(rng))
        .with_parameter("status", status)
}

fn count_and_service(rate: f64, rng: &mut Rng) -> (f64, f64) {
    let fits = |count: &usize| (SERVICES.0..=SERVICES.1).contains(&(*count as f64 / rate));
    let counts: Vec<_> = (WORKERS.0..=WORKERS.1).filter(fits).collect();
    let count = rng.choice(&counts).copied().unwrap_or(WORKERS.1) as f64;
    (count, round_span(count / rate))
}

fn uneven(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let (servers, slow) = (rng.usize(2..=5) as f64, between(rng, (3.0, 8.0)).round());
    // The slow server gets an equal share and can serve just that much.
    let (workers, service) = count_and_service((rate / servers * slow).min(most_rate("uneven")), rng);
    plant
        .with_parameter("servers", servers)
        .with_parameter("slow", slow)
        .with_parameter("workers", workers)
        .with_parameter("service", service)
}

fn quota(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let share = (between(rng, (0.1, 0.6)) * 100.0).round() / 100.0;
    plant
        .with_parameter("share", share)
        .with_parameter("work", round_span(share / rate))
        .with_parameter("cv", cv(rng))
}

fn connections(plant: PlantedFault, rate: f64, rng: &mut Rng) -> PlantedFault {
    let service = between(rng, (0.03, SERVICES.1));
    let connections = (rate * service).round().max(2.0);
    let how = rng.usize(..2) as f64;
    let plant = plant
        .with_parameter("connections", connections)
        .with_parameter("service", round_span(connections / rate));
    plant.with_parameter("how", how).with_parameter("cv", cv(rng))
}

fn pauses(plant: PlantedFault, rng: &mut Rng) -> PlantedFault {
    let (length, every) = (between(rng, (0.06, 0.3)), between(rng, (0.7, 2.0)));
    plant
        .with_parameter("length", round_span(length))
        .with_parameter("every", round_span(every))
        .with_parameter("jitter", 0.2)
}

/// Returns a queue length. Half of all queues are short.
fn queue(rate: f64, rng: &mut Rng) -> f64 {
    let short = (log_uniform(rng, (0.02, 0.5)) * rate).max(4.0).round();
    if rng.bool() { short } else { 100_000.0 }
}

fn cv(rng: &mut Rng) -> f64 {
    CVS[rng.usize(..CVS.len())]
}

fn between(rng: &mut Rng, (least, most): (f64, f64)) -> f64 {
    least + (most - least) * rng.f64()
}

fn log_uniform(rng: &mut Rng, (least, most): (f64, f64)) -> f64 {
    least * (most / least).powf(rng.f64())
}

/// Rounds a rate to one decimal.
fn round(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Rounds a duration to a microsecond, so that its text is exact.
fn round_span(seconds: f64) -> f64 {
    ((seconds * 1e6).round() / 1e6).max(1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_drawn_within_its_ranges_from_every_seed() {
        for class in drawable_classes() {
            for seed in 0..300 {
                let plants = draw_faults(&[class], seed);
                let [plant] = &plants[..] else { panic!("{class}: {plants:?}") };
                assert_eq!(plant.kind.cause_class, Some(class));
                assert_eq!(PlantedFault::parse(&plant.to_string()).as_ref(), Ok(plant), "{plant}");
                let limit = plant.limit().map_or(RATES.0, |limit| limit.rate);
                assert!((RATES.0 * 0.95..=RATES.1 * 1.05).contains(&limit), "{plant}: {limit}");
            }
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_and_others_draw_every_class() {
        let drawn: Vec<_> = (0..400).map(|seed| draw_faults(&[], seed)).collect();
        assert_eq!(drawn, (0..400).map(|seed| draw_faults(&[], seed)).collect::<Vec<_>>());
        for class in drawable_classes() {
            assert!(drawn.iter().any(|plants| plants[0].kind.cause_class == Some(class)), "{class}");
        }
    }

    /// Regression: a bucket of 10 requests at 19,905/s broke at 2,200/s, because no sender keeps its schedule to half a millisecond.
    #[test]
    fn a_bucket_is_not_emptied_by_a_sender_that_is_late() {
        for seed in 0..300 {
            for class in ["rate-limiter", "hanging-limiter"] {
                let plant = &draw_faults(&[class], seed)[0];
                let lasts = (plant.parameter_value("bucket") + 0.5) / plant.parameter_value("rate");
                assert!(lasts >= LATENESS, "{plant}: {lasts}");
            }
        }
    }

    /// Regression: with a service time of 92 ms and a timeout of 0.54 s, three requests of a thousand failed at any rate.
    #[test]
    fn no_timeout_is_so_short_that_requests_fail_at_any_rate() {
        for seed in 0..300 {
            let plant = &draw_faults(&["timeout-chain"], seed)[0];
            assert!(
                plant.parameter_value("timeout") >= 0.999 * PATIENCE * plant.parameter_value("service"),
                "{plant}"
            );
        }
    }

    #[test]
    fn rates_are_spread_over_the_orders_of_magnitude() {
        let rates = (0..400).map(|seed| draw_faults(&["rate-limiter"], seed)[0].parameter_value("rate"));
        let above = rates.filter(|rate| *rate > 1_000.0).count();
        assert!((160..=240).contains(&above), "{above}");
    }

    #[test]
    fn two_at_once_have_limits_that_are_close() {
        for seed in 0..200 {
            let plants = draw_faults(&["pool-saturation", "rate-limiter"], seed);
            let rates: Vec<_> = plants.iter().filter_map(|plant| Some(plant.limit()?.rate)).collect();
            let ratio = rates[1] / rates[0];
            assert!((1.0..1.5).contains(&ratio), "{ratio}");
        }
    }
}
