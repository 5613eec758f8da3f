//! Shares the units of a limited resource fairly between parties, by dynamic thresholds. Source: Choudhury and Hahne, "Dynamic
//! queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998, with alpha = 1.
//!
//! A unit is anything that code counts: a call in flight, a connection, an upstream request or a byte. The rule has no state, no
//! lock and no list of parties. The code that counts the units applies the rule before it takes a unit.
//!
//! The rule: a party may take one more unit only while it has fewer units than are free. This rule is fair. A greedy party takes
//! every unit that it can take. It stops at half of the units that the other parties leave. If `n` greedy parties take units in
//! turn, each party stops at `1 / (n + 1)` of all units, and the same number of units stays free. A new party has no unit yet, so
//! the rule always grants a free unit to a new party. `n` greedy parties leave at least one unit free if there are more than `n`
//! units.
//!
//! The rule reserves nothing for absent parties: one party alone can use half of all units. The rule also takes no unit back: a
//! share shrinks only when its party releases units. Parties must therefore use each unit only for a limited time.

/// Returns the number of units that are free for parties with many units, if `used` of `most` units are in use.
/// The last quarter is reserved for parties with few units. A new party therefore finds a unit even if all other parties take as
/// many units as they can and release no unit.
pub const fn free_for_large_holders(most: u64, used: u64) -> u64 {
    (most - most / 4).saturating_sub(used)
}

/// True if a party with `own` units may take one more unit, while `free` units are free.
pub const fn may_take(own: u64, free: u64) -> bool {
    own < free
}

/// True if a party with `own` units may take one more unit and keep it for a long time. Use this rule instead of [`may_take`] if
/// parties arrive one after another.
///
/// A party may take one more unit only while it has fewer units than about the *square root* of the free units. Under
/// [`may_take`], each party takes half of the free units, so the first few parties take nearly all units: five parties take all
/// of 26 units. Under this rule, one party alone gets five of 26 units, or eight of 64. In any order of arrival, ten parties
/// (fifteen with 64 units) get at least one unit each. With 26 units, if one party keeps all units that it can get, each of five
/// other parties still gets three units.
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
