//! The supply of requests: a list that was read before the run, or an input that is read during the run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};

use crate::expectation::ExpectationSet;
use crate::in_flight::RequestRef;
use crate::poller::SenderWaker;
use crate::request::{PreparedRequest, RequestBuildError, RequestBuilder, RequestFraming};
use crate::schedule::ScheduleShard;
use crate::target::{Target, TargetError, TargetReader, Weight};
use crate::template::{Template, TemplateReader};

/// The number of requests that are read ahead per thread.
const AHEAD: usize = 1024;

/// The maximum sum of weights; larger weights are not scaled down, and the list is refused.
const MOST_PLACES: u64 = 1 << 24;

/// The requests of a run, all known before it begins.
#[derive(Debug, Clone)]
pub struct RequestList {
    requests: Arc<[PreparedRequest]>,
    /// The template of each request that is a sample of one; empty if there are no templates.
    templates: Arc<[Option<Template>]>,
    /// The indices in the order of one round; empty if all weights are equal.
    order: Arc<[u32]>,
}

/// The reason why a list cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestListError {
    /// The list has no requests.
    #[error("no targets to attack")]
    Empty,
    /// The sum of the weights exceeds the engine's limit.
    #[error("the weights of the targets add up to {0}, more than {MOST_PLACES}")]
    WeightsTooLarge(u64),
}

impl RequestList {
    /// Makes a list of requests with their weights.
    ///
    /// # Errors
    /// [`RequestListError`].
    pub fn new(weighted: Vec<(PreparedRequest, Weight)>) -> Result<Self, RequestListError> {
        Self::with_templates(weighted, Vec::new())
    }

    /// Makes a list of requests, some of which are samples of the template at the same index of `templates`.
    ///
    /// # Errors
    /// [`RequestListError`].
    pub fn with_templates(
        weighted: Vec<(PreparedRequest, Weight)>,
        templates: Vec<Option<Template>>,
    ) -> Result<Self, RequestListError> {
        let weights: Vec<u32> = weighted.iter().map(|(_, weight)| weight.0).collect();
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        if total == 0 {
            return Err(RequestListError::Empty);
        }
        if total > MOST_PLACES {
            return Err(RequestListError::WeightsTooLarge(total));
        }
        let equal = weights.iter().all(|&weight| weight == weights[0]);
        let order = if equal { Vec::new() } else { interleave(&weights, total) };
        let templates = if templates.iter().any(Option::is_some) { templates } else { Vec::new() };
        Ok(Self {
            requests: weighted.into_iter().map(|(request, _)| request).collect(),
            templates: templates.into(),
            order: order.into(),
        })
    }

    /// Returns a list that repeats the same requests in this order, whatever their weights; `None` if the order is empty or
    /// contains an invalid index. Comparisons of requests use it, because the fixed order of a round would influence the result.
    #[must_use]
    pub fn with_order(&self, order: Vec<u32>) -> Option<Self> {
        let is_there = |&index: &u32| (index as usize) < self.requests.len();
        let fits = !order.is_empty() && order.iter().all(is_there);
        fits.then(|| Self { order: order.into(), ..self.clone() })
    }

    /// Returns the same requests with other framing, and with another method if one is given. Bodies do not change.
    ///
    /// # Errors
    /// [`RequestBuildError`].
    pub fn reframed(&self, style: &RequestFraming, method: Option<&str>) -> Result<Self, RequestBuildError> {
        let requests: Result<Vec<_>, _> =
            self.requests.iter().map(|request| request.reframed(style, method)).collect();
        let template = |template: &Template| match method {
            Some(method) => template.clone().with_method(method),
            None => template.clone(),
        };
        let templates = self.templates.iter().map(|one| one.as_ref().map(template)).collect();
        Ok(Self { requests: requests?.into(), templates, order: Arc::clone(&self.order) })
    }

    /// Returns the requests in the order in which they were given.
    #[must_use]
    pub fn requests(&self) -> &[PreparedRequest] {
        &self.requests
    }

    #[inline]
    fn index(&self, seq: u64) -> usize {
        if self.order.is_empty() {
            (seq % self.requests.len() as u64) as usize
        } else {
            self.order[(seq % self.order.len() as u64) as usize] as usize
        }
    }
}

