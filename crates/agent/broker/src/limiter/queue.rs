//! The queue of waiting upstream calls, and their order.
//!
//! There are three priorities. Within a priority, pods take turns. So a pod that requests sixty principals needs sixty turns.
//! Between these turns, other pods get their turns. Within a pod, calls with a waiting request go before other calls, and older
//! calls go before newer calls. Calls of a higher priority go first, but only for a limited number of turns in a row. After these
//! turns, one call of a lower priority goes first. Otherwise pods that always have calls of one priority would block the lower
//! priorities forever.
//!
//! The queue keeps only the order of calls. It knows neither the rate limit nor the limit of calls in flight. The limiter decides
//! which calls can start, and supplies the channel (`W`) that notifies the waiting fetch.

use std::collections::{BTreeSet, HashMap, VecDeque};

use seawall_core::Moment;

use crate::throttle_key::ThrottledAccountOrWorkload;

/// The id of a pod.
pub(crate) type RequesterId = u64;

/// The priority of a call. The first variant is the highest priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallPriority {
    /// A renewal of a lease that will soon be below its floor. The renewal goes before calls for new credentials, because pods
    /// already use the lease.
    Urgent,
    /// A call of a pod that has no lease and no other call in the queue or in flight.
    Newcomer,
    /// All other calls: additional credentials of a pod, and renewals that are not urgent.
    Ordinary,
}

/// The maximum numbers of turns in a row for urgent calls and for newcomers, while calls of a lower priority wait.
/// If the cloud denies all calls of a pod, the pod has no lease and stays a newcomer. While newcomers wait, ordinary calls get
/// one turn in four. So pods without a lease cannot block pods that request a second credential. While urgent renewals wait,
/// lower priorities get one turn in eight. Each cached lease has at most one renewal, so urgent renewals wait for long only if
/// the rate is too low for all of them.
const IN_A_ROW: [u32; 2] = [7, 3];

#[derive(Debug)]
pub(super) struct QueueEntry<W> {
    pub(super) id: u64,
    pub(super) requester_id: RequesterId,
    pub(super) throttle_key: ThrottledAccountOrWorkload,
    /// True if a request waits for the call.
    pub(super) is_waited_for: bool,
    /// The time from which the call is urgent, if it is a renewal.
    pub(super) urgent_at: Option<Moment>,
    /// The channel that notifies the waiting fetch of its turn.
    pub(super) waiter: W,
}

/// The calls that wait for a permit. Their number is limited: each pod has a limit for calls of requests, and each cached lease
/// has at most one renewal.
#[derive(Debug)]
pub(super) struct CallQueue<W> {
    ranks: [RoundRobin<W>; 3],
    standing: HashMap<u64, (CallPriority, RequesterId)>,
    soon: BTreeSet<(Moment, u64)>,
    in_a_row: [u32; 2],
}

impl<W> Default for CallQueue<W> {
    fn default() -> Self {
        let (standing, soon) = (HashMap::new(), BTreeSet::new());
        Self { ranks: Default::default(), standing, soon, in_a_row: [0, 0] }
    }
}

