//! Whose turn it is. Everything the limiter knows, without a lock, a task or a clock of its own.

use std::time::Duration;

use seawall_core::Moment;

use super::accounts::Accounts;
use super::in_flight::Air;
use super::queue::{Entry, HolderId, Queue, Rank};
use super::rate::Rate;
use crate::settings::Settings;
use crate::throttle_key::Account;

/// Throttled to this rate at the lowest: a call every two seconds still finds out that the cloud is well again.
pub(super) const LEAST_PER_SECOND: f64 = 0.5;

/// How long throttled accounts make way for another's urgent renewal. A quota that is stated per second or more is free again
/// after it; an account that is asked for each 15 s costs the others an eighth of theirs.
const HUSH: Duration = Duration::from_secs(2);

/// Between two calls for accounts that were not throttled, where the rate of all has been slowed down.
const UNTROUBLED: Duration = Duration::from_millis(250);

/// Why a chain of calls is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// A request waits for it.
    Waited {
        /// Whether its pod holds nothing at all.
        holds_nothing: bool,
    },
    /// It replaces, ahead of time, a credential that is still good.
    Renewal {
        /// When that has come near its floor.
        urgent_at: Moment,
    },
}

/// For whom a chain of calls is made.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) holder: HolderId,
    pub(crate) account: Account,
}

/// Why a request may not queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its pod has as many queued as it may.
    Full,
    /// Its account is throttled, and until when.
    Throttled(Moment),
}

/// What there is to do.
pub(super) enum Step<W> {
    Start(Entry<W>),
    /// Somebody waits, but not before this.
    Until(Moment),
    Nothing,
}

/// `W` is what a waiter is told by.
#[derive(Debug)]
pub(super) struct State<W> {
    queued_per_holder: usize,
    patience: Duration,
    /// What all share.
    pub(super) rate: Rate,
    accounts: Accounts,
    pub(super) queue: Queue<W>,
    pub(super) air: Air,
    /// Tickets so far: the number of the next.
    tickets: u64,
    /// When the next call for an account that was not throttled may start, however slow the rate of all is.
    untroubled: Moment,
}

impl<W> State<W> {
    pub(super) fn new(settings: &Settings) -> Self {
        let most = settings.calls_per_second.max(LEAST_PER_SECOND);
        Self {
            queued_per_holder: settings.queued_per_holder.max(1),
            patience: settings.wait,
            rate: Rate::new(LEAST_PER_SECOND, most, 0.0),
            accounts: Accounts::new(most),
            queue: Queue::default(),
            air: Air::of(settings.calls_at_once),
            tickets: 0,
            untroubled: Moment::from_nanos(0),
        }
    }

    /// Whether a request of this pod may queue.
    pub(super) fn admits(&self, party: &Party, now: Moment) -> Result<(), Refused> {
        match self.accounts.next(&party.account) {
            // It would wait for nothing, and a library that is told waits better than one that hangs.
            Some(next) if next > now + self.patience => Err(Refused::Throttled(next)),
            _ if self.queue.waited_for(party.holder) >= self.queued_per_holder => Err(Refused::Full),
            _ => Ok(()),
        }
    }

    /// Queues a call; its number.
    pub(super) fn enter(&mut self, party: Party, lane: Lane, now: Moment, waiter: W) -> Result<u64, Refused> {
        let (is_waited_for, urgent_at) = match lane {
            Lane::Waited { .. } => (true, None),
            Lane::Renewal { urgent_at } => (false, Some(urgent_at)),
        };
        if is_waited_for {
            self.admits(&party, now)?;
        }
        let id = self.tickets;
        self.tickets += 1;
        let rank = self.rank(&party, lane);
        let Party { holder, account } = party;
        self.queue.push(Entry { id, holder, account, is_waited_for, urgent_at, waiter }, rank);
        Ok(id)
    }

    /// A request of this pod waits for what is queued, too.
    pub(super) fn lift(&mut self, id: u64, party: &Party, holds_nothing: bool) {
        let rank = self.rank(party, Lane::Waited { holds_nothing });
        self.queue.lift(id, party.holder, rank);
    }

