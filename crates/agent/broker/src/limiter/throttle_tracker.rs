//! Tracks throttled accounts. The tracker distinguishes one throttled account from a cloud that throttles all accounts.
//!
//! A cloud has several kinds of quotas: per project (shared by all accounts), per service account, or per principal. A response
//! does not state which quota was exceeded. So the tracker infers the quota from the accounts whose calls are throttled. A
//! throttled account immediately gets its own rate. The shared rate changes only if the cloud seems to throttle all accounts. The
//! tracker draws this conclusion if two conditions hold. Several accounts are throttled within a short time, and these accounts
//! are a considerable part of all recently used accounts. An account that is throttled at every call soon has a low rate and
//! counts as slow. While the cloud serves other accounts, a slow account is no evidence that the cloud throttles all accounts.
//! The tracker limits the number of rates and outcomes that it stores.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use seawall_core::Moment;

use super::rate::AdaptiveRate;
use crate::throttle_key::ThrottledAccountOrWorkload;

/// The lowest rate of a throttled account, in calls per second. It allows several tries from the time when a renewal is due until
/// the lease reaches its floor.
const SLOWEST: f64 = 1.0 / 15.0;

/// An account whose rate is below this limit is slow. The limit is in calls per second.
/// The cloud throttled a slow account about six times, and rarely or never served the account in between.
const SLOW: f64 = 0.75;

/// The random part of an account's pauses, as a fraction.
/// With equal pauses, two accounts would call at the same times, and the cloud would always throttle the second.
const SPREAD: f64 = 0.5;

/// The time without throttling after which the tracker forgets an account's rate.
const FORGET: Duration = Duration::from_secs(600);

/// The maximum number of stored account rates. It exceeds the number of pods on any node.
const PACES: usize = 1024;

/// The tracker stores the last outcome of at most this many accounts. At the default rate, the agent makes this many calls in two
/// seconds.
const REMEMBERED: usize = 64;

/// The time for which a served call is evidence that the cloud serves the call's account.
const LATELY: Duration = Duration::from_secs(120);

/// Accounts that the cloud throttled within this time count as throttled together.
const TOGETHER: Duration = Duration::from_secs(10);

/// The least number of throttled accounts from which the tracker can conclude that the cloud throttles all accounts.
/// One or two accounts may have exceeded only their own quotas.
const SEVERAL: usize = 3;

/// If at least one in four recently used accounts is throttled, the tracker assumes that the cloud throttles all accounts. If the
/// calls of all accounts exceed a project's quota by a third, the cloud throttles a quarter of the calls, whatever their
/// accounts. If only a sixth of the accounts is throttled (8 of 48), the tracker slows down only those accounts.
const ONE_IN: usize = 4;

#[derive(Debug)]
pub(super) struct ThrottleTracker {
    most_per_second: f64,
    /// The rates of the recently throttled accounts.
    paces: HashMap<ThrottledAccountOrWorkload, AdaptiveRate>,
    /// The last outcome of each account, with the newest at the end.
    last: VecDeque<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    account: ThrottledAccountOrWorkload,
    at: Moment,
    kind: OutcomeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutcomeKind {
    Served,
    Throttled,
    /// The account was throttled again and is now slow.
    ThrottledAgain,
}

impl ThrottleTracker {
    pub(super) fn new(most_per_second: f64) -> Self {
        Self { most_per_second, paces: HashMap::new(), last: VecDeque::new() }
    }

    /// Returns the time from which a call for this account can start, or `None` for any time.
    pub(super) fn next_start_at(&self, account: &ThrottledAccountOrWorkload) -> Option<Moment> {
        self.paces.get(account).map(AdaptiveRate::next_start_at)
    }

    /// True if the account was throttled recently, whatever its rate.
    pub(super) fn is_recently_throttled(&self, account: &ThrottledAccountOrWorkload) -> bool {
        self.paces.contains_key(account)
    }

    /// True if the account was throttled repeatedly.
    pub(super) fn is_repeatedly_throttled(&self, account: &ThrottledAccountOrWorkload) -> bool {
        self.paces.get(account).is_some_and(|pace| pace.calls_per_second() < SLOW)
    }

    pub(super) fn record_start(&mut self, account: &ThrottledAccountOrWorkload, now: Moment) {
        if let Some(pace) = self.paces.get_mut(account) {
            pace.record_start(now);
        }
    }

    pub(super) fn record_success(&mut self, account: &ThrottledAccountOrWorkload, now: Moment) {
        self.note(account, now, OutcomeKind::Served);
        if let Some(pace) = self.paces.get_mut(account) {
            pace.record_success();
            if pace.is_at_max() {
                self.paces.remove(account);
            }
        }
    }

    /// Slows the account down. Returns true if the cloud seems to throttle all accounts.
    /// The account's rate starts at the highest shared rate. So an account stays fast if the cloud throttles it only
    /// occasionally, because of a quota that several accounts share. An account that is throttled at every call is slow after
    /// about six calls.
    pub(super) fn record_throttled(
        &mut self,
        account: &ThrottledAccountOrWorkload,
        now: Moment,
        retry_after: Option<Duration>,
    ) -> bool {
        self.forget(now);
        if self.paces.len() < PACES || self.paces.contains_key(account) {
            let fresh = || AdaptiveRate::new(SLOWEST, self.most_per_second, SPREAD);
            self.paces.entry(account.clone()).or_insert_with(fresh).record_throttled(now, retry_after);
        }
        let is = if self.is_repeatedly_throttled(account) {
            OutcomeKind::ThrottledAgain
        } else {
            OutcomeKind::Throttled
        };
        self.note(account, now, is);
        self.is_everybody(now)
    }

