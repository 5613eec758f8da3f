//! What of a number that is the whole's falls to one pod.

use seawall_load::control::ErrorBudget;

/// The share of one of several, but one at least: a pod without any could not send what the schedule gives it.
pub(super) fn share(whole: u64, (index, of): (u64, u64)) -> u64 {
    if whole == u64::MAX { whole } else { (whole / of + u64::from(index < whole % of)).max(1) }
}

/// The share of errors that may come; what is a share already is one of each.
pub(super) fn errors(whole: ErrorBudget, (index, of): (u64, u64)) -> ErrorBudget {
    match whole {
        ErrorBudget::Count(most) => ErrorBudget::Count(most / of + u64::from(index < most % of)),
        ErrorBudget::Share(_) => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole_and_no_pod_has_none() {
        for (whole, of) in [(10, 3), (64, 20), (7, 7)] {
            assert_eq!((0..of).map(|index| share(whole, (index, of))).sum::<u64>(), whole);
        }
        assert_eq!((share(2, (4, 5)), share(u64::MAX, (1, 5))), (1, u64::MAX));
    }

    #[test]
    fn errors_are_shared_by_their_number_and_a_share_of_them_is_one_of_each() {
        let counts = (0..3).map(|index| errors(ErrorBudget::Count(4), (index, 3)));
        assert_eq!(counts.collect::<Vec<_>>(), [2, 1, 1].map(ErrorBudget::Count));
        assert_eq!(errors(ErrorBudget::Share(0.1), (0, 3)), ErrorBudget::Share(0.1));
    }
}
