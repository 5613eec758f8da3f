//! Tests of faults alone and in sequence, request by request, as the server's loop runs them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::truth::erlang_b;

const MS: NanosSinceStart = 1_000_000;

/// Returns the end of each request that arrives at these times, with its outcome. Computing takes no time.
fn ends(
    texts: &[&str],
    arrivals: impl IntoIterator<Item = NanosSinceStart>,
) -> Vec<(NanosSinceStart, PlannedResponse)> {
    let mut model = FaultModel::new(&PlantedFault::parse_all(texts).unwrap(), 0, 3);
    let mut courses: Vec<_> = arrivals.into_iter().map(|at| (at, RequestProgress::default())).collect();
    let mut ended = vec![(0, PlannedResponse::Close); courses.len()];
    // At the same time, an end comes before an arrival, so its place is free.
    let mut due: BinaryHeap<_> =
        courses.iter().enumerate().map(|(number, (at, _))| Reverse((*at, 1, number))).collect();
    let mut begun = vec![false; courses.len()];
    while let Some(Reverse((at, kind, number))) = due.pop() {
        let course = &mut courses[number].1;
        if kind == 0 {
            model.end_request(course);
            continue;
        }
        let first = !std::mem::replace(&mut begun[number], true);
        let mut step = if first { model.enter(at, course) } else { model.continue_request(at, course) };
        while let ModelStep::Compute(_) = step {
            step = model.resume_computed(at, course);
        }
        match step {
            ModelStep::Wait(then) => due.push(Reverse((then, 1, number))),
            ModelStep::End(then, fate) => {
                ended[number] = (then, fate);
                due.push(Reverse((then, 0, number)));
            }
            ModelStep::Compute(_) => unreachable!("done above"),
        }
    }
    ended
}

fn every(spacing: NanosSinceStart, count: u64) -> impl Iterator<Item = NanosSinceStart> {
    (0..count).map(move |n| n * spacing)
}

fn count(ends: &[(NanosSinceStart, PlannedResponse)], status: u16) -> usize {
    ends.iter().filter(|(_, fate)| *fate == PlannedResponse::Answer(status)).count()
}

#[test]
fn a_cap_refuses_as_many_as_erlang_says_whatever_service_is_like() {
    for (places, load, cv) in [(1, 0.5, 1.0), (10, 9.0, 1.0), (10, 9.0, 0.0), (32, 40.0, 0.2)] {
        let (requests, mut rng, mut at) = (200_000, Rng::with_seed(5), 0.0);
        let arrivals = (0..requests).map(|_| {
            at += -(1.0 - rng.f64()).ln() * 50e6 / load;
            at as NanosSinceStart
        });
        let ended = ends(&[&format!("concurrency-cap,places={places},service=50ms,cv={cv}")], arrivals);
        let (refused, expected) = (count(&ended, 503) as f64 / f64::from(requests), erlang_b(places, load));
        assert!((refused - expected).abs() < 0.01, "{places} {load}: {refused} {expected}");
    }
}

#[test]
fn a_cap_s_place_is_taken_for_as_long_as_what_follows_it_takes() {
    let plants = ["concurrency-cap,places=10,service=0s", "pool,workers=4,service=100ms"];
    let ended = ends(&plants, [0; 20].into_iter().chain([100 * MS; 20]));
    assert_eq!((count(&ended[..20], 200), count(&ended[20..], 200)), (10, 4));
}

#[test]
fn plants_follow_one_another_in_the_order_given() {
    let (pool, limiter) = ("pool,workers=2,service=100ms", "rate-limiter,rate=10,bucket=4");
    // Twelve requests arrive at once. The limiter passes four to the pool, or it meets pairs that are 100 ms apart.
    let limited_first = ends(&[limiter, pool], [0; 12]);
    let pooled_first = ends(&[pool, limiter], [0; 12]);
    assert_eq!((count(&limited_first, 200), count(&limited_first, 429)), (4, 8));
    assert_eq!(limited_first.iter().map(|end| end.0).max(), Some(200 * MS));
    assert_eq!((count(&pooled_first, 200), count(&pooled_first, 429)), (9, 3));
    assert_eq!(pooled_first.iter().map(|end| end.0).max(), Some(600 * MS));
}

#[test]
fn what_hangs_is_closed_in_the_end() {
    let ended = ends(&["hanging-limiter,rate=200,bucket=20,hang=30s"], [0; 30]);
    assert_eq!(count(&ended, 200), 20);
    assert_eq!(ended.iter().filter(|end| **end == (30_000 * MS, PlannedResponse::Close)).count(), 10);
}

#[test]
fn a_chain_answers_504_after_its_tries_and_its_retries_keep_it_from_recovering() {
    let plant = "timeout-chain,workers=1,service=100ms,timeout=500ms,tries=3";
    // The load is twice the capacity for 2 s and then half of it for 20 s.
    let arrivals = every(50 * MS, 40).chain((0..100).map(|n| (2000 + n * 200) * MS));
    let ended = ends(&[plant], arrivals);
    let given_up = ended.iter().filter(|end| end.1 == PlannedResponse::Answer(504)).count();
    assert!(given_up > 100, "{given_up}");
    assert_eq!(count(&ended[120..], 200), 0);
    let once = ends(
        &["timeout-chain,workers=1,service=100ms,timeout=500ms,late=dropped"],
        every(50 * MS, 40).chain((0..100).map(|n| (2000 + n * 200) * MS)),
    );
    assert_eq!(count(&once[45..], 200), 95);
    assert!(once.iter().filter(|end| end.1 == PlannedResponse::Answer(504)).count() > 5);
}

#[test]
fn what_comes_in_a_pause_and_what_would_end_in_one_is_late() {
    let ended = ends(&["pauses,length=200ms,every=2s", "pool,workers=8,service=40ms"], every(10 * MS, 400));
    let late = |n: usize| ended[n].0 - n as NanosSinceStart * 10 * MS;
    // A request that starts 10 ms before the pause does its other 30 ms after the pause.
    assert_eq!((late(100), late(199), late(202)), (40 * MS, 240 * MS, 220 * MS));
    assert_eq!(late(300), 40 * MS);
}

#[test]
fn the_same_seed_gives_the_same_ends() {
    let plants = ["pool,workers=4,cv=1", "noise,delay=5ms", "drift", "pauses,jitter=0.5"];
    let once = ends(&plants, every(9 * MS, 500));
    assert_eq!(once, ends(&plants, every(9 * MS, 500)));
}

#[test]
fn answers_share_the_link_and_those_without_a_body_do_not_wait_for_it_long() {
    let mut model = FaultModel::new(&PlantedFault::parse_all(&["bandwidth,rate=1000000"]).unwrap(), 0, 1);
    let mut end = |bytes| {
        let mut course = RequestProgress { bytes, ..RequestProgress::default() };
        match model.enter(0, &mut course) {
            ModelStep::Wait(then) => model.continue_request(then, &mut course),
            step => step,
        }
    };
    assert_eq!(end(100), ModelStep::End(MS / 10, PlannedResponse::Answer(200)));
    assert_eq!(end(10_000), ModelStep::End(MS / 10 + 10 * MS, PlannedResponse::Answer(200)));
}