impl<W> CallQueue<W> {
    pub(super) fn push(&mut self, entry: QueueEntry<W>, rank: CallPriority) {
        self.standing.insert(entry.id, (rank, entry.requester_id));
        if let (Some(at), true) = (entry.urgent_at, rank > CallPriority::Urgent) {
            self.soon.insert((at, entry.id));
        }
        self.ranks[rank as usize].push(entry);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<QueueEntry<W>> {
        let (rank, holder) = self.standing.remove(&id)?;
        let entry = self.ranks[rank as usize].remove(holder, id)?;
        if let Some(at) = entry.urgent_at {
            self.soon.remove(&(at, id));
        }
        Some(entry)
    }

    /// Raises the priority of a queued call, because a request of the pod `holder` now also waits for the call.
    /// The call gets the priority `rank` if `rank` is higher than the call's present priority. The call moves to the queue of
    /// `holder` if the call's turn comes sooner in that queue. So if two pods share a credential, many requests of one pod do not
    /// delay the other pod.
    pub(super) fn raise_priority(&mut self, id: u64, holder: RequesterId, rank: CallPriority) {
        let Some(&(was, owner)) = self.standing.get(&id) else { return };
        let to = rank.min(was);
        let line = &self.ranks[to as usize];
        if to == was && line.position(owner, id) <= line.waited_for(holder) {
            return self.ranks[to as usize].move_up(owner, id);
        }
        if let Some(entry) = self.remove(id) {
            self.push(QueueEntry { requester_id: holder, is_waited_for: true, ..entry }, to);
        }
    }

    /// Raises renewals that have become urgent to [`CallPriority::Urgent`].
    pub(super) fn raise_due_renewals_to_urgent(&mut self, now: Moment) {
        while let Some(&(at, id)) = self.soon.first()
            && at <= now
        {
            self.soon.pop_first();
            if let Some(entry) = self.remove(id) {
                self.push(entry, CallPriority::Urgent);
            }
        }
    }

    /// Returns the id of the first call, in the order of priorities and turns, for which `may` returns true.
    pub(super) fn first_allowed_id(
        &self,
        mut may: impl FnMut(&QueueEntry<W>, CallPriority) -> bool,
    ) -> Option<u64> {
        let order = self.order().into_iter();
        let mut heads =
            order.flat_map(|rank| self.ranks[rank as usize].heads().map(move |head| (head, rank)));
        heads.find(|(entry, rank)| may(entry, *rank)).map(|(entry, _)| entry.id)
    }

    /// Returns the first urgent call of each pod that has urgent calls.
    pub(super) fn first_urgent_per_pod(&self) -> impl Iterator<Item = &QueueEntry<W>> {
        self.ranks[CallPriority::Urgent as usize].heads()
    }

    /// Removes a call whose turn has come, and moves its pod to the end of the order.
    pub(super) fn dequeue(&mut self, id: u64) -> Option<QueueEntry<W>> {
        let (rank, holder) = *self.standing.get(&id)?;
        self.count(rank);
        let entry = self.remove(id);
        self.ranks[rank as usize].turn_over(holder);
        entry
    }

    /// Returns the number of queued calls of one pod for which a request waits.
    pub(super) fn pod_waited_for_call_count(&self, holder: RequesterId) -> usize {
        self.ranks.iter().map(|turns| turns.waited_for(holder)).sum()
    }

    /// Returns the number of all queued calls of one pod.
    pub(super) fn pod_queued_call_count(&self, holder: RequesterId) -> usize {
        self.ranks.iter().map(|turns| turns.len(holder)).sum()
    }

    fn order(&self) -> [CallPriority; 3] {
        let lower = if self.in_a_row[1] < IN_A_ROW[1] {
            [CallPriority::Newcomer, CallPriority::Ordinary]
        } else {
            [CallPriority::Ordinary, CallPriority::Newcomer]
        };
        if self.in_a_row[0] < IN_A_ROW[0] {
            [CallPriority::Urgent, lower[0], lower[1]]
        } else {
            [lower[0], lower[1], CallPriority::Urgent]
        }
    }

    fn count(&mut self, rank: CallPriority) {
        match rank {
            CallPriority::Urgent => self.in_a_row[0] += 1,
            CallPriority::Newcomer => self.in_a_row = [0, self.in_a_row[1] + 1],
            CallPriority::Ordinary => self.in_a_row = [0, 0],
        }
    }
}

/// The queues of one priority: one queue per pod, and the order in which the pods take turns.
#[derive(Debug)]
struct RoundRobin<W> {
    turns: VecDeque<RequesterId>,
    lines: HashMap<RequesterId, VecDeque<QueueEntry<W>>>,
}

impl<W> Default for RoundRobin<W> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), lines: HashMap::new() }
    }
}

