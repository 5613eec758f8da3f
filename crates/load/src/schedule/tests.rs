use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::SECOND;

fn rate(text: &str) -> RequestRate {
    text.parse().unwrap()
}

/// Returns all requests of a cursor.
fn way(mut cursor: ScheduleCursor) -> impl Iterator<Item = Arrival> {
    std::iter::from_fn(move || match cursor.next(Nanos::MAX - 1) {
        NextArrival::Due(hit) => Some(hit),
        _ => None,
    })
}

fn all(arrivals: &Arc<ArrivalModel>, until: StopCondition, threads: u64) -> Vec<Arrival> {
    let mut hits: Vec<_> = (0..threads)
        .flat_map(|index| way(ScheduleCursor::new(Arc::clone(arrivals), until, index, threads)))
        .collect();
    hits.sort_by_key(|hit| hit.seq);
    hits
}

fn open(stages: Vec<ProfileStage>, spacing: ArrivalSpacing) -> Arc<ArrivalModel> {
    Arc::new(ArrivalModel::Open(Schedule::new(stages, spacing)))
}

fn stage(shape: RateShape, seconds: u64) -> ProfileStage {
    ProfileStage { shape, length: Some(seconds * SECOND) }
}

#[test]
fn a_constant_rate_makes_rate_times_duration_hits_however_many_threads_share_them() {
    let until = StopCondition { stop_time: 10 * SECOND, ..StopCondition::default() };
    for text in ["50", "3/10s", "7001", "1/3s", "333/7s"] {
        let arrivals = Arc::new(ArrivalModel::Open(Schedule::constant(rate(text), ArrivalSpacing::Constant)));
        let one = all(&arrivals, until, 1);
        let rate = rate(text);
        let expected = (10 * SECOND * rate.hits()).div_ceil(rate.period());
        assert_eq!(one.len() as u64, expected, "{text}");
        assert_eq!(all(&arrivals, until, 3), one, "{text}");
        assert!(one.iter().enumerate().all(|(i, hit)| hit.seq == i as u64));
    }
}

#[test]
fn after_a_year_a_hit_is_still_due_to_the_nanosecond() {
    let schedule = Schedule::constant(rate("3/s"), ArrivalSpacing::Constant);
    let year = 365 * 86_400;
    assert_eq!(schedule.instant(Position::from(3 * year) << HIT, &mut 0), Some(year * SECOND));
    assert_eq!(
        schedule.instant(Position::from(3 * year + 1) << HIT, &mut 0),
        Some(year * SECOND + 333_333_333)
    );
}

#[test]
fn a_ramp_makes_the_area_under_it_and_speeds_up() {
    let hits = all(
        &open(vec![stage(RateShape::Ramp { from: 0.0, to: 100.0 }, 10)], ArrivalSpacing::Constant),
        StopCondition::default(),
        1,
    );
    assert_eq!(hits.len(), 500);
    assert!(hits.windows(2).all(|pair| pair[0].due < pair[1].due));
    let first_half = hits.iter().filter(|hit| hit.due < 5 * SECOND).count();
    assert_eq!(first_half, 125);
}

#[test]
fn a_falling_ramp_ends() {
    let hits = all(
        &open(vec![stage(RateShape::Ramp { from: 100.0, to: 0.0 }, 10)], ArrivalSpacing::Constant),
        StopCondition::default(),
        2,
    );
    assert_eq!(hits.len(), 500);
}

#[test]
fn a_sine_makes_its_mean_over_whole_periods() {
    let shape = RateShape::Sine { mean: 100.0, amplitude: 100.0, period: 2 * SECOND };
    let hits = all(&open(vec![stage(shape, 10)], ArrivalSpacing::Constant), StopCondition::default(), 1);
    assert_eq!(hits.len(), 1000);
    assert!(hits.windows(2).all(|pair| pair[0].due < pair[1].due));
    let rising = hits.iter().filter(|hit| hit.due < SECOND).count();
    assert_eq!(rising, 164, "mean plus 2/pi of the amplitude");
}

#[test]
fn stages_follow_each_other_and_fractions_of_hits_are_not_lost() {
    let third = || stage(RateShape::Hold(rate("10/3s")), 1);
    let hits =
        all(&open(vec![third(), third(), third()], ArrivalSpacing::Constant), StopCondition::default(), 1);
    assert_eq!(hits.len(), 10);
}

