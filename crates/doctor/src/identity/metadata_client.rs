//! Sends requests to one server within its share of the check's time and requests.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use seawall_fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse};

use super::observed_metadata_server::{
    CredentialAttempt, CredentialResult, CredentialServer, MissingFieldCheck,
};
use super::secret_redaction::SeenSecrets;
use crate::check::CheckContext;

/// The shortest time that an SDK waits for a response's head (aws-sdk-go-v2, `feature/ec2/imds`: 500 ms).
const EACH: Duration = Duration::from_millis(500);

/// The time that most SDKs wait for a response. This check waits as long for the first response of a server, and for all responses of a
/// server slower than [`EACH`]. (botocore and AWS's SDKs for Java, JavaScript and Rust, Azure's probes; Google's libraries wait longer.)
const LONG: Duration = Duration::from_secs(1);

/// The time for all requests to one server, plus the time that earlier servers left. Four servers take less than five seconds.
const SHARE: Duration = Duration::from_millis(1150);

/// The most requests of the whole check. Two starting pods send a node as many, and no server notices them.
const MOST_REQUESTS: u32 = 100;

/// The largest response in bytes. Documents with credentials have about two kilobytes.
const MOST_BYTES: usize = 64 << 10;

/// The limits and secrets that all servers share.
pub(super) struct RequestBudget {
    /// The end of the current server's time share.
    until: Cell<Duration>,
    /// The authorities that did not respond within the longest wait. No later request waits there as long again.
    mute: RefCell<Vec<String>>,
    count: Cell<u32>,
    /// The secrets of all servers, because the response of one server may contain a secret of another.
    secrets: SeenSecrets,
}

impl RequestBudget {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            until: Cell::new(now),
            mute: RefCell::default(),
            count: Cell::default(),
            secrets: SeenSecrets::default(),
        }
    }

    /// Starts the next server's time share.
    pub(super) fn start_next_server(&self) {
        self.until.set(self.until.get() + SHARE);
    }

    /// Returns the number of requests so far.
    pub(super) fn request_count(&self) -> u32 {
        self.count.get()
    }

    /// Returns the secrets that were sent or received so far, and those that will be sent.
    pub(super) fn secrets(&self) -> &SeenSecrets {
        &self.secrets
    }
}

/// A client for one metadata server.
pub(super) struct CloudServerClient<'a> {
    site: &'a CheckContext<'a>,
    pace: &'a RequestBudget,
    wanted: &'a CredentialServer,
    /// True if no request was sent yet.
    is_new: Cell<bool>,
    /// The response times.
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

    /// Waits no longer for the first response than for the others.
    pub(super) fn impatient(self) -> Self {
        self.is_new.set(false);
        self
    }

    /// Sends a GET for credentials. Errors and texts from its response show no secret.
    pub(super) fn get_secret(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<FetchResponse, FetchError> {
        self.request_and_remember_secrets("GET", path, headers)
    }

    /// Sends a request for credentials with any method.
    pub(super) fn request_and_remember_secrets(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<FetchResponse, FetchError> {
        let answer = self.ask(method, path, headers)?;
        self.pace.secrets.keep_all_of(&answer);
        Ok(answer)
    }

    /// Sends a GET for a path below the server's URL; an empty path means the URL itself.
    pub(super) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<FetchResponse, FetchError> {
        self.ask("GET", path, headers)
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<FetchResponse, FetchError> {
        let place = &self.wanted.url;
        let deadline = self.patience(method);
        if deadline.is_zero() || self.pace.request_count() >= MOST_REQUESTS {
            return Err(FetchError::Timeout(deadline));
        }
        self.pace.count.set(self.pace.request_count() + 1);
        // Header values that are not secrets are too short to be kept.
        headers.iter().for_each(|(_, value)| self.pace.secrets.keep(value));
        let target = if path.is_empty() { place.target() } else { place.request_path_below(path) };
        let request = FetchRequest { method, host: &place.authority, target: &target, headers };
        let begun = (self.site.now)();
        let answer = self.site.http_fetcher.fetch(
            place,
            &request,
            &FetchLimits { timeout: deadline, max_body_bytes: MOST_BYTES },
        );
        if self.is_new.replace(false) && matches!(answer, Err(FetchError::Timeout(_))) {
            self.pace.mute.borrow_mut().push(place.authority.clone());
        }
        if answer.is_ok() {
            self.times.borrow_mut().push((self.site.now)().saturating_sub(begun));
        }
        answer
    }

    /// Returns the time limit for the next response.
    fn patience(&self, method: &str) -> Duration {
        let is_mute = || self.pace.mute.borrow().contains(&self.wanted.url.authority);
        let is_long = self.is_slow() || (self.is_new.get() && !is_mute());
        // The response to a token request may be lost, so some time stays reserved for the other requests.
        let kept = if method == "PUT" { EACH } else { Duration::ZERO };
        let most = if is_long { LONG.min(self.left().saturating_sub(kept)) } else { EACH };
        most.min(self.left())
    }

    /// Returns whether a response took longer than the least patient SDK waits.
    pub(super) fn is_slow(&self) -> bool {
        self.times.borrow().iter().any(|took| *took > EACH)
    }

    /// Returns the response times of all requests so far.
    pub(super) fn recorded_response_times(&self) -> Vec<Duration> {
        self.times.borrow().clone()
    }

    /// Requests credentials this many times, but stops after two missing responses or at the time limit. It returns the last complete
    /// response. The first response may already exist.
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
            tries.push(CredentialAttempt { took: *took, result: got });
        }
        let is_nothing = |once: &&CredentialAttempt| matches!(once.result, CredentialResult::NoAnswer(_));
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
            tries.push(CredentialAttempt { took, result: got });
        }
        (tries, good)
    }

    fn left(&self) -> Duration {
        self.pace.until.get().saturating_sub((self.site.now)())
    }
}