impl<W> RoundRobin<W> {
    fn push(&mut self, entry: QueueEntry<W>) {
        let line = self.lines.entry(entry.requester_id).or_default();
        if line.is_empty() {
            self.turns.push_back(entry.requester_id);
        }
        let at = if entry.is_waited_for { waited_for(line) } else { line.len() };
        line.insert(at, entry);
    }

    /// Moves a call ahead of its pod's calls that have no waiting request. A request now waits for the moved call.
    /// The pod keeps its turn.
    fn move_up(&mut self, holder: RequesterId, id: u64) {
        let Some(line) = self.lines.get_mut(&holder) else { return };
        let at = line.iter().position(|entry| entry.id == id && !entry.is_waited_for);
        if let Some(entry) = at.and_then(|at| line.remove(at)) {
            line.insert(waited_for(line), QueueEntry { is_waited_for: true, ..entry });
        }
    }

    fn remove(&mut self, holder: RequesterId, id: u64) -> Option<QueueEntry<W>> {
        let line = self.lines.get_mut(&holder)?;
        let at = line.iter().position(|entry| entry.id == id)?;
        let entry = line.remove(at);
        if line.is_empty() {
            self.lines.remove(&holder);
            self.turns.retain(|other| *other != holder);
        }
        entry
    }

    fn turn_over(&mut self, holder: RequesterId) {
        if let Some(at) = self.turns.iter().position(|other| *other == holder) {
            self.turns.remove(at);
            self.turns.push_back(holder);
        }
    }

    fn heads(&self) -> impl Iterator<Item = &QueueEntry<W>> {
        self.turns.iter().filter_map(|holder| self.lines.get(holder)?.front())
    }

    /// Returns the number of calls that are ahead of the call `id` in its pod's queue.
    fn position(&self, holder: RequesterId, id: u64) -> usize {
        let line = self.lines.get(&holder);
        line.and_then(|line| line.iter().position(|entry| entry.id == id)).unwrap_or(0)
    }

    fn waited_for(&self, holder: RequesterId) -> usize {
        self.lines.get(&holder).map_or(0, waited_for)
    }

    fn len(&self, holder: RequesterId) -> usize {
        self.lines.get(&holder).map_or(0, VecDeque::len)
    }
}