#[test]
fn offsets_are_replayed_as_recorded() {
    let offsets: Arc<[Nanos]> = [5, 5, 70].into();
    let stages = vec![stage(RateShape::Hold(rate("2")), 1), stage(RateShape::Replay(offsets), 1)];
    let due: Vec<_> = all(&open(stages, ArrivalSpacing::Constant), StopCondition::default(), 2)
        .iter()
        .map(|hit| hit.due)
        .collect();
    assert_eq!(due, [0, SECOND / 2, SECOND + 5, SECOND + 5, SECOND + 70]);
}

#[test]
fn bursts_come_together_and_keep_the_rate() {
    let until = StopCondition { stop_time: SECOND, ..StopCondition::default() };
    let hits = all(&open(vec![stage(RateShape::Hold(rate("100")), 2)], ArrivalSpacing::Burst(10)), until, 3);
    assert_eq!(hits.len(), 100);
    assert!(hits.iter().all(|hit| hit.due == hit.seq / 10 * SECOND / 10));
}

#[test]
fn poisson_arrivals_do_not_depend_on_the_threads_and_have_exponential_gaps() {
    let arrivals = open(vec![stage(RateShape::Hold(rate("1000")), 100)], ArrivalSpacing::Poisson(7));
    let one = all(&arrivals, StopCondition::default(), 1);
    assert_eq!(all(&arrivals, StopCondition::default(), 4), one);
    let gaps: Vec<f64> = one.windows(2).map(|pair| (pair[1].due - pair[0].due) as f64 / 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let above_mean = gaps.iter().filter(|&&gap| gap > 1.0).count() as f64 / gaps.len() as f64;
    assert!((mean - 1.0).abs() < 0.02, "{mean}");
    assert!((above_mean - (-1.0f64).exp()).abs() < 0.01, "{above_mean}");
}

#[test]
fn what_was_due_is_counted_as_it_was_spread() {
    for spacing in [ArrivalSpacing::Constant, ArrivalSpacing::Burst(50), ArrivalSpacing::Poisson(3)] {
        let schedule = Schedule::constant(rate("200"), spacing);
        let arrivals = Arc::new(ArrivalModel::Open(schedule.clone()));
        for after in [SECOND / 4, SECOND / 4 + 10_000, SECOND, 90 * SECOND] {
            let due = all(&arrivals, StopCondition { stop_time: after, ..StopCondition::default() }, 2).len()
                as u64;
            assert_eq!(schedule.hits_before(after), due, "{spacing:?} before {after}");
        }
    }
}

/// Drawing each arrival used to take some seconds at a run's end for each 10^9 arrivals; it would take a year here.
#[test]
fn what_was_due_and_not_sent_of_very_many_poisson_arrivals_is_counted_without_drawing_them() {
    let schedule = Schedule::constant(rate("1000000000"), ArrivalSpacing::Poisson(9));
    let (at, most) = (10_000_000 * SECOND, 1e16 as u64);
    let due = schedule.hits_before(at);
    assert!(due.abs_diff(most) < 10 * (most as f64).sqrt() as u64, "{due}");
    let last = schedule.end_after_hits(due - 1, Nanos::MAX);
    assert!(last < at && at <= schedule.end_after_hits(due, Nanos::MAX), "the last of them is due at {last}");
}

#[test]
fn a_rate_changed_in_the_middle_of_a_ramp_made_the_past_steeper_and_sent_a_burst() {
    let ramp =
        Schedule::new(vec![stage(RateShape::Ramp { from: 0.0, to: 1000.0 }, 60)], ArrivalSpacing::Constant);
    let changed = ramp.with_rate_from(30 * SECOND, rate("10"));
    assert_eq!(ramp.hits_before(30 * SECOND), 7500);
    assert_eq!(changed.hits_before(30 * SECOND), 7500);
    assert_eq!(changed.hits_before(31 * SECOND), 7510);
    assert!((changed.rate_at(15 * SECOND) - 250.0).abs() < 1e-9);
}

#[test]
fn a_changed_rate_keeps_what_was_due_before() {
    let before = Schedule::new(vec![stage(RateShape::Hold(rate("10")), 10)], ArrivalSpacing::Constant);
    let changed = before.with_rate_from(3 * SECOND, rate("100"));
    let hits = all(&Arc::new(ArrivalModel::Open(changed.clone())), StopCondition::default(), 1);
    assert_eq!(hits.len(), 30 + 700);
    assert_eq!(hits[29].due, 2_900_000_000);
    assert_eq!(hits[31].due - hits[30].due, SECOND / 100);
    assert!((changed.rate_at(5 * SECOND) - 100.0).abs() < 1e-9);
}

#[test]
fn what_was_due_in_a_pause_is_not_made_up_for_and_the_rest_is_where_it_was() {
    let ramp = RateShape::Ramp { from: 10.0, to: 50.0 };
    let planned =
        Schedule::new(vec![stage(RateShape::Hold(rate("10")), 3), stage(ramp, 2)], ArrivalSpacing::Constant);
    let (from, to) = (1_050_000_000, 2_050_000_000);
    let paused = planned.with_pause_from(from);
    assert_eq!(
        (paused.end(), paused.rate_at(from), paused.hits_before(5 * SECOND)),
        (planned.end(), 0.0, 11)
    );
    assert_eq!(paused.with_pause_from(from + 1), paused, "it is paused already");
    let resumed = paused.with_resume_from(to);
    let dues = |schedule| {
        let hits = all(&Arc::new(ArrivalModel::Open(schedule)), StopCondition::default(), 2);
        hits.into_iter().map(|hit| hit.due).collect::<Vec<_>>()
    };
    let expected: Vec<_> =
        dues(planned.clone()).into_iter().filter(|due| !(from..to).contains(due)).collect();
    assert_eq!(dues(resumed.clone()), expected);
    assert_eq!((resumed.rate_at(from), resumed.rate_at(to)), (0.0, 10.0));
    assert_eq!(resumed.hits_before(5 * SECOND), expected.len() as u64);
}

#[test]
fn a_rate_that_is_changed_in_a_pause_holds_when_it_is_over() {
    let planned = Schedule::new(vec![stage(RateShape::Hold(rate("10")), 10)], ArrivalSpacing::Constant);
    let changed = planned.with_pause_from(SECOND).with_rate_from(2 * SECOND, rate("100"));
    assert_eq!((changed.hits_before(10 * SECOND), changed.rate_at(3 * SECOND)), (10, 0.0));
    let resumed = changed.with_resume_from(4 * SECOND);
    assert_eq!((resumed.hits_before(10 * SECOND), resumed.end()), (10 + 600, planned.end()));
}

#[test]
fn a_cursor_waits_for_the_end_of_a_pause_and_no_longer_than_the_schedule_lasts() {
    let planned = Schedule::new(vec![stage(RateShape::Hold(rate("10")), 2)], ArrivalSpacing::Constant);
    let open = |schedule: &Schedule| Arc::new(ArrivalModel::Open(schedule.clone()));
    let closed = || Arc::new(ArrivalModel::Closed);
    let paused = planned.with_pause_from(SECOND);
    for (running, still) in [(open(&planned), open(&paused)), (closed(), closed())] {
        let until = StopCondition { stop_time: 2 * SECOND, max_requests: u64::MAX };
        let mut cursor = ScheduleCursor::new(running, until, 0, 1);
        assert!(matches!(cursor.next(SECOND), NextArrival::Due(_)));
        cursor.replace(still, true);
        while let NextArrival::Due(hit) = cursor.next(SECOND) {
            assert!(hit.due < SECOND);
        }
        assert_eq!(cursor.next(SECOND), NextArrival::Later(2 * SECOND));
        assert_eq!(cursor.next(2 * SECOND), NextArrival::Over);
    }
}

#[test]
fn a_closed_loop_is_always_due_until_it_is_over() {
    let until = StopCondition { stop_time: SECOND, max_requests: 3 };
    let mut cursor = ScheduleCursor::new(Arc::new(ArrivalModel::Closed), until, 1, 2);
    assert_eq!(cursor.next(5), NextArrival::Due(Arrival { seq: 1, due: 5 }));
    assert_eq!(cursor.next(6), NextArrival::Over, "hits 0 and 2 are the other thread's");
    let mut other = ScheduleCursor::new(Arc::new(ArrivalModel::Closed), until, 0, 2);
    assert_eq!(other.next(SECOND), NextArrival::Over);
}

#[test]
fn a_hit_that_rounded_to_the_end_of_its_stage_took_all_that_followed_with_it() {
    let ramp = ProfileStage { shape: RateShape::Ramp { from: 0.0, to: 1e6 }, length: Some(SECOND + 1) };
    let hits = all(
        &open(vec![ramp, stage(RateShape::Hold(rate("10")), 1)], ArrivalSpacing::Constant),
        StopCondition::default(),
        1,
    );
    assert_eq!(hits.len(), 500_011);
    assert!(hits.is_sorted_by_key(|hit| hit.due));
}

#[test]
fn one_hit_more_was_sent_than_counted_where_a_schedule_ends_just_after_it() {
    let second = ProfileStage { shape: RateShape::Hold(rate("1")), length: Some(SECOND + 1) };
    let day = 86_400.0;
    let sine = RateShape::Sine { mean: 1.0 / (30.0 * day), amplitude: 1.0 / (30.0 * day), period: 1 };
    for (stages, expected) in [(vec![second], 2), (vec![stage(sine, 1)], 1)] {
        let schedule = Schedule::new(stages.clone(), ArrivalSpacing::Constant);
        assert_eq!(schedule.hits_before(SECOND + 1), expected, "{schedule:?}");
        assert_eq!(
            all(&open(stages, ArrivalSpacing::Constant), StopCondition::default(), 1).len() as u64,
            expected
        );
    }
}

#[test]
fn a_schedule_is_over_when_the_hit_after_its_last_would_be_due() {
    for (spacing, next) in
        [(ArrivalSpacing::Constant, 20), (ArrivalSpacing::Burst(50), 20), (ArrivalSpacing::Poisson(5), 20)]
    {
        let schedule = Schedule::constant(rate("100"), spacing);
        let over = schedule.end_after_hits(next, SECOND);
        let planned = if let ArrivalSpacing::Poisson(_) = spacing {
            all(
                &Arc::new(ArrivalModel::Open(schedule.clone())),
                StopCondition { stop_time: SECOND, ..StopCondition::default() },
                1,
            )[20]
                .due
        } else {
            SECOND / 5
        };
        assert_eq!(over, planned, "{spacing:?}");
        assert_eq!(schedule.end_after_hits(next, over - 1), over - 1);
        assert_eq!(schedule.end_after_hits(u64::MAX, SECOND), SECOND);
    }
}

#[test]
fn of_more_than_sixteen_million_million_hits_none_were_counted() {
    let schedule = Schedule::constant(rate("5000000"), ArrivalSpacing::Constant);
    let long = 9000 * 3600;
    assert_eq!(schedule.hits_before(long * SECOND), 5_000_000 * long);
    assert_eq!(schedule.end_after_hits(5_000_000 * long, Nanos::MAX), long * SECOND);
}

#[test]
fn what_one_client_of_a_closed_loop_leaves_the_others_take() {
    let (turn, until) =
        (SequenceCounter::default(), StopCondition { max_requests: 4, ..StopCondition::default() });
    let cursor = |index| {
        ScheduleCursor::new(Arc::new(ArrivalModel::Closed), until, index, 2).with_shared_counter(turn.clone())
    };
    let (mut slow, mut fast) = (cursor(0), cursor(1));
    assert_eq!(slow.next(1), NextArrival::Due(Arrival { seq: 0, due: 1 }));
    for seq in 1..4 {
        assert_eq!(fast.next(seq), NextArrival::Due(Arrival { seq, due: seq }));
    }
    assert_eq!((slow.next(5), fast.next(5)), (NextArrival::Over, NextArrival::Over));
}

#[test]
fn shards_of_a_closed_loop_share_its_hits() {
    let until = StopCondition { max_requests: 10, ..StopCondition::default() };
    let mut hits: Vec<u64> = (0..3)
        .flat_map(|index| {
            let turn = SequenceCounter::for_shard(ScheduleShard::new(index, 3).unwrap());
            way(ScheduleCursor::new(Arc::new(ArrivalModel::Closed), until, 0, 1).with_shared_counter(turn))
        })
        .map(|hit| hit.seq)
        .collect();
    hits.sort_unstable();
    assert_eq!(hits, (0..10).collect::<Vec<_>>());
}

fn any_stage() -> impl Strategy<Value = ProfileStage> {
    let shape =
        prop_oneof![
            (1..500u64, 1..60 * SECOND)
                .prop_map(|(hits, period)| RateShape::Hold(RequestRate::new(hits, period).unwrap())),
            (0.0..90.0, 0.0..90.0).prop_map(|(from, to)| RateShape::Ramp { from, to }),
            (1.0..40.0, 0.0..1.0, SECOND / 10..60 * SECOND)
                .prop_map(|(mean, share, period)| RateShape::Sine { mean, amplitude: mean * share, period }),
        ];
    (shape, 1..60u64).prop_map(|(shape, seconds)| stage(shape, seconds))
}

fn any_spacing() -> impl Strategy<Value = ArrivalSpacing> {
    prop_oneof![
        Just(ArrivalSpacing::Constant),
        any::<u64>().prop_map(ArrivalSpacing::Poisson),
        (1..20u64).prop_map(ArrivalSpacing::Burst),
    ]
}

proptest! {
    #[test]
    fn shards_however_many_threads_each_has_are_the_whole(
        stages in prop::collection::vec(any_stage(), 1..3),
        spacing in any_spacing(),
        threads in prop::collection::vec(1..4u64, 1..6),
        most in 1..5000u64,
    ) {
        let (arrivals, until) = (open(stages, spacing), StopCondition { max_requests: most, ..StopCondition::default() });
        let ArrivalModel::Open(schedule) = &*arrivals else { panic!("{arrivals:?}") };
        let mut together = Vec::new();
        for (index, &threads_of_it) in (0..).zip(&threads) {
            let shard = ScheduleShard::new(index, threads.len() as u64).unwrap();
            let before = together.len() as u64;
            for thread in 0..threads_of_it {
                let (first, stride) = shard.thread_offset_and_stride(thread, threads_of_it);
                together.extend(way(ScheduleCursor::new(Arc::clone(&arrivals), until, first, stride)));
            }
            let due = schedule.hits_before(schedule.end().unwrap()).min(most);
            prop_assert_eq!(shard.requests_among(due), together.len() as u64 - before, "{}", shard);
        }
        together.sort_by_key(|hit| hit.seq);
        prop_assert_eq!(together, all(&arrivals, until, 1));
    }

    #[test]
    fn a_held_rate_never_drifts(hits in 1..10_000_000u64, period in 1..1000 * SECOND, seq: u64) {
        let schedule = Schedule::constant(RequestRate::new(hits, period).unwrap(), ArrivalSpacing::Constant);
        let exact = u128::from(seq) * u128::from(period) / u128::from(hits);
        prop_assert_eq!(schedule.instant(Position::from(seq) << HIT, &mut 0).map(u128::from), u64::try_from(exact).ok().map(u128::from));
    }

    #[test]
    fn a_pause_takes_as_many_hits_as_were_due_in_it(
        stages in prop::collection::vec(any_stage(), 1..5),
        from in 0..10 * SECOND,
        length in 0..10 * SECOND,
    ) {
        let schedule = Schedule::new(stages, ArrivalSpacing::Constant);
        let (to, end) = (from + length, schedule.end().unwrap());
        let resumed = schedule.with_pause_from(from).with_resume_from(to);
        let hits = all(&Arc::new(ArrivalModel::Open(resumed.clone())), StopCondition::default(), 3);
        prop_assert!(hits.iter().all(|hit| !(from..to).contains(&hit.due)));
        prop_assert!(hits.is_sorted_by_key(|hit| hit.due));
        prop_assert_eq!(resumed.hits_before(end), hits.len() as u64);
        let outside = schedule.hits_before(from.min(end)) + schedule.hits_before(end) - schedule.hits_before(to.min(end));
        prop_assert!(outside.abs_diff(hits.len() as u64) <= 1, "{} and not {}", hits.len(), outside);
    }

    #[test]
    fn a_profile_never_drifts(stages in prop::collection::vec(any_stage(), 1..5), threads in 1..5u64) {
        let arrivals = open(stages.clone(), ArrivalSpacing::Constant);
        let schedule = Schedule::new(stages, ArrivalSpacing::Constant);
        let hits = all(&arrivals, StopCondition::default(), threads);
        prop_assert_eq!(schedule.hits_before(schedule.end().unwrap()), hits.len() as u64);
        let mut before = 0;
        for (seq, hit) in hits.iter().enumerate() {
            prop_assert_eq!(hit.seq, seq as u64);
            prop_assert!(hit.due >= before, "{} before {}", hit.due, before);
            before = hit.due;
            // Only some are checked, because each count is a search.
            if seq % 101 == 0 {
                let sooner = hits.partition_point(|other| other.due < hit.due) as u64;
                prop_assert_eq!(schedule.hits_before(hit.due), sooner);
            }
        }
    }
}
