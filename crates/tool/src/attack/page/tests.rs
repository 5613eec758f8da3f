use seawall_load::stats::LoadStats;
use tokio::sync::mpsc::channel;

use super::*;

/// So many sent from second to second.
fn interval(from: Nanos, to: Nanos, sent: u64) -> IntervalStats {
    IntervalStats { from: from * SECOND, to: to * SECOND, stats: LoadStats { sent, ..LoadStats::default() } }
}

fn measured(news: &AttackPageUpdate) -> (Nanos, Nanos, u64) {
    let (AttackPageUpdate::IntervalMeasured(interval) | AttackPageUpdate::Finished(interval, ..)) = news
    else {
        panic!("nothing was measured")
    };
    (interval.from / SECOND, interval.to / SECOND, interval.stats.sent)
}

#[test]
fn a_page_that_is_late_is_told_longer_intervals_and_never_less() {
    let (sender, mut told) = channel(1);
    let mut page = AttackPage { pending: IntervalStats::default(), feed: PageFeed::new(sender, None) };
    page.add_interval(&interval(0, 1, 10));
    // Nobody has taken it yet.
    page.add_interval(&interval(1, 2, 20));
    page.add_interval(&interval(2, 3, 30));
    assert_eq!(told.try_recv().as_ref().map(measured), Ok((0, 1, 10)));
    page.add_interval(&interval(3, 4, 40));
    assert_eq!(told.try_recv().as_ref().map(measured), Ok((1, 4, 90)));
    page.add_interval(&IntervalStats { to: 4 * SECOND + SECOND / 2, ..interval(4, 4, 5) });
    assert!(told.try_recv().is_err(), "half a second");
    page.end(IntervalsFooter::default(), String::new());
    assert_eq!(told.try_recv().as_ref().map(measured), Ok((4, 4, 5)));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_run_goes_on_when_its_page_is_gone() {
    let (sender, told) = channel(1);
    let mut page = AttackPage { pending: IntervalStats::default(), feed: PageFeed::new(sender, None) };
    drop(told);
    page.add_interval(&interval(0, 1, 10));
    page.add_interval(&interval(1, 2, 10));
    page.end(IntervalsFooter::default(), String::new());
}

#[test]
fn a_password_of_a_target_is_not_on_the_page() {
    for (target, shown) in [
        ("GET http://me:secret@host:80/a@b?c", "GET http://host:80/a@b?c"),
        ("3 targets, GET http://me:secret@host and on", "3 targets, GET http://host and on"),
        ("GET http://host/?to=http://x@y", "GET http://host/?to=http://x@y"),
        ("targets read from stdin", "targets read from stdin"),
    ] {
        assert_eq!(without_password(target), shown);
    }
}
