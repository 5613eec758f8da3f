//! Shares a pool of places fairly between parties by dynamic thresholds. Source: Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998, with alpha = 1.
//!
//! A place is any counted resource: a call in flight, a connection, an upstream request or a byte. The rule has no state, no lock
//! and no list of parties. The code that counts the places applies the rule before it takes a place.
//!
//! Why the rule is fair: a party may take one more place only while it has fewer places than are free. A greedy party takes every place it
//! can. It stops at half of the places that the other parties leave. If `n` greedy parties take places in turn, each stops at `1 / (n + 1)`
//! of all places, and as many places stay free. A new party has no place yet, so the rule always grants it a free place. `n` greedy parties
//! leave at least one place free if there are more than `n` places.
//!
//! The rule reserves nothing for absent parties: one party alone can use half of all places. The rule also takes no place back: a share shrinks only
//! when its party releases places. Parties must therefore hold each place only for a limited time.

/// Returns the number of places that are free for parties with many places, if `used` of `most` places are taken. The last quarter is
/// reserved for parties with few places. A new party therefore finds a place even if all other parties take as many as they can and release
/// none.
pub const fn free_for_large_holders(most: u64, used: u64) -> u64 {
    (most - most / 4).saturating_sub(used)
}

/// True if a party with `own` places may take one more, while `free` places are free.
pub const fn may_take(own: u64, free: u64) -> bool {
    own < free
}

/// True if a party with `own` places may take one more and keep it for a long time. Use this rule instead of [`may_take`] if parties arrive
/// one after another.
///
/// A party may take one more place only while it has fewer places than about the *square root* of the free places. Under [`may_take`] each
/// party takes half of the free places, so the first few parties take nearly all: five parties take all of 26 places. Under this rule, one
/// party alone gets five of 26 places, or eight of 64. In any order of arrival, ten parties (fifteen with 64 places) get at least one place
/// each. With 26 places, if one party keeps all it can, each of five other parties still gets three places.
pub const fn may_take_and_keep(own: u64, free: u64) -> bool {
    own.saturating_mul(own.saturating_add(1)) < free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes places for the next party until the rule allows no more.
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

    /// Takes places for all parties in turn until the rule allows no more.
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
