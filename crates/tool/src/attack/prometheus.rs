//! `-prometheus-addr`: the run's counters for a scraper, under vegeta's names and labels, with a bound on every label.
//!
//! Names, labels and buckets are those of vegeta's `lib/prom/prom.go`. Where that one labels with whatever it met, this
//! one has closed sets: URLs only of targets that were known before the run and have figures of their own, messages from
//! the engine's kinds of failure; the rest is `other`. Its failure counter counts. Figures are as old as the last interval.
//! [`text`] writes them down, [`serve`] hands them out.

mod serve;
mod text;

use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use seawall_load::interval::IntervalStats;
use seawall_load::request_source::RequestSource;
use seawall_load::target_outcomes::{MAX_TARGETS, TargetOutcomes};

use self::text::ScrapeFormat;

/// A listening endpoint. It answers until the program ends.
#[derive(Debug)]
pub(crate) struct Exporter {
    figures: Arc<ExportedMetrics>,
}

impl Exporter {
    /// Listens at `HOST:PORT`; without a host on all addresses, as Go's listeners do.
    pub(crate) fn listen(address: &str, source: &RequestSource) -> anyhow::Result<Self> {
        let cannot = || format!("-prometheus-addr: cannot listen on {address}");
        let listener = match address.strip_prefix(':') {
            Some(port) => TcpListener::bind(("::", port.parse().with_context(cannot)?)),
            None => TcpListener::bind(address),
        };
        let listener = listener.with_context(cannot)?;
        let figures =
            Arc::new(ExportedMetrics { names: TargetLabels::of(source), outcomes: Mutex::default() });
        let shown = Arc::clone(&figures);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve::accept_loop(&listener, |dialect| shown.text(dialect)))
            .with_context(cannot)?;
        Ok(Self { figures })
    }

    /// Adds what was measured since the last time.
    pub(crate) fn add_interval(&self, interval: &IntervalStats) {
        self.figures.lock().merge(&interval.stats.outcomes);
    }
}

#[derive(Debug)]
struct ExportedMetrics {
    names: TargetLabels,
    /// A lock, because a scrape and a second's figures meet here once in a while and nothing else does.
    outcomes: Mutex<TargetOutcomes>,
}

impl ExportedMetrics {
    fn lock(&self) -> MutexGuard<'_, TargetOutcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, dialect: ScrapeFormat) -> String {
        let outcomes = self.lock().clone();
        text::format_metrics(&self.names, &outcomes, dialect)
    }
}

/// Longest URL that is a label.
const LONGEST_URL: usize = 256;

/// The labels of a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TargetLabel {
    method: String,
    url: String,
}

/// The names of the targets that have one.
#[derive(Debug, Default)]
struct TargetLabels(Vec<TargetLabel>);

impl TargetLabels {
    fn of(source: &RequestSource) -> Self {
        let RequestSource::List(list) = source else { return Self::default() };
        let requests = list.requests();
        // The last place of a longer list is shared.
        let named = if requests.len() > MAX_TARGETS { MAX_TARGETS - 1 } else { requests.len() };
        let name = |method: &str, url: &str| TargetLabel { method: method.to_owned(), url: label(url) };
        Self(requests[..named].iter().map(|request| name(request.method(), request.url())).collect())
    }

    fn name(&self, target: usize) -> TargetLabel {
        let other = || TargetLabel { method: OTHER.to_owned(), url: OTHER.to_owned() };
        self.0.get(target).cloned().unwrap_or_else(other)
    }
}

const OTHER: &str = "other";

/// A URL without its user and password, which are nobody's business, and not of any length.
fn label(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let label = format!("{scheme}://{host}{path}");
    if label.len() > LONGEST_URL { OTHER.to_owned() } else { label }
}

#[cfg(test)]
mod tests {
    use seawall_load::request::{PreparedRequest, RequestFraming};
    use seawall_load::request_source::RequestList;
    use seawall_load::target::{Target, Weight};

    use super::*;

    fn source(urls: impl Iterator<Item = String>) -> RequestSource {
        let request = |url| {
            let target = Target { method: "GET".to_owned(), url, ..Target::default() };
            (PreparedRequest::new(&target, &RequestFraming::default()).unwrap(), Weight::default())
        };
        RequestSource::List(RequestList::new(urls.map(request).collect()).unwrap())
    }

    #[test]
    fn a_url_becomes_a_label_without_its_password_and_not_at_any_length() {
        assert_eq!(label("http://me:secret@host:80/a@b?c"), "http://host:80/a@b?c");
        assert_eq!(label(&format!("http://host/{}", "a".repeat(LONGEST_URL))), OTHER);
    }

    #[test]
    fn the_place_that_many_targets_share_has_no_name() {
        let urls = |count| (0..count).map(|i| format!("http://host/{i}"));
        let full = TargetLabels::of(&source(urls(MAX_TARGETS)));
        assert_eq!(full.name(MAX_TARGETS - 1).url, format!("http://host/{}", MAX_TARGETS - 1));
        let more = TargetLabels::of(&source(urls(MAX_TARGETS + 1)));
        assert_eq!(more.name(MAX_TARGETS - 2).url, format!("http://host/{}", MAX_TARGETS - 2));
        assert_eq!(more.name(MAX_TARGETS - 1).url, OTHER);
    }

    #[test]
    fn an_address_in_use_is_an_error_that_names_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let refused = Exporter::listen(&address, &source(["http://host/".to_owned()].into_iter()));
        assert!(format!("{:#}", refused.unwrap_err()).contains(&address));
    }
}
