//! Asks one server, within its share of the check's time and of its requests.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use seawall_fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse};

use super::lent::{CredentialAttempt, CredentialResult, CredentialServer, MissingFieldCheck};
use super::secrets::Secrets;
use crate::check::CheckContext;

/// The least that an SDK waits for an answer's head (aws-sdk-go-v2, `feature/ec2/imds`: 500 ms).
const EACH: Duration = Duration::from_millis(500);

/// What most SDKs wait (botocore, Java's, JavaScript's and Rust's for AWS; Azure's probes; Google's wait longer): for the first answer of a server,
/// and for all of one that was slower than [`EACH`], because slow is not mute.
const LONG: Duration = Duration::from_secs(1);

/// For all that is asked of one server, and what those before it left of theirs; four of them end within five seconds.
const SHARE: Duration = Duration::from_millis(1150);

/// All requests of the check together: what two pods that start ask of a node, and far below what a server notices.
const MOST_REQUESTS: u32 = 100;

/// Documents of credentials have some two kilobytes.
const MOST_BYTES: usize = 64 << 10;

/// What all servers share.
pub(super) struct RequestBudget {
    /// When the share of the server that is asked now is over.
    until: Cell<Duration>,
    /// Host and port where somebody said nothing for as long as is waited at most: nobody waits there as long again.
    mute: RefCell<Vec<String>>,
    count: Cell<u32>,
    /// Of all servers: what one of them lends another may say.
    secrets: Secrets,
}

impl RequestBudget {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            until: Cell::new(now),
            mute: RefCell::default(),
            count: Cell::default(),
            secrets: Secrets::default(),
        }
    }

    /// From now on it is the next server's time.
    pub(super) fn next(&self) {
        self.until.set(self.until.get() + SHARE);
    }

    /// Requests so far.
    pub(super) fn count(&self) -> u32 {
        self.count.get()
    }

    /// What was sent and lent so far, and what is to be sent beside that.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

/// One server.
pub(super) struct CloudServerClient<'a> {
    site: &'a CheckContext<'a>,
    pace: &'a RequestBudget,
    wanted: &'a CredentialServer,
    /// Nothing was asked yet.
    is_new: Cell<bool>,
    /// How long each answer took.
    times: RefCell<Vec<Duration>>,
}

impl<'a> CloudServerClient<'a> {
    pub(super) fn new(
        site: &'a CheckContext<'a>,
        pace: &'a RequestBudget,
        wanted: &'a CredentialServer,
    ) -> Self {
        Self { site, pace, wanted, is_new: Cell::new(true), times: RefCell::default() }
    }

    /// As [`Self::get`], for what is answered with credentials: nothing of those is shown.
    pub(super) fn get_secret(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<FetchResponse, FetchError> {
        self.request_secret("GET", path, headers)
    }

    /// The same, with any method.
    pub(super) fn request_secret(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<FetchResponse, FetchError> {
        let answer = self.ask(method, path, headers)?;
        self.pace.secrets.keep_all_of(&answer);
        Ok(answer)
    }

    /// A path below the place; the place itself if it is empty.
    pub(super) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<FetchResponse, FetchError> {
        self.ask("GET", path, headers)
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<FetchResponse, FetchError> {
        let place = &self.wanted.place;
        let deadline = self.patience(method);
        if deadline.is_zero() || self.pace.count() >= MOST_REQUESTS {
            return Err(FetchError::Timeout(deadline));
        }
        self.pace.count.set(self.pace.count() + 1);
        // Those that are no secrets are too short for one.
        headers.iter().for_each(|(_, value)| self.pace.secrets.keep(value));
        let target = if path.is_empty() { place.target() } else { place.path_below(path) };
        let request = FetchRequest { method, host: &place.authority, target: &target, headers };
        let begun = (self.site.now)();
        let answer = self.site.web.fetch(place, &request, &FetchLimits { deadline, max_body: MOST_BYTES });
        if self.is_new.replace(false) && matches!(answer, Err(FetchError::Timeout(_))) {
            self.pace.mute.borrow_mut().push(place.authority.clone());
        }
        if answer.is_ok() {
            self.times.borrow_mut().push((self.site.now)().saturating_sub(begun));
        }
        answer
    }

    /// How long the next answer is waited for.
    fn patience(&self, method: &str) -> Duration {
        let is_mute = || self.pace.mute.borrow().contains(&self.wanted.place.authority);
        let is_long = self.is_slow() || (self.is_new.get() && !is_mute());
        // A token's answer may be lost where others are not: who waits for it leaves time for those.
        let kept = if method == "PUT" { EACH } else { Duration::ZERO };
        let most = if is_long { LONG.min(self.left().saturating_sub(kept)) } else { EACH };
        most.min(self.left())
    }

    /// One of its answers took longer than the least patient SDK waits.
    pub(super) fn is_slow(&self) -> bool {
        self.times.borrow().iter().any(|took| *took > EACH)
    }

    /// How long each answer so far took, whatever was asked for.
    pub(super) fn times(&self) -> Vec<Duration> {
        self.times.borrow().clone()
    }

    /// Asks for credentials so many times, fewer if twice no answer came, or time ends; the last answer that lacks nothing is handed out. The
    /// first one may have come already.
    pub(super) fn attempt_credentials(
        &self,
        times: usize,
        path: &str,
        headers: &[(&str, &str)],
        lacks: MissingFieldCheck,
        first: Option<FetchResponse>,
    ) -> (Vec<CredentialAttempt>, Option<FetchResponse>) {
        let (mut tries, mut good): (Vec<CredentialAttempt>, _) = (Vec::new(), None);
        if let (Some(first), Some(took)) = (first, self.times.borrow().last()) {
            let got = CredentialResult::of(&first, lacks);
            good = matches!(got, CredentialResult::Credentials).then_some(first);
            tries.push(CredentialAttempt { took: *took, got });
        }
        let is_nothing = |once: &&CredentialAttempt| matches!(once.got, CredentialResult::NoAnswer(_));
        let enough = |asker: &Self| asker.left() >= if asker.is_slow() { LONG } else { EACH };
        while tries.len() < times && enough(self) && tries.iter().filter(is_nothing).count() < 2 {
            let begun = (self.site.now)();
            let answer = self.get_secret(path, headers);
            let took = (self.site.now)().saturating_sub(begun);
            let got = answer.as_ref().map_or_else(
                |why| CredentialResult::NoAnswer(why.clone()),
                |answer| CredentialResult::of(answer, lacks),
            );
            good = answer.ok().filter(|_| matches!(got, CredentialResult::Credentials)).or(good);
            tries.push(CredentialAttempt { took, got });
        }
        (tries, good)
    }

    fn left(&self) -> Duration {
        self.pace.until.get().saturating_sub((self.site.now)())
    }
}