    pub(super) fn succeeded(&mut self, account: &Account, now: Moment) {
        self.rate.succeeded();
        self.accounts.served(account, now);
    }

    pub(super) fn throttled(&mut self, account: &Account, now: Moment, retry_after: Option<Duration>) {
        if self.accounts.throttled(account, now, retry_after) {
            // Not its `retry_after`: that is one account's until the rate of all has shown that it is everybody's.
            self.rate.throttled(now, None);
        }
    }

    pub(super) fn step(&mut self, now: Moment) -> Step<W> {
        self.queue.hurry(now);
        let (id, not_before) = self.choose(now, |_| true);
        let Some(mut id) = id else { return not_before.map_or(Step::Nothing, Step::Until) };
        let is_early = now < self.rate.next();
        if is_early {
            match self.choose_untroubled(now) {
                Some(untroubled) if now >= self.untroubled => id = untroubled,
                Some(_) => return Step::Until(self.rate.next().min(self.untroubled)),
                None => return Step::Until(self.rate.next()),
            }
        }
        let Some(entry) = self.queue.take(id) else { return Step::Nothing };
        if is_early {
            self.untroubled = now + UNTROUBLED;
        } else {
            self.rate.started(now);
        }
        self.accounts.started(&entry.account, now);
        self.air.entered(entry.holder, entry.is_waited_for);
        Step::Start(entry)
    }

    /// A pod that holds nothing is a newcomer with one call at a time: its first, whatever it asks for. Not so if its account is
    /// throttled time and again: it would be first in the line for ever, before those whom the cloud serves.
    fn rank(&self, party: &Party, lane: Lane) -> Rank {
        let is_first = self.queue.len(party.holder) == 0 && self.air.own(party.holder) == 0;
        match lane {
            Lane::Waited { holds_nothing: true } if is_first && !self.accounts.is_slow(&party.account) => {
                Rank::Newcomer
            }
            Lane::Waited { .. } | Lane::Renewal { .. } => Rank::Ordinary,
        }
    }

    /// Whose turn it is, if there is room; else when the first of those that only a throttled account keeps back may go.
    fn choose(&self, now: Moment, is_meant: impl Fn(&Entry<W>) -> bool) -> (Option<u64>, Option<Moment>) {
        let hush = self.hush(now);
        let mut first: Option<Moment> = None;
        let may = |entry: &Entry<W>, rank: Rank| {
            let account = self.accounts.next(&entry.account).filter(|next| *next > now);
            let hushed = hush.filter(|_| rank > Rank::Urgent && self.accounts.is_paced(&entry.account));
            let not_before = account.max(hushed);
            let has_room = is_meant(entry) && self.air.has_room(entry.holder, entry.is_waited_for);
            if let (true, Some(at)) = (has_room, not_before) {
                first = Some(first.map_or(at, |first| first.min(at)));
            }
            has_room && not_before.is_none()
        };
        (self.queue.next(may), first)
    }

    /// Whose turn it is of those who wait for an account that was not throttled lately, where the rate of all was slowed. It was
    /// inferred from others' calls, and the evidence is weakest when hardly anybody else is asked for: a pod whose account the
    /// cloud would serve must not wait for a rate that accounts beside it have brought about. If the quota is everybody's
    /// after all, this call finds it out for its account.
    fn choose_untroubled(&self, now: Moment) -> Option<u64> {
        let is_untroubled = |entry: &Entry<W>| entry.is_waited_for && !self.accounts.is_paced(&entry.account);
        if !self.rate.is_at_most() { self.choose(now, is_untroubled).0 } else { None }
    }

    /// Until when throttled accounts make way for an urgent renewal of one. What it is throttled by may be theirs, too: a
    /// storm that takes whatever a project stands would be ahead of it each time. An account that is not throttled is
    /// in nobody's way.
    fn hush(&self, now: Moment) -> Option<Moment> {
        let next = |entry: &Entry<W>| self.accounts.next(&entry.account);
        let soon = self.queue.urgent().filter_map(next).filter(|next| *next > now && *next <= now + HUSH);
        soon.min()
    }
}