/// Returns one round in which each index has its share of places, evenly spread: place `j` of a target with weight `w` belongs at
/// `(2j + 1) / 2w` of the round.
fn interleave(weights: &[u32], total: u64) -> Vec<u32> {
    let mut places: Vec<(u64, u32)> = (0u32..)
        .zip(weights)
        .flat_map(|(index, &weight)| {
            (0..u64::from(weight))
                .map(move |place| ((2 * place + 1) * (total << 8) / u64::from(weight), index))
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, index)| index).collect()
}

/// The source of a run's requests.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has one such value and moves it only a few times")]
pub enum RequestSource {
    /// A list that was read before the run; its requests are used in turn.
    List(RequestList),
    /// An input that is read during the run; each request is used once, and the run ends with the input.
    Lazy(RequestReader),
}

impl RequestSource {
    /// Returns the requests that are known before the run.
    pub(crate) fn listed_requests(&self) -> &[PreparedRequest] {
        match self {
            Self::List(list) => list.requests(),
            Self::Lazy(_) => &[],
        }
    }

    /// True if a request can need TLS. If no listed target needs TLS, only a redirect can, and the first such redirect waits
    /// until TLS is set up.
    pub(crate) fn may_need_tls(&self) -> bool {
        match self {
            Self::List(list) => list.requests().iter().any(|request| request.origin().tls),
            Self::Lazy(_) => true,
        }
    }
}

/// A request with its weight, and the template that it is a sample of.
type SuppliedRequest = (PreparedRequest, Weight, Option<Template>);

/// Reads targets from an input and makes requests of them.
#[derive(Debug)]
pub struct RequestReader {
    reader: TargetReader,
    style: RequestFraming,
    /// The reader of templates, if placeholders are filled.
    templates: Option<TemplateReader>,
    /// The number of targets so far.
    read: u64,
}

impl RequestReader {
    /// Makes a reader of this input for requests with this framing.
    #[must_use]
    pub fn new(reader: TargetReader, style: RequestFraming, templates: Option<TemplateReader>) -> Self {
        Self { reader, style, templates, read: 0 }
    }

    /// Reads the whole input as a list.
    ///
    /// # Errors
    /// The first mistake, or an input that makes no list.
    pub fn read_all(mut self) -> Result<RequestList, RequestInputError> {
        let (mut requests, mut templates) = (Vec::new(), Vec::new());
        let mut builder = RequestBuilder::new(self.style.clone());
        while let Some((request, weight, template)) = self.next_made_by(|target, _| builder.build(target))? {
            requests.push((request, weight));
            // The list of templates is empty if no target is a template.
            if self.templates.is_some() {
                templates.push(template);
            }
        }
        Ok(RequestList::with_templates(requests, templates)?)
    }

    /// Reads the next request; for a template, the request that its place in the input fills.
    fn next_request(&mut self) -> Result<Option<SuppliedRequest>, TargetError> {
        self.next_made_by(PreparedRequest::new)
    }

    fn next_made_by(
        &mut self,
        mut make: impl FnMut(&Target, &RequestFraming) -> Result<PreparedRequest, RequestBuildError>,
    ) -> Result<Option<SuppliedRequest>, TargetError> {
        let Some((target, line)) = self.reader.next_target()? else { return Ok(None) };
        let template = match &mut self.templates {
            Some(templates) => {
                templates.read(&target).map_err(|bad| self.reader.error_at_line(line, bad.into()))?
            }
            None => None,
        };
        let filled = template.as_ref().map(|template| template.fill(self.read));
        let request = make(filled.as_ref().unwrap_or(&target), &self.style);
        self.read += 1;
        let request = request.map_err(|bad| self.reader.error_at_line(line, bad.into()))?;
        Ok(Some((request, target.weight, template)))
    }
}

