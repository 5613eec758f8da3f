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

/// The same, where a quarter of all `places` is for parties that have none: to be asked where parties come one after another and
/// keep for long what they have. By [`may_take`] alone, each of them takes half of what is left, and the few that came first
/// have everything: five of 26. So at least a quarter as many parties as there are places find one each, in whatever order they
/// come (eleven of 26); one alone may use three eighths of all. A larger part would keep a second place from those who need two.
pub const fn may_take_beside_newcomers(own: u64, free: u64, places: u64) -> bool {
    if own == 0 { free > 0 } else { own.saturating_add(places / 4) < free }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_that_come_one_after_another_leave_a_place_for_a_quarter_as_many_as_there_are() {
        for places in 1..200_u64 {
            let mut free = places;
            for party in 0..places.div_ceil(4) {
                assert!(may_take_beside_newcomers(0, free, places), "{places} places, party {party}");
                let mut own = 0;
                while may_take_beside_newcomers(own, free, places) {
                    own += 1;
                    free -= 1;
                }
                assert!(own <= (places * 3).div_ceil(8) + 1, "{own} of {places}");
            }
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
