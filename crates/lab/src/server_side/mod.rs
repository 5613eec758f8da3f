//! The target's own data in addition to the observations of its clients: its metrics, and its control group if that is on this
//! machine.
//!
//! The data is optional evidence and does not decide about a cause. A [`ServerSideReader`] takes a reading at each end of a
//! window of load ([`ServerSideReader::snapshot`]). [`compare_snapshots`] derives the facts between two readings, with their likelihood
//! ratios. [`fetch`] and [`cgroup`] read the data, [`exposition`] parses pages of metrics, and [`judge`] interprets them.
//!
//! This module sends no load and starts no thread, and the caller passes a clock. A reading blocks for at most
//! [`fetch::DEADLINE`]. The caller that runs trials and experiments uses it.

use std::sync::Arc;
use std::time::Duration;

use seawall_probe::file_reader::HostFiles;

pub mod cgroup;
pub mod exposition;
pub mod fetch;
pub mod judge;

pub use cgroup::{CgroupError, ServerCgroup};
pub use fetch::{MetricsEndpoint, MetricsFetchError, MetricsUrlError};
pub use judge::{ClientLoad, Fact, WindowObservation, compare_snapshots};

use cgroup::CgroupSnapshot;
use exposition::MetricsPage;

/// A monotonic clock.
pub type ServerSideClock<'a> = dyn Fn() -> Duration + 'a;

/// The least time between two pages. No target gets more than one request for metrics per second.
pub const MIN_PAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The sources of a target's own data.
#[derive(Debug)]
pub struct ServerSideReader {
    endpoint: Option<MetricsEndpoint>,
    group: Option<ServerCgroup>,
    last: Option<Arc<Timestamped<Result<MetricsPage, MetricsFetchError>>>>,
}

/// The end of a window at which a reading happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowEdge {
    /// The load begins after the reading.
    Begin,
    /// The load has just ended.
    End,
}

/// A value with the time span of its reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Timestamped<T> {
    /// The time when the reading began.
    pub from: Duration,
    /// The time when the reading ended.
    pub to: Duration,
    /// The value.
    pub value: T,
}

/// The latest readings at one edge of a window, each with its own times.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSideSnapshot {
    /// The page of metrics.
    pub page: Option<Arc<Timestamped<Result<MetricsPage, MetricsFetchError>>>>,
    /// The state of the control group.
    pub cgroup: Option<Timestamped<CgroupSnapshot>>,
}

impl ServerSideReader {
    /// Creates a reader of these sources, which may both be missing.
    #[must_use]
    pub fn new(endpoint: Option<MetricsEndpoint>, group: Option<ServerCgroup>) -> Self {
        Self { endpoint, group, last: None }
    }

    /// Takes the readings. The files of the control group take microseconds, so they are read next to the load, and the page is
    /// read outside of them. A page that is younger than [`MIN_PAGE_INTERVAL`] is reused with its own times.
    pub fn snapshot(
        &mut self,
        edge: WindowEdge,
        files: &dyn HostFiles,
        now: &ServerSideClock,
    ) -> ServerSideSnapshot {
        match edge {
            WindowEdge::Begin => {
                let page = self.page(now);
                ServerSideSnapshot { page, cgroup: self.levels(files, now) }
            }
            WindowEdge::End => {
                let levels = self.levels(files, now);
                ServerSideSnapshot { page: self.page(now), cgroup: levels }
            }
        }
    }

    fn page(
        &mut self,
        now: &ServerSideClock,
    ) -> Option<Arc<Timestamped<Result<MetricsPage, MetricsFetchError>>>> {
        let endpoint = self.endpoint.as_ref()?;
        let from = now();
        if let Some(last) = self.last.as_ref().filter(|last| from.saturating_sub(last.to) < MIN_PAGE_INTERVAL)
        {
            return Some(Arc::clone(last));
        }
        let what = endpoint.fetch(fetch::DEADLINE, now);
        let taken = Arc::new(Timestamped { from, to: now(), value: what });
        self.last = Some(Arc::clone(&taken));
        Some(taken)
    }

    fn levels(&self, files: &dyn HostFiles, now: &ServerSideClock) -> Option<Timestamped<CgroupSnapshot>> {
        let group = self.group.as_ref()?;
        let from = now();
        let what = group.read(files);
        Some(Timestamped { from, to: now(), value: what })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use seawall_probe::file_reader::fake::Texts;

    /// Starts a target that counts the requests for its page.
    fn counting(pages: usize) -> (MetricsEndpoint, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint =
            MetricsEndpoint::resolve(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let server = thread::spawn(move || {
            for count in 0..pages {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).unwrap() > 0);
                write!(stream, "HTTP/1.1 200 OK\r\n\r\npages_total {count}\n").unwrap();
            }
        });
        (endpoint, server)
    }

    #[test]
    fn a_page_is_fetched_once_a_second_at_most() {
        let (endpoint, server) = counting(2);
        let mut side = ServerSideReader::new(Some(endpoint), None);
        let (texts, time) = (Texts::default(), Cell::new(0));
        let now = || Duration::from_millis(time.get());
        let mut count = |at| {
            time.set(at);
            let page = side.snapshot(WindowEdge::End, &texts, &now).page.unwrap();
            (page.to.as_millis(), page.value.as_ref().unwrap().sum("pages_total"))
        };
        assert_eq!(count(5000), (5000, Some(0.0)));
        assert_eq!(count(5999), (5000, Some(0.0)), "the same, and it says of when it is");
        assert_eq!(count(6000), (6000, Some(1.0)));
        server.join().unwrap();
    }

    #[test]
    fn the_group_is_looked_at_next_to_the_load() {
        let texts = Texts::new(&[("/g/cgroup.procs", ""), ("/g/memory.current", "1\n")]);
        let group = ServerCgroup::open_directories(&texts, &["/g".to_owned()]).unwrap();
        let (endpoint, server) = counting(2);
        let mut side = ServerSideReader::new(Some(endpoint), Some(group));
        // This clock advances by one second at each call.
        let time = Cell::new(0);
        let now = || {
            time.set(time.get() + 1);
            Duration::from_secs(time.get()) / 1000
        };
        let begin = side.snapshot(WindowEdge::Begin, &texts, &now);
        assert!(begin.page.unwrap().to < begin.cgroup.unwrap().from);
        time.set(10_000);
        let end = side.snapshot(WindowEdge::End, &texts, &now);
        assert!(end.cgroup.unwrap().to < end.page.unwrap().from);
        server.join().unwrap();
    }

    #[test]
    fn nothing_is_asked_where_nothing_is_given() {
        let look = ServerSideReader::new(None, None)
            .snapshot(WindowEdge::Begin, &Texts::default(), &|| Duration::ZERO);
        assert_eq!(look, ServerSideSnapshot { page: None, cgroup: None });
    }
}