/// The reason why an input is not a list of requests.
#[derive(Debug, thiserror::Error)]
pub enum RequestInputError {
    /// A line is invalid.
    #[error(transparent)]
    Mistake(#[from] TargetError),
    /// The lines do not make a list.
    #[error(transparent)]
    List(#[from] RequestListError),
}

/// Makes the request source of each thread, and for an input that is read during the run, a receiver of its end.
pub(crate) fn split_source(
    source: RequestSource,
    style: &RequestFraming,
    shard: ScheduleShard,
    wakers: &[SenderWaker],
) -> io::Result<(Vec<SenderRequests>, Option<Receiver<InputEnd>>)> {
    let intake = match source {
        RequestSource::List(list) => {
            return Ok((
                wakers.iter().map(|_| SenderRequests::from_list(list.clone(), style)).collect(),
                None,
            ));
        }
        RequestSource::Lazy(intake) => intake,
    };
    let (feeds, supplies): (Vec<_>, Vec<_>) =
        wakers.iter().map(|waker| Feed::new(style, waker.clone())).unzip();
    let (sender, exhausted) = channel();
    std::thread::Builder::new().name("targets".into()).spawn(move || {
        if let Some(exhausted) = feed_all(intake, &feeds, shard) {
            // The end is sent before the feeds are dropped, so that it is there when the threads end. A trial that has ended does
            // not read it.
            let _ = sender.send(exhausted);
        }
    })?;
    Ok((supplies, Some(exhausted)))
}

/// The request source of one thread.
#[derive(Debug)]
pub(crate) struct SenderRequests {
    style: RequestFraming,
    /// The list; empty if requests come from a queue.
    list: RequestList,
    /// The index in the list where the trial begins, which is added to each request's number.
    first: u64,
    queue: Option<Queue>,
    /// True if a request may have conditions on its response.
    expects: bool,
}

/// A request that was read during the run, with its number.
type Numbered = (u64, Arc<PreparedRequest>);

#[derive(Debug)]
struct Queue {
    requests: Receiver<Numbered>,
    /// The request that was reached last.
    front: Option<Numbered>,
    hungry: Arc<AtomicBool>,
}

/// The availability of a request for the next arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestAvailability {
    /// The request is available.
    Ready,
    /// The input has not been read that far.
    NotYet,
    /// The input has ended.
    Exhausted,
}

impl SenderRequests {
    pub(crate) fn from_list(list: RequestList, style: &RequestFraming) -> Self {
        let expects = list.requests.iter().any(|request| request.expectations().is_some());
        Self { style: style.clone(), list, first: 0, queue: None, expects }
    }

    /// Begins with this request of the list.
    pub(crate) fn starting_at(self, first: u64) -> Self {
        Self { first, ..self }
    }

    #[inline]
    fn index(&self, seq: u64) -> usize {
        self.list.index(seq.wrapping_add(self.first))
    }

    /// Makes a source without requests.
    pub(crate) fn none(style: &RequestFraming) -> Self {
        let list = RequestList { requests: Arc::default(), templates: Arc::default(), order: Arc::default() };
        Self::from_list(list, style)
    }

    /// Goes on to the request with this number and skips requests that were never sent. Numbers must rise.
    #[inline]
    pub(crate) fn advance_to(&mut self, seq: u64) -> RequestAvailability {
        self.queue.as_mut().map_or(RequestAvailability::Ready, |queue| queue.reach(seq))
    }

    /// Returns the request with this number, which was reached, and the index of its target in the statistics. `None` if the
    /// filled template is not a valid request.
    #[inline]
    pub(crate) fn select_request(&self, seq: u64) -> Option<(RequestRef, usize)> {
        if let Some(queue) = &self.queue {
            return queue.front.as_ref().map(|(_, request)| (RequestRef::Owned(Arc::clone(request)), 0));
        }
        let index = self.index(seq);
        match self.list.templates.get(index) {
            Some(Some(template)) => Some((self.filled(template, seq.wrapping_add(self.first))?, index)),
            _ => Some((RequestRef::Listed(index), index)),
        }
    }

    /// Returns the index in the statistics of the target of a request, even if the request is invalid.
    #[inline]
    pub(crate) fn target_index(&self, seq: u64) -> usize {
        if self.queue.is_some() { 0 } else { self.index(seq) }
    }

    /// Returns the variant of a request that was reached, even if the request is invalid.
    pub(crate) fn variant_name(&self, seq: u64) -> Option<&str> {
        let request = match &self.queue {
            Some(queue) => &*queue.front.as_ref()?.1,
            None => self.list.requests.get(self.index(seq))?,
        };
        request.origin().variant.as_ref().map(|variant| &*variant.name)
    }

