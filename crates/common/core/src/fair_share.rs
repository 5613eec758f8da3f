//! Shares a pool of places between parties by dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998, with alpha = 1).
//!
//! Places may be calls in flight, connections, upstream requests or bytes: anything that is counted. The rule has no state, no lock and no
//! list of parties. The code that keeps the counts applies the rule before it takes each place.
//!
//! Why the rule is fair: a party takes one more place only while it has fewer than are free. So a party that takes all it can stops
//! at half of what the others leave. `n` such parties that take in turn stop at `1 / (n + 1)` of all places each, and as many stay
//! free. A newcomer has no place yet, so it is never refused while a place is free. `n` greedy parties leave one place free as long
//! as there are more than `n` places. The rule reserves nothing for absent parties: one party alone may use half of all places.
//! The rule takes nothing back either: a share shrinks only as its party releases places. So places must be held for a bounded time.

/// The free places for parties that have more than a few, while `used` of `most` are taken.
/// The last quarter is reserved for parties with a few. So a newcomer finds room even if all others take what they can and release nothing.
pub const fn free_for_many(most: u64, used: u64) -> u64 {
    (most - most / 4).saturating_sub(used)
}

/// True if a party that has `own` places may take one more while `free` are free.
pub const fn may_take(own: u64, free: u64) -> bool {
    own < free
}

/// The rule for places that are held for long, by parties that come one after another; true if the party may take one more.
///
/// A party takes one more only while it has fewer than about the *root* of what is free. By [`may_take`] alone each party takes half
/// of what is left, so the first few have nearly everything: five parties take all of 26 places. By this rule, one party alone has
/// five of 26 places (eight of 64). At least one place is left for each of ten parties (fifteen of 64), in whatever order they come.
/// Beside one party that keeps all it can, each of five parties finds a second and a third place.
pub const fn may_take_and_keep(own: u64, free: u64) -> bool {
    own.saturating_mul(own.saturating_add(1)) < free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the next party when it has taken all that it may.
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

    /// All parties take in turn until the rule allows no more.
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
