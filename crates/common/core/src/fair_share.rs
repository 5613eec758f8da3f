//! How a shared store of places is shared: dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998, with alpha = 1).
//!
//! Places may be calls in the air, connections, forwards, bytes: whatever is counted. The rule has no state, no lock and no
//! list of parties; whoever keeps the counts asks it before each taking.
//!
//! Why it holds. A party takes one more only while it has fewer than are free. So a party that takes all it can stops at
//! half of what the others leave; `n` such parties that take in turn stop at `1 / (n + 1)` of all each, and as much stays free: a newcomer,
//! who has none, is never refused while a place is free, and `n` greedy parties leave one free as long as there are more
//! than `n` places. Nothing is set aside for parties that do not come: one alone may use half of all. Nothing is
//! taken back either, so a share shrinks as its owner's own places come free: places must be bounded in time.

/// What is free of `most` places for parties that have more than a few, while `used` are taken: the last quarter is for those
/// with a few, so that whoever comes finds room even if everybody else hoards and gives nothing back.
pub const fn free_for_many(most: u64, used: u64) -> u64 {
    (most - most / 4).saturating_sub(used)
}

/// Whether a party that has `own` places may take one more while `free` are.
pub const fn may_take(own: u64, free: u64) -> bool {
    own < free
}

/// The same for what is kept for long and by parties that come one after another: a party takes one more only while it has fewer
/// than about the *root* of what is free. By [`may_take`] alone each takes half of what is left, so the few that came first have
/// nearly everything: five of 26. So one alone has five of 26 (eight of 64), there is at least one for each of ten (fifteen), in whatever
/// order they come, and beside one that keeps all it can, each of five finds a second and a third.
pub const fn may_take_and_keep(own: u64, free: u64) -> bool {
    own.saturating_mul(own.saturating_add(1)) < free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the next party has when it has taken all that it may.
    fn hoard(free: &mut u64) -> u64 {
        let mut own = 0;
        while may_take_and_keep(own, *free) {
            own += 1;
            *free -= 1;
        }
        own
    }

    #[test]
    fn parties_that_come_one_after_another_and_keep_all_leave_one_for_many() {
        for (places, parties, most) in [(26, 10, 5), (64, 15, 8), (1000, 63, 31)] {
            let mut free = places;
            let kept: Vec<_> = (0..parties).map(|_| hoard(&mut free)).collect();
            assert!(kept.iter().all(|kept| (1..=most).contains(kept)), "{places} places: {kept:?}");
        }
    }

    #[test]
    fn five_that_need_three_each_find_them_beside_one_that_keeps_all_it_can() {
        let mut free = 26;
        hoard(&mut free);
        for own in [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2] {
            assert!(may_take_and_keep(own, free), "{own} and {free} free");
            free -= 1;
        }
    }

    /// Everybody takes in turn whatever the rule allows.
    fn greedy(places: u64, parties: usize) -> Vec<u64> {
        let mut own = vec![0; parties];
        loop {
            let before = own.clone();
            for party in 0..parties {
                let free = places - own.iter().sum::<u64>();
                own[party] += u64::from(may_take(own[party], free));
            }
            if own == before {
                return own;
            }
        }
    }

    #[test]
    fn one_greedy_party_gets_half_and_n_get_one_in_n_and_one() {
        assert_eq!(greedy(32, 1), [16]);
        assert_eq!(greedy(33, 2), [11, 11]);
        assert_eq!(greedy(90, 8), [10; 8]);
    }

    #[test]
    fn a_newcomer_finds_a_place_while_there_are_more_places_than_greedy_parties() {
        for places in 1..64 {
            for parties in 1..places {
                let taken: u64 = greedy(places, usize::try_from(parties).unwrap()).iter().sum();
                assert!(may_take(0, places - taken), "{places} places, {parties} parties");
            }
        }
    }

    #[test]
    fn who_came_first_has_no_more_than_who_came_later_once_its_places_come_free() {
        let (mut first, mut second) = (16, 0);
        for _ in 0..64 {
            first -= 1;
            first += u64::from(may_take(first, 32 - first - second));
            second += u64::from(may_take(second, 32 - first - second));
        }
        assert!(first <= second, "{first} and {second}");
    }

    #[test]
    fn the_last_place_is_somebodys_who_has_none() {
        assert!(may_take(0, 1));
        assert!(!may_take(1, 1));
        assert!(!may_take(0, 0));
    }
}
