//! Who waits for a call, in which order.
//!
//! Three ranks; within a rank pods take turns, so sixty inventions of one pod are sixty turns of that one; within a pod
//! what is waited for goes first, then who came first. A rank goes before the next, but not for ever: after a number of
//! turns in a row it lets one of those behind it through, or a rank that some pods can keep full would shut out others for
//! good. Knows nothing of rates and places: whoever takes says who may, and
//! brings what its waiter is told by (`W`).

use std::collections::{BTreeSet, HashMap, VecDeque};

use seawall_core::Moment;

use crate::throttle_key::Account;

/// Tells pods apart, by their holders.
pub(crate) type HolderId = u64;

/// What a call is worth, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A renewal of what will soon be below its floor. It was paid for and is in use; an invention was neither.
    Urgent,
    /// The only call of a pod that holds nothing.
    Newcomer,
    /// All else: what a pod asks for beside what it has, and renewals that have time.
    Ordinary,
}

/// Turns in a row of each rank but the last while others wait behind it. A pod whose account is denied everything holds
/// nothing and so stays a newcomer; one in four keeps such pods from shutting out who wants a second credential. Urgent
/// renewals are bounded by what is held, so they need one in eight only against a rate too low for all of them.
const IN_A_ROW: [u32; 2] = [7, 3];

#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) id: u64,
    pub(super) holder: HolderId,
    pub(super) account: Account,
    /// Whether a request waits for it.
    pub(super) is_waited_for: bool,
    /// When it becomes urgent, if time makes it so.
    pub(super) urgent_at: Option<Moment>,
    /// Whom its turn is told to.
    pub(super) waiter: W,
}

/// Its length is bounded: what is waited for by a cap for each pod, renewals by the credentials held.
#[derive(Debug)]
pub(super) struct Queue<W> {
    ranks: [Turns<W>; 3],
    standing: HashMap<u64, (Rank, HolderId)>,
    soon: BTreeSet<(Moment, u64)>,
    in_a_row: [u32; 2],
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        let (standing, soon) = (HashMap::new(), BTreeSet::new());
        Self { ranks: Default::default(), standing, soon, in_a_row: [0, 0] }
    }
}

