//! Tracks throttled accounts, and tells one throttled account from a cloud that throttles all.
//!
//! A cloud's quotas are of many kinds: per project, which all accounts share, per service account, or per principal. A response
//! does not say which quota was spent, so the tracker infers it from the accounts whose calls are throttled. A throttled account
//! gets a rate of its own, at once. The shared rate changes only on evidence that the cloud throttles all accounts: several
//! accounts within a moment, and a considerable part of all accounts that were asked for lately. An account that is throttled every
//! time soon becomes slow. It then is no evidence against the others, as long as any of them is served. Both memories are bounded.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use seawall_core::Moment;

use super::rate::AdaptiveRate;
use crate::throttle_key::ThrottleKey;

/// The lowest rate of a throttled account: several calls between the start of its renewals and their floor.
const SLOWEST: f64 = 1.0 / 15.0;

/// The rate below which an account is slow: it was throttled half a dozen times and never or hardly served between.
const SLOW: f64 = 0.75;

/// The random part of an account's pauses. Two accounts with equal pauses would meet at each call, and the second be throttled each
/// time.
const SPREAD: f64 = 0.5;

/// The time without throttling after which the tracker forgets an account's rate.
const FORGET: Duration = Duration::from_secs(600);

/// The most account rates kept: more than the pods on any node at once.
const PACES: usize = 1024;

/// The number of accounts whose last outcome is kept: twice a second's calls at the default rate.
const REMEMBERED: usize = 64;

/// The time for which a served call counts as evidence for its account.
const LATELY: Duration = Duration::from_secs(120);

/// The time within which throttled accounts count as throttled together.
const TOGETHER: Duration = Duration::from_secs(10);

/// The least number of throttled accounts that can mean all. One or two throttled accounts mean only themselves.
const SEVERAL: usize = 3;

/// The cloud throttles all accounts when one in so many is throttled. A rate at one and a third times a project's quota has a
/// quarter of its calls throttled, whichever accounts they use. A sixth of the accounts (8 of 48) still means only those accounts.
const ONE_IN: usize = 4;

#[derive(Debug)]
pub(super) struct ThrottleTracker {
    most_per_second: f64,
    /// The rates of the accounts that were throttled lately.
    paces: HashMap<ThrottleKey, AdaptiveRate>,
    /// The last outcome of each account, the latest last.
    last: VecDeque<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    account: ThrottleKey,
    at: Moment,
    kind: OutcomeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutcomeKind {
    Served,
    Throttled,
    /// The account was throttled again: its rate is a slow one.
    ThrottledAgain,
}

impl ThrottleTracker {
    pub(super) fn new(most_per_second: f64) -> Self {
        Self { most_per_second, paces: HashMap::new(), last: VecDeque::new() }
    }

    /// The time from which a call for this account may start; `None` means any time.
    pub(super) fn next(&self, account: &ThrottleKey) -> Option<Moment> {
        self.paces.get(account).map(AdaptiveRate::next)
    }

    /// True if the account was throttled lately, whatever its rate.
    pub(super) fn is_paced(&self, account: &ThrottleKey) -> bool {
        self.paces.contains_key(account)
    }

    /// True if the account was throttled again and again.
    pub(super) fn is_slow(&self, account: &ThrottleKey) -> bool {
        self.paces.get(account).is_some_and(|pace| pace.per_second() < SLOW)
    }

    pub(super) fn started(&mut self, account: &ThrottleKey, now: Moment) {
        if let Some(pace) = self.paces.get_mut(account) {
            pace.started(now);
        }
    }

    pub(super) fn served(&mut self, account: &ThrottleKey, now: Moment) {
        self.note(account, now, OutcomeKind::Served);
        if let Some(pace) = self.paces.get_mut(account) {
            pace.succeeded();
            if pace.is_at_most() {
                self.paces.remove(account);
            }
        }
    }

    /// Slows the account down, and returns true if the cloud throttles all accounts. The account's rate begins at the highest
    /// shared rate. So an account that is throttled now and then by the common quota stays fast, and an account that is throttled
    /// every time is slow after half a dozen calls.
    pub(super) fn throttled(
        &mut self,
        account: &ThrottleKey,
        now: Moment,
        retry_after: Option<Duration>,
    ) -> bool {
        self.forget(now);
        if self.paces.len() < PACES || self.paces.contains_key(account) {
            let fresh = || AdaptiveRate::new(SLOWEST, self.most_per_second, SPREAD);
            self.paces.entry(account.clone()).or_insert_with(fresh).throttled(now, retry_after);
        }
        let is = if self.is_slow(account) { OutcomeKind::ThrottledAgain } else { OutcomeKind::Throttled };
        self.note(account, now, is);
        self.is_everybody(now)
    }

