//! Numbers the requests of a traffic thread. A refusal tells its number to the pod, and the log names it.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The source of the numbers.
///
/// The numbers are a keyed hash (SipHash) of a count, and differ from each other except by chance. A pod that saw the count itself would learn how
/// many requests other pods sent between two of its own. A secret factor and a mask would not do: a pod can compute both from eight refusals.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    count: Cell<u64>,
    /// The keys come from the kernel's random numbers.
    keys: RandomState,
}

impl RequestIds {
    pub(super) fn next(&self) -> u64 {
        self.keys.hash_one(self.count.replace(self.count.get().wrapping_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_differ_and_do_not_tell_how_many_requests_there_were() {
        let (ids, others) = (RequestIds::default(), RequestIds::default());
        let numbers: Vec<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        let steps: BTreeSet<_> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert_eq!(
            steps.len(),
            numbers.len() - 1,
            "a step that comes again tells how far two numbers are apart"
        );
        assert!(!numbers.contains(&others.next()));
    }
}