    fn filled(&self, template: &Template, seq: u64) -> Option<RequestRef> {
        let request = PreparedRequest::new(&template.fill(seq), &self.style).ok()?;
        Some(RequestRef::Owned(Arc::new(request)))
    }

    /// Returns the request of a reference, which must come from [`SenderRequests::select_request`].
    #[inline]
    pub(crate) fn request<'r>(&'r self, which: &'r RequestRef) -> &'r PreparedRequest {
        match which {
            RequestRef::Listed(index) => &self.list.requests[*index],
            RequestRef::Owned(request) => request,
        }
    }

    /// Returns the conditions on the response to a request in flight.
    #[inline]
    pub(crate) fn expectations<'r>(&'r self, which: &'r RequestRef) -> Option<&'r Arc<ExpectationSet>> {
        if self.expects { self.request(which).expectations() } else { None }
    }

    /// True if requests are read during the run, each for the arrival with its number.
    pub(crate) fn is_read_during_run(&self) -> bool {
        self.queue.is_some()
    }

    pub(crate) fn redirected(
        &self,
        which: &RequestRef,
        status: u16,
        location: &str,
    ) -> Result<RequestRef, RequestBuildError> {
        self.request(which)
            .redirected(status, location, &self.style)
            .map(|request| RequestRef::Owned(Arc::new(request)))
    }
}

impl Queue {
    fn reach(&mut self, seq: u64) -> RequestAvailability {
        while self.front.as_ref().is_none_or(|(number, _)| *number < seq) {
            match self.requests.try_recv().or_else(|_| self.ask()) {
                Ok(front) => self.front = Some(front),
                Err(TryRecvError::Empty) => return RequestAvailability::NotYet,
                Err(TryRecvError::Disconnected) => return RequestAvailability::Exhausted,
            }
        }
        RequestAvailability::Ready
    }

    /// Notes that this thread waits, then looks again: a request that came in between would not wake the thread.
    #[cold]
    fn ask(&self) -> Result<Numbered, TryRecvError> {
        self.hungry.store(true, Ordering::SeqCst);
        self.requests.try_recv()
    }
}

/// The sending end of a thread's queue.
#[derive(Debug)]
struct Feed {
    requests: SyncSender<Numbered>,
    hungry: Arc<AtomicBool>,
    /// The alarm is dropped after `requests`, so that the thread sees the end of the queue when it wakes.
    alarm: Alarm,
}

/// Wakes a thread, also when it is dropped: the thread must notice that no more requests come.
#[derive(Debug)]
struct Alarm(SenderWaker);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Feed {
    /// Makes a queue: one end for the thread that `waker` wakes, the other for [`feed_all`].
    fn new(style: &RequestFraming, waker: SenderWaker) -> (Self, SenderRequests) {
        let (sender, requests) = sync_channel(AHEAD);
        let hungry = Arc::new(AtomicBool::new(false));
        let queue = Queue { requests, front: None, hungry: Arc::clone(&hungry) };
        (
            Self { requests: sender, hungry, alarm: Alarm(waker) },
            SenderRequests { queue: Some(queue), expects: true, ..SenderRequests::none(style) },
        )
    }