impl<W> Queue<W> {
    pub(super) fn push(&mut self, entry: Entry<W>, rank: Rank) {
        self.standing.insert(entry.id, (rank, entry.holder));
        if let (Some(at), true) = (entry.urgent_at, rank > Rank::Urgent) {
            self.soon.insert((at, entry.id));
        }
        self.ranks[rank as usize].push(entry);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Entry<W>> {
        let (rank, holder) = self.standing.remove(&id)?;
        let entry = self.ranks[rank as usize].remove(holder, id)?;
        if let Some(at) = entry.urgent_at {
            self.soon.remove(&(at, id));
        }
        Some(entry)
    }

    /// Whoever waits lifts what it waits for: to its own rank if that is higher, and into its own line if its turn comes
    /// sooner there. A pod that shares a credential with a storming one must not stand in the storm's line.
    pub(super) fn lift(&mut self, id: u64, holder: HolderId, rank: Rank) {
        let Some(&(was, owner)) = self.standing.get(&id) else { return };
        let to = rank.min(was);
        let line = &self.ranks[to as usize];
        if to == was && line.position(owner, id) <= line.waited_for(holder) {
            return self.ranks[to as usize].move_up(owner, id);
        }
        if let Some(entry) = self.remove(id) {
            self.push(Entry { holder, is_waited_for: true, ..entry }, to);
        }
    }

    /// Lifts renewals whose time has come.
    pub(super) fn hurry(&mut self, now: Moment) {
        while let Some(&(at, id)) = self.soon.first()
            && at <= now
        {
            self.soon.pop_first();
            if let Some(entry) = self.remove(id) {
                self.push(entry, Rank::Urgent);
            }
        }
    }

    /// The next that `may` go: the first in the highest rank whose turn it is.
    pub(super) fn next(&self, mut may: impl FnMut(&Entry<W>, Rank) -> bool) -> Option<u64> {
        let order = self.order().into_iter();
        let mut heads =
            order.flat_map(|rank| self.ranks[rank as usize].heads().map(move |head| (head, rank)));
        heads.find(|(entry, rank)| may(entry, *rank)).map(|(entry, _)| entry.id)
    }

    /// The next of each pod whose renewal is urgent.
    pub(super) fn urgent(&self) -> impl Iterator<Item = &Entry<W>> {
        self.ranks[Rank::Urgent as usize].heads()
    }

    /// Takes one whose turn has come; its pod goes to the end of the turns.
    pub(super) fn take(&mut self, id: u64) -> Option<Entry<W>> {
        let (rank, holder) = *self.standing.get(&id)?;
        self.count(rank);
        let entry = self.remove(id);
        self.ranks[rank as usize].turn_over(holder);
        entry
    }

    /// Requests' calls of one pod.
    pub(super) fn waited_for(&self, holder: HolderId) -> usize {
        self.ranks.iter().map(|turns| turns.waited_for(holder)).sum()
    }

    /// All calls of one pod.
    pub(super) fn len(&self, holder: HolderId) -> usize {
        self.ranks.iter().map(|turns| turns.len(holder)).sum()
    }

    fn order(&self) -> [Rank; 3] {
        let lower = if self.in_a_row[1] < IN_A_ROW[1] {
            [Rank::Newcomer, Rank::Ordinary]
        } else {
            [Rank::Ordinary, Rank::Newcomer]
        };
        if self.in_a_row[0] < IN_A_ROW[0] {
            [Rank::Urgent, lower[0], lower[1]]
        } else {
            [lower[0], lower[1], Rank::Urgent]
        }
    }

    fn count(&mut self, rank: Rank) {
        match rank {
            Rank::Urgent => self.in_a_row[0] += 1,
            Rank::Newcomer => self.in_a_row = [0, self.in_a_row[1] + 1],
            Rank::Ordinary => self.in_a_row = [0, 0],
        }
    }
}

/// One rank's lines, one for each pod, and whose turn it is.
#[derive(Debug)]
struct Turns<W> {
    turns: VecDeque<HolderId>,
    lines: HashMap<HolderId, VecDeque<Entry<W>>>,
}

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<W> Turns<W> {
    fn push(&mut self, entry: Entry<W>) {
        let line = self.lines.entry(entry.holder).or_default();
        if line.is_empty() {
            self.turns.push_back(entry.holder);
        }
        let at = if entry.is_waited_for { waited_for(line) } else { line.len() };
        line.insert(at, entry);
    }

    /// Puts a call that has come to be waited for before those of its line that are not; its pod keeps its turn.
    fn move_up(&mut self, holder: HolderId, id: u64) {
        let Some(line) = self.lines.get_mut(&holder) else { return };
        let at = line.iter().position(|entry| entry.id == id && !entry.is_waited_for);
        if let Some(entry) = at.and_then(|at| line.remove(at)) {
            line.insert(waited_for(line), Entry { is_waited_for: true, ..entry });
        }
    }

    fn remove(&mut self, holder: HolderId, id: u64) -> Option<Entry<W>> {
        let line = self.lines.get_mut(&holder)?;
        let at = line.iter().position(|entry| entry.id == id)?;
        let entry = line.remove(at);
        if line.is_empty() {
            self.lines.remove(&holder);
            self.turns.retain(|other| *other != holder);
        }
        entry
    }

    fn turn_over(&mut self, holder: HolderId) {
        if let Some(at) = self.turns.iter().position(|other| *other == holder) {
            self.turns.remove(at);
            self.turns.push_back(holder);
        }
    }

    fn heads(&self) -> impl Iterator<Item = &Entry<W>> {
        self.turns.iter().filter_map(|holder| self.lines.get(holder)?.front())
    }

    /// Calls before this one in its line.
    fn position(&self, holder: HolderId, id: u64) -> usize {
        let line = self.lines.get(&holder);
        line.and_then(|line| line.iter().position(|entry| entry.id == id)).unwrap_or(0)
    }

    fn waited_for(&self, holder: HolderId) -> usize {
        self.lines.get(&holder).map_or(0, waited_for)
    }

    fn len(&self, holder: HolderId) -> usize {
        self.lines.get(&holder).map_or(0, VecDeque::len)
    }
}

/// Those that are waited for stand in front.
fn waited_for<W>(line: &VecDeque<Entry<W>>) -> usize {
    line.partition_point(|entry| entry.is_waited_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, holder: HolderId) -> Entry<()> {
        Entry {
            id,
            holder,
            account: Account::Named("cart".into()),
            is_waited_for: true,
            urgent_at: None,
            waiter: (),
        }
    }

    fn renewal(id: u64, holder: HolderId, urgent_at: u64) -> Entry<()> {
        let urgent_at = Some(Moment::from_nanos(urgent_at));
        Entry { is_waited_for: false, urgent_at, ..entry(id, holder) }
    }

    fn order(queue: &mut Queue<()>) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(id) = queue.next(|_, _| true) {
            ids.push(id);
            queue.take(id).unwrap();
        }
        assert!(queue.standing.is_empty() && queue.soon.is_empty());
        assert!(queue.ranks.iter().all(|turns| turns.turns.is_empty() && turns.lines.is_empty()));
        ids
    }