    /// True if the cloud throttles all accounts. An account throttled longer ago counts for neither side: it waits for its turn,
    /// and may be served at its next call.
    fn is_everybody(&self, now: Moment) -> bool {
        let count = |is: OutcomeKind, within: Duration| {
            self.last.iter().filter(|o| o.kind == is && now.since(o.at) < within).count()
        };
        let served = count(OutcomeKind::Served, LATELY);
        let is_part = |throttled: usize| throttled >= SEVERAL && throttled * ONE_IN >= throttled + served;
        let (once, again) =
            (count(OutcomeKind::Throttled, TOGETHER), count(OutcomeKind::ThrottledAgain, TOGETHER));
        // Where nobody is served just now, those that are slow count, too: all may have become slow together.
        let is_nobody_served = count(OutcomeKind::Served, TOGETHER) == 0;
        is_part(once) || (is_nobody_served && is_part(once + again))
    }

    fn note(&mut self, account: &ThrottleKey, at: Moment, is: OutcomeKind) {
        self.last.retain(|outcome| outcome.account != *account);
        if self.last.len() >= REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(Outcome { account: account.clone(), at, kind: is });
    }

    fn forget(&mut self, now: Moment) {
        self.paces.retain(|_, pace| pace.last_halved().is_some_and(|last| now.since(last) < FORGET));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 32.0;

    fn account(n: usize) -> ThrottleKey {
        ThrottleKey::CloudAccount(format!("a{n}").into())
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// Returns whether throttling `throttled` accounts, after `served` others were served, counts as throttling all accounts.
    fn everybody(served: usize, throttled: usize) -> bool {
        let mut accounts = ThrottleTracker::new(MOST);
        (0..served).for_each(|n| accounts.served(&account(n), at(1)));
        (served..served + throttled).fold(false, |_, n| accounts.throttled(&account(n), at(2), None))
    }

    #[test]
    fn several_and_no_small_part_are_everybody() {
        assert!(!everybody(0, 2), "two are their own affair");
        assert!(everybody(0, 3));
        assert!(!everybody(40, 8), "a sixth");
        assert!(everybody(24, 8), "a quarter");
        assert!(everybody(0, 200), "more than are remembered");
    }

    #[test]
    fn accounts_throttled_at_different_times_are_not_everybody() {
        let mut accounts = ThrottleTracker::new(MOST);
        let any = (0..20).any(|n| accounts.throttled(&account(n), at(n as u64 * 6), None));
        assert!(!any);
    }

    #[test]
    fn what_was_served_long_ago_says_nothing_of_today() {
        let mut accounts = ThrottleTracker::new(MOST);
        (0..60).for_each(|n| accounts.served(&account(n), at(1)));
        let any = (60..64).any(|n| accounts.throttled(&account(n), at(600), None));
        assert!(any);
    }

    #[test]
    fn one_throttled_account_is_paced_and_no_other() {
        let mut accounts = ThrottleTracker::new(MOST);
        accounts.throttled(&account(1), at(1), Some(Duration::from_secs(9)));
        assert_eq!(accounts.next(&account(1)), Some(at(10)));
        assert_eq!(accounts.next(&account(2)), None);
        (0..10_000).for_each(|_| accounts.served(&account(1), at(20)));
        assert_eq!(accounts.next(&account(1)), None, "well again");
    }

    /// Some accounts that are throttled every time, asked for at their pace beside others that are served.
    #[test]
    fn accounts_throttled_again_and_again_are_no_evidence_while_any_other_is_served() {
        let mut accounts = ThrottleTracker::new(MOST);
        let mut verdicts = Vec::new();
        for second in 0..600 {
            accounts.served(&account(second as usize % 2), at(second));
            verdicts.push((10..18).any(|n| {
                let is_due = accounts.next(&account(n)).is_none_or(|next| next <= at(second));
                is_due && accounts.throttled(&account(n), at(second), None)
            }));
        }
        assert!(verdicts[0], "nothing speaks against it yet");
        assert!(!verdicts[60..].contains(&true));
        assert!(
            accounts.throttled(&account(10), at(700), None)
                || accounts.throttled(&account(11), at(700), None)
                || accounts.throttled(&account(12), at(700), None),
            "nobody is served"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut accounts = ThrottleTracker::new(MOST);
        for n in 0..5000 {
            accounts.throttled(&account(n), at(1), None);
        }
        assert!(accounts.paces.len() <= PACES && accounts.last.len() <= REMEMBERED);
        accounts.throttled(&account(0), at(1000), None);
        assert_eq!(accounts.paces.len(), 1, "what gave no sign for long is forgotten");
    }
}