    /// True if the cloud seems to throttle all accounts.
    /// An account that was throttled more than [`TOGETHER`] ago counts as neither throttled nor served, because its next call may
    /// succeed.
    fn is_everybody(&self, now: Moment) -> bool {
        let count = |is: OutcomeKind, within: Duration| {
            self.last.iter().filter(|o| o.kind == is && now.since(o.at) < within).count()
        };
        let served = count(OutcomeKind::Served, LATELY);
        let is_part = |throttled: usize| throttled >= SEVERAL && throttled * ONE_IN >= throttled + served;
        let (once, again) =
            (count(OutcomeKind::Throttled, TOGETHER), count(OutcomeKind::ThrottledAgain, TOGETHER));
        // If the cloud served no account recently, slow accounts count, too, because all accounts may have become slow together.
        let is_nobody_served = count(OutcomeKind::Served, TOGETHER) == 0;
        is_part(once) || (is_nobody_served && is_part(once + again))
    }

    fn note(&mut self, account: &ThrottledAccountOrWorkload, at: Moment, is: OutcomeKind) {
        self.last.retain(|outcome| outcome.account != *account);
        if self.last.len() >= REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(Outcome { account: account.clone(), at, kind: is });
    }

    fn forget(&mut self, now: Moment) {
        self.paces.retain(|_, pace| pace.last_halved_at().is_some_and(|last| now.since(last) < FORGET));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 32.0;

    fn account(n: usize) -> ThrottledAccountOrWorkload {
        ThrottledAccountOrWorkload::CloudAccount(format!("a{n}").into())
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// Returns whether all accounts count as throttled, after `served` accounts were served and `throttled` accounts were
    /// throttled.
    fn everybody(served: usize, throttled: usize) -> bool {
        let mut accounts = ThrottleTracker::new(MOST);
        (0..served).for_each(|n| accounts.record_success(&account(n), at(1)));
        (served..served + throttled).fold(false, |_, n| accounts.record_throttled(&account(n), at(2), None))
    }

    #[test]
    fn several_and_no_small_part_are_everybody() {
        assert!(!everybody(0, 2), "two accounts may have their own cause");
        assert!(everybody(0, 3));
        assert!(!everybody(40, 8), "a sixth");
        assert!(everybody(24, 8), "a quarter");
        assert!(everybody(0, 200), "more accounts than the tracker stores");
    }

    #[test]
    fn accounts_throttled_at_different_times_are_not_everybody() {
        let mut accounts = ThrottleTracker::new(MOST);
        let any = (0..20).any(|n| accounts.record_throttled(&account(n), at(n as u64 * 6), None));
        assert!(!any);
    }

    #[test]
    fn what_was_served_long_ago_says_nothing_of_today() {
        let mut accounts = ThrottleTracker::new(MOST);
        (0..60).for_each(|n| accounts.record_success(&account(n), at(1)));
        let any = (60..64).any(|n| accounts.record_throttled(&account(n), at(600), None));
        assert!(any);
    }

    #[test]
    fn one_throttled_account_is_paced_and_no_other() {
        let mut accounts = ThrottleTracker::new(MOST);
        accounts.record_throttled(&account(1), at(1), Some(Duration::from_secs(9)));
        assert_eq!(accounts.next_start_at(&account(1)), Some(at(10)));
        assert_eq!(accounts.next_start_at(&account(2)), None);
        (0..10_000).for_each(|_| accounts.record_success(&account(1), at(20)));
        assert_eq!(accounts.next_start_at(&account(1)), None, "the account is no longer throttled");
    }

    /// Some accounts are throttled at every call, while other accounts are served.
    #[test]
    fn accounts_throttled_again_and_again_are_no_evidence_while_any_other_is_served() {
        let mut accounts = ThrottleTracker::new(MOST);
        let mut verdicts = Vec::new();
        for second in 0..600 {
            accounts.record_success(&account(second as usize % 2), at(second));
            verdicts.push((10..18).any(|n| {
                let is_due = accounts.next_start_at(&account(n)).is_none_or(|next| next <= at(second));
                is_due && accounts.record_throttled(&account(n), at(second), None)
            }));
        }
        assert!(verdicts[0], "eight throttled accounts against one served account");
        assert!(!verdicts[60..].contains(&true));
        assert!(
            accounts.record_throttled(&account(10), at(700), None)
                || accounts.record_throttled(&account(11), at(700), None)
                || accounts.record_throttled(&account(12), at(700), None),
            "no account was served recently"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut accounts = ThrottleTracker::new(MOST);
        for n in 0..5000 {
            accounts.record_throttled(&account(n), at(1), None);
        }
        assert!(accounts.paces.len() <= PACES && accounts.last.len() <= REMEMBERED);
        accounts.record_throttled(&account(0), at(1000), None);
        assert_eq!(accounts.paces.len(), 1, "the tracker forgets accounts that were not throttled for long");
    }
}