/// Returns the number of calls with a waiting request. Such calls are at the front of each queue.
fn waited_for<W>(line: &VecDeque<QueueEntry<W>>) -> usize {
    line.partition_point(|entry| entry.is_waited_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, holder: RequesterId) -> QueueEntry<()> {
        QueueEntry {
            id,
            requester_id: holder,
            throttle_key: ThrottledAccountOrWorkload::CloudAccount("cart".into()),
            is_waited_for: true,
            urgent_at: None,
            waiter: (),
        }
    }

    fn renewal(id: u64, holder: RequesterId, urgent_at: u64) -> QueueEntry<()> {
        let urgent_at = Some(Moment::from_nanos(urgent_at));
        QueueEntry { is_waited_for: false, urgent_at, ..entry(id, holder) }
    }

    fn order(queue: &mut CallQueue<()>) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(id) = queue.first_allowed_id(|_, _| true) {
            ids.push(id);
            queue.dequeue(id).unwrap();
        }
        assert!(queue.standing.is_empty() && queue.soon.is_empty());
        assert!(queue.ranks.iter().all(|turns| turns.turns.is_empty() && turns.lines.is_empty()));
        ids
    }

    #[test]
    fn pods_take_turns() {
        let mut queue = CallQueue::default();
        (0..5).for_each(|id| queue.push(entry(id, 1), CallPriority::Ordinary));
        (10..12).for_each(|id| queue.push(entry(id, 2), CallPriority::Ordinary));
        assert_eq!(order(&mut queue), [0, 10, 1, 11, 2, 3, 4]);
    }

    #[test]
    fn a_renewal_near_its_floor_goes_before_inventions_and_a_newcomer_before_further_ones() {
        let mut queue = CallQueue::default();
        (0..3).for_each(|id| queue.push(entry(id, 1), CallPriority::Ordinary));
        queue.push(entry(10, 2), CallPriority::Newcomer);
        (20..22).for_each(|id| queue.push(renewal(id, 3, 100), CallPriority::Ordinary));
        queue.raise_due_renewals_to_urgent(Moment::from_nanos(99));
        assert_eq!(queue.first_allowed_id(|_, _| true), Some(10));
        queue.raise_due_renewals_to_urgent(Moment::from_nanos(100));
        assert_eq!(order(&mut queue), [20, 21, 10, 0, 1, 2]);
    }

    /// A pod whose calls are all denied stays a newcomer forever. With too many renewals for the rate, some stay urgent forever.
    #[test]
    fn no_rank_shuts_out_those_behind_it() {
        let mut queue = CallQueue::default();
        (0..40).for_each(|id| queue.push(entry(id, id), CallPriority::Urgent));
        (100..110).for_each(|id| queue.push(entry(id, id), CallPriority::Newcomer));
        (200..210).for_each(|id| queue.push(entry(id, id), CallPriority::Ordinary));
        let order = order(&mut queue);
        let part =
            |from: usize, rank: u64| order[from..from + 32].iter().filter(|id| **id / 100 == rank).count();
        assert_eq!((part(0, 0), part(0, 1), part(0, 2)), (28, 3, 1));
    }

    #[test]
    fn within_a_pod_what_is_waited_for_goes_before_its_renewals() {
        let mut queue = CallQueue::default();
        queue.push(renewal(1, 1, 100), CallPriority::Ordinary);
        queue.push(entry(2, 1), CallPriority::Ordinary);
        queue.push(entry(3, 1), CallPriority::Ordinary);
        assert_eq!(order(&mut queue), [2, 3, 1]);
    }

    #[test]
    fn whoever_waits_lifts_what_it_waits_for() {
        let mut queue = CallQueue::default();
        (1..4).for_each(|id| queue.push(renewal(id, 1, 100), CallPriority::Ordinary));
        queue.raise_priority(3, 1, CallPriority::Ordinary);
        assert_eq!(queue.first_allowed_id(|_, _| true), Some(3), "before its pod's other renewals");
        queue.raise_priority(2, 7, CallPriority::Newcomer);
        assert_eq!(order(&mut queue), [2, 3, 1], "with the priority of the waiting pod");
    }

    #[test]
    fn what_a_pod_shares_with_a_storm_waits_in_its_own_line() {
        let mut queue = CallQueue::default();
        (0..20).for_each(|id| queue.push(entry(id, 1), CallPriority::Ordinary));
        queue.raise_priority(19, 2, CallPriority::Ordinary);
        assert_eq!(order(&mut queue)[..2], [0, 19]);
    }

    #[test]
    fn who_lifts_what_would_come_sooner_anyway_does_not_delay_it() {
        let mut queue = CallQueue::default();
        queue.push(entry(0, 1), CallPriority::Ordinary);
        (10..20).for_each(|id| queue.push(entry(id, 2), CallPriority::Ordinary));
        queue.raise_priority(0, 2, CallPriority::Ordinary);
        assert_eq!(queue.first_allowed_id(|_, _| true), Some(0));
    }

    #[test]
    fn who_may_not_go_keeps_its_turn_and_nobody_waits_for_it() {
        let mut queue = CallQueue::default();
        queue.push(entry(1, 1), CallPriority::Newcomer);
        queue.push(entry(2, 2), CallPriority::Ordinary);
        assert_eq!(queue.first_allowed_id(|entry, _| entry.requester_id != 1), Some(2));
        assert_eq!(queue.first_allowed_id(|_, _| true), Some(1));
    }
}