    /// Sends a request to the thread; false if the thread has ended.
    fn give(&self, numbered: Numbered) -> bool {
        let given = self.requests.send(numbered).is_ok();
        if self.hungry.swap(false, Ordering::SeqCst) {
            self.alarm.0.wake();
        }
        given
    }
}

/// The end of an input that was read during the run.
#[derive(Debug)]
pub(crate) struct InputEnd {
    /// The number of requests of the input. Arrivals with this number or a higher one have no request.
    pub(crate) request_count: u64,
    /// The bad line that ended the input.
    pub(crate) mistake: Option<TargetError>,
}

/// Reads the whole input and sends request `k` to the thread of arrival `k`, if that is in this shard. Returns `None` if a thread
/// ended first.
fn feed_all(mut intake: RequestReader, feeds: &[Feed], shard: ScheduleShard) -> Option<InputEnd> {
    for requests in 0.. {
        let thread = shard.thread_of(requests, feeds.len() as u64);
        let feed = thread.and_then(|thread| feeds.get(usize::try_from(thread).ok()?));
        let mistake = match intake.next_request() {
            Ok(Some((request, ..))) => {
                if feed.is_none_or(|feed| feed.give((requests, Arc::new(request)))) {
                    continue;
                }
                return None;
            }
            Ok(None) => None,
            Err(mistake) => Some(mistake),
        };
        return Some(InputEnd { request_count: requests, mistake });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::RunClock;
    use crate::poller::EventPoller;

    fn list(weights: &[u32]) -> Result<RequestList, RequestListError> {
        let target = Target { method: "GET".into(), url: "http://a/".into(), ..Target::default() };
        let request = PreparedRequest::new(&target, &RequestFraming::default()).unwrap();
        RequestList::new(weights.iter().map(|&weight| (request.clone(), Weight(weight))).collect())
    }

    fn round(weights: &[u32], hits: u64) -> Vec<usize> {
        let list = list(weights).unwrap();
        (0..hits).map(|seq| list.index(seq)).collect()
    }

    #[test]
    fn equal_targets_take_turns() {
        assert_eq!(round(&[1, 1, 1], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(round(&[5, 5], 3), [0, 1, 0]);
    }

    #[test]
    fn weights_are_shares_spread_over_the_round() {
        assert_eq!(round(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(round(&[1, 2, 4], 7).iter().filter(|&&index| index == 2).count(), 4);
    }

    #[test]
    fn a_list_is_sent_in_an_order_of_its_own_if_all_of_it_is_there() {
        let list = list(&[3, 1]).unwrap();
        let ordered = list.with_order(vec![1, 1, 0]).unwrap();
        let sent: Vec<_> = (0..7).map(|seq| ordered.index(seq)).collect();
        assert_eq!(sent, [1, 1, 0, 1, 1, 0, 1]);
        assert!(list.with_order(vec![0, 2]).is_none() && list.with_order(Vec::new()).is_none());
    }

    #[test]
    fn a_list_that_is_framed_in_another_way_keeps_its_order_and_its_templates() {
        let input = "GET http://a/{{seq}}\nGET http://b/\n";
        let reader = TargetReader::new(
            "t",
            Box::new(io::Cursor::new(input)),
            crate::target::TargetFormat::Http,
            Default::default(),
        );
        let list = RequestReader::new(reader, RequestFraming::default(), Some(TemplateReader::new(1)))
            .read_all()
            .unwrap();
        let style = RequestFraming { close: true, ..RequestFraming::default() };
        let supply = SenderRequests::from_list(list.reframed(&style, Some("HEAD")).unwrap(), &style);
        for (seq, line) in
            [(0, "HEAD /0 HTTP/1.1\r\n"), (1, "HEAD / HTTP/1.1\r\n"), (2, "HEAD /2 HTTP/1.1\r\n")]
        {
            let (which, _) = supply.select_request(seq).unwrap();
            let text = String::from_utf8_lossy(supply.request(&which).bytes());
            assert!(text.starts_with(line) && text.contains("\r\nConnection: close\r\n"), "{text}");
        }
        let plain = list.reframed(&RequestFraming::default(), None).unwrap();
        assert_eq!(plain.requests()[1].bytes(), list.requests()[1].bytes());
    }

    #[test]
    fn nothing_to_send_is_refused() {
        assert_eq!(list(&[]).unwrap_err(), RequestListError::Empty);
        assert!(matches!(list(&[u32::MAX, 1]), Err(RequestListError::WeightsTooLarge(_))));
    }
    /// The thread used to be woken before the end, found nothing, and slept until another wake-up.
    #[test]
    fn a_thread_that_is_woken_by_the_end_of_its_queue_finds_it() {
        let mut poller = EventPoller::new(RunClock::start()).unwrap();
        for _ in 0..200 {
            let (feed, mut supply) = Feed::new(&RequestFraming::default(), poller.waker());
            let reader = std::thread::spawn(move || drop(feed));
            let mut events = EventPoller::new_event_buffer();
            while events.is_empty() {
                poller.poll(&mut events).unwrap();
            }
            let reach = supply.advance_to(0);
            reader.join().unwrap();
            assert_eq!(reach, RequestAvailability::Exhausted);
        }
    }
}