    #[test]
    fn pods_take_turns() {
        let mut queue = Queue::default();
        (0..5).for_each(|id| queue.push(entry(id, 1), Rank::Ordinary));
        (10..12).for_each(|id| queue.push(entry(id, 2), Rank::Ordinary));
        assert_eq!(order(&mut queue), [0, 10, 1, 11, 2, 3, 4]);
    }

    #[test]
    fn a_renewal_near_its_floor_goes_before_inventions_and_a_newcomer_before_further_ones() {
        let mut queue = Queue::default();
        (0..3).for_each(|id| queue.push(entry(id, 1), Rank::Ordinary));
        queue.push(entry(10, 2), Rank::Newcomer);
        (20..22).for_each(|id| queue.push(renewal(id, 3, 100), Rank::Ordinary));
        queue.hurry(Moment::from_nanos(99));
        assert_eq!(queue.next(|_, _| true), Some(10));
        queue.hurry(Moment::from_nanos(100));
        assert_eq!(order(&mut queue), [20, 21, 10, 0, 1, 2]);
    }

    /// A pod whose account is denied everything is a newcomer for ever; more renewals than the rate stands are urgent for ever.
    #[test]
    fn no_rank_shuts_out_those_behind_it() {
        let mut queue = Queue::default();
        (0..40).for_each(|id| queue.push(entry(id, id), Rank::Urgent));
        (100..110).for_each(|id| queue.push(entry(id, id), Rank::Newcomer));
        (200..210).for_each(|id| queue.push(entry(id, id), Rank::Ordinary));
        let order = order(&mut queue);
        let part =
            |from: usize, rank: u64| order[from..from + 32].iter().filter(|id| **id / 100 == rank).count();
        assert_eq!((part(0, 0), part(0, 1), part(0, 2)), (28, 3, 1));
    }

    #[test]
    fn within_a_pod_what_is_waited_for_goes_before_its_renewals() {
        let mut queue = Queue::default();
        queue.push(renewal(1, 1, 100), Rank::Ordinary);
        queue.push(entry(2, 1), Rank::Ordinary);
        queue.push(entry(3, 1), Rank::Ordinary);
        assert_eq!(order(&mut queue), [2, 3, 1]);
    }

    #[test]
    fn whoever_waits_lifts_what_it_waits_for() {
        let mut queue = Queue::default();
        (1..4).for_each(|id| queue.push(renewal(id, 1, 100), Rank::Ordinary));
        queue.lift(3, 1, Rank::Ordinary);
        assert_eq!(queue.next(|_, _| true), Some(3), "before its pod's other renewals");
        queue.lift(2, 7, Rank::Newcomer);
        assert_eq!(order(&mut queue), [2, 3, 1], "to the rank of the pod that waits");
    }

    #[test]
    fn what_a_pod_shares_with_a_storm_waits_in_its_own_line() {
        let mut queue = Queue::default();
        (0..20).for_each(|id| queue.push(entry(id, 1), Rank::Ordinary));
        queue.lift(19, 2, Rank::Ordinary);
        assert_eq!(order(&mut queue)[..2], [0, 19]);
    }

    #[test]
    fn who_lifts_what_would_come_sooner_anyway_does_not_delay_it() {
        let mut queue = Queue::default();
        queue.push(entry(0, 1), Rank::Ordinary);
        (10..20).for_each(|id| queue.push(entry(id, 2), Rank::Ordinary));
        queue.lift(0, 2, Rank::Ordinary);
        assert_eq!(queue.next(|_, _| true), Some(0));
    }

    #[test]
    fn who_may_not_go_keeps_its_turn_and_nobody_waits_for_it() {
        let mut queue = Queue::default();
        queue.push(entry(1, 1), Rank::Newcomer);
        queue.push(entry(2, 2), Rank::Ordinary);
        assert_eq!(queue.next(|entry, _| entry.holder != 1), Some(2));
        assert_eq!(queue.next(|_, _| true), Some(1));
    }
}
