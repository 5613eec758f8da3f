//! A broker under a clock moved by hand, and a cloud that does what the test says. It has the request types of Google.
//!
//! Everything runs on one thread without a timer of its own, so nothing happens but by [`World::pass`]. It lets every task run
//! until none can go on, moves the clock to the next instant that a task sleeps for, and so on.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall_broker::google::{
    CredentialRequestRef, GooglePodCredentialsSpec, GooglePrincipal, GoogleTokenText,
};
use seawall_broker::{
    Broker, BrokerSettings, ExchangeError, ExchangeFault, ExchangeFuture, IssuedCredential, LeaseError,
    TokenExchange,
};
use seawall_core::pod::{SubjectFuture, SubjectTokenError, SubjectTokens};
use seawall_core::{Clock, Lease, ManualClock, Moment, Pod, PodUid, Secret, ServiceAccount};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const TOKEN: CredentialRequestRef<'static> =
    CredentialRequestRef::AccessToken { scopes: "https://example.com/auth/all" };

/// A text that no output may hold.
pub(crate) const SECRET: &str = "c2VjcmV0";

/// A pod's client for the credentials of [`Cloud`].
pub(crate) type Holder = seawall_broker::PodLeaseClient<Cloud>;

pub(crate) type Answer = Result<Arc<Lease<GoogleTokenText>>, LeaseError>;

pub(crate) struct World {
    pub(crate) broker: Broker<Cloud>,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) clock: Clock,
    hand: ManualClock,
}

/// Runs a test on one thread that has no timer.
pub(crate) fn run<F: Future>(test: impl FnOnce() -> F) -> F::Output {
    runtime().block_on(async { test().await })
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

impl World {
    /// Creates a world. Call this inside of [`run`].
    pub(crate) fn new(settings: BrokerSettings) -> Self {
        let (clock, hand) = Clock::manual();
        let cloud = Arc::new(Cloud { clock: clock.clone(), ..Cloud::default() });
        let broker = Broker::start(settings, clock.clone(), cloud.clone(), Handle::current());
        Self { broker, cloud, clock, hand }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A pod that impersonates an account.
    pub(crate) fn pod(&self, name: &str, account: &str) -> Arc<Holder> {
        self.pod_with(name, account, Subject::default())
    }

    pub(crate) fn pod_with(&self, name: &str, account: &str, subject: Subject) -> Arc<Holder> {
        self.broker.new_pod_client(spec(name, account, Arc::new(subject)))
    }

    /// Lets time pass, step by step.
    pub(crate) async fn pass(&self, span: Duration) {
        pass(&self.clock, &self.hand, span).await;
    }

    /// Requests a lease in the background; the response comes with time.
    pub(crate) fn ask(&self, holder: &Arc<Holder>, want: CredentialRequestRef<'_>) -> JoinHandle<Answer> {
        let (holder, want) = (holder.clone(), want.to_request());
        tokio::spawn(async move { holder.lease(want.as_ref()).await })
    }

    /// Requests a lease and lets time pass until the response.
    pub(crate) async fn answer(&self, holder: &Arc<Holder>, want: CredentialRequestRef<'_>) -> Answer {
        let asked = self.ask(holder, want);
        settle().await;
        while !asked.is_finished() {
            let next = self.hand.next_deadline().expect("an answer without a deadline");
            self.hand.advance(next.since(self.now()));
            settle().await;
        }
        asked.await.unwrap()
    }
}

/// Lets time pass on this clock, from each instant that a task sleeps for to the next.
pub(crate) async fn pass(clock: &Clock, hand: &ManualClock, span: Duration) {
    let end = clock.now() + span;
    loop {
        settle().await;
        let next = hand.next_deadline().unwrap_or(end).min(end);
        hand.advance(next.since(clock.now()));
        if next == end {
            return settle().await;
        }
    }
}

/// Lets every task run until none can go on. Each yield lets all that are ready run once; no chain of wake-ups
/// here is nearly as long.
pub(crate) async fn settle() {
    for _ in 0..64 {
        yield_now().await;
    }
}

pub(crate) fn spec(name: &str, account: &str, subject: Arc<Subject>) -> GooglePodCredentialsSpec {
    let service_account = ServiceAccount { namespace: "shop".into(), name: account.into() };
    let pod = Pod { uid: PodUid(name.into()), name: name.into(), service_account };
    let entitlement = Some(format!("{account}@my-project.iam.gserviceaccount.com").into());
    GooglePodCredentialsSpec { pod, entitlement, subject_tokens: subject }
}

/// A pod's Kubernetes token.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) broken: bool,
}

impl SubjectTokens for Subject {
    fn subject_token<'a>(&'a self, _audience: &'a str) -> SubjectFuture<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let token = if self.broken {
            Err(SubjectTokenError { reason: "no file".into(), is_retryable: true })
        } else {
            Ok(Secret::new(format!("e30.{SECRET}.c2ln")))
        };
        Box::pin(std::future::ready(token))
    }
}

/// The cloud's reaction to a call.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    Issues,
    Fails(ExchangeFault),
    Hangs,
    Panics,
}

/// One call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Moment,
}

#[derive(Debug)]
pub(crate) struct Cloud {
    clock: Clock,
    pub(crate) mood: Mutex<Mood>,
    /// Moods for the next calls, before `mood` counts again.
    pub(crate) next: Mutex<VecDeque<Mood>>,
    pub(crate) lifetime: Mutex<Duration>,
    pub(crate) latency: Mutex<Duration>,
    /// Calls per second that it stands; more are throttled.
    pub(crate) quota: AtomicU32,
    pub(crate) calls: Mutex<Vec<Call>>,
    /// ServiceAccounts whose names begin with this are met with that mood, whatever the others'.
    pub(crate) apart: Mutex<Option<(&'static str, Mood)>>,
    pub(crate) in_air: AtomicUsize,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            mood: Mutex::new(Mood::Issues),
            next: Mutex::default(),
            lifetime: Mutex::new(HOUR),
            latency: Mutex::new(Duration::from_millis(100)),
            quota: AtomicU32::new(u32::MAX),
            calls: Mutex::default(),
            apart: Mutex::default(),
            in_air: AtomicUsize::new(0),
        }
    }
}

impl Cloud {
    pub(crate) fn turns(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Calls of ServiceAccounts so named hang.
    pub(crate) fn hanging(&self, prefix: &'static str) {
        *self.apart.lock().unwrap() = Some((prefix, Mood::Hangs));
    }

    /// Calls of ServiceAccounts so named are denied.
    pub(crate) fn denied(&self, prefix: &'static str) {
        *self.apart.lock().unwrap() = Some((prefix, Mood::Fails(ExchangeFault::AccessDenied)));
    }

    /// Calls of ServiceAccounts so named are throttled.
    pub(crate) fn throttled(&self, prefix: &'static str) {
        *self.apart.lock().unwrap() = Some((prefix, Mood::Fails(ExchangeFault::Throttled)));
    }

    fn mood_of(&self, principal: &GooglePrincipal) -> Mood {
        let mood = self.mood_of_call();
        match &*self.apart.lock().unwrap() {
            Some((prefix, apart)) if principal.workload.name.starts_with(prefix) => apart.clone(),
            _ => mood,
        }
    }

    fn mood_of_call(&self) -> Mood {
        let mut calls = self.calls.lock().unwrap();
        let now = self.clock.now();
        let recent =
            calls.iter().rev().take_while(|call| now.since(call.at) < Duration::from_secs(1)).count();
        calls.push(Call { at: now });
        if recent >= self.quota.load(Ordering::Relaxed) as usize {
            return Mood::Fails(ExchangeFault::Throttled);
        }
        self.next.lock().unwrap().pop_front().unwrap_or_else(|| self.mood.lock().unwrap().clone())
    }

    async fn answer(
        &self,
        principal: &GooglePrincipal,
        subject: &dyn SubjectTokens,
    ) -> Result<IssuedCredential<GoogleTokenText>, ExchangeError> {
        subject.subject_token("aud").await?;
        let mood = self.mood_of(principal);
        let latency = *self.latency.lock().unwrap();
        self.clock.sleep(latency).await;
        match mood {
            Mood::Issues => {
                let text = format!("{SECRET}-{}", self.count());
                let credential = GoogleTokenText::new(Secret::new(text)).unwrap();
                Ok(IssuedCredential::new(credential, *self.lifetime.lock().unwrap()))
            }
            Mood::Fails(fault) => Err(ExchangeError::new(fault, "fake", "HTTP 418 TEAPOT")),
            Mood::Hangs => std::future::pending().await,
            Mood::Panics => panic!("the cloud fell down"),
        }
    }
}

struct InAir<'a>(&'a AtomicUsize);

impl Drop for InAir<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TokenExchange for Cloud {
    const CLOUD: &'static str = "google";
    type Principal = GooglePrincipal;
    type Credential = GoogleTokenText;

    fn issue<'a>(
        &'a self,
        principal: &'a GooglePrincipal,
        subject: &'a dyn SubjectTokens,
    ) -> ExchangeFuture<'a, GoogleTokenText> {
        Box::pin(async move {
            self.in_air.fetch_add(1, Ordering::Relaxed);
            let _in_air = InAir(&self.in_air);
            self.answer(principal, subject).await
        })
    }
}

/// A name that differs for each number.
pub(crate) fn address(number: u32) -> String {
    Ipv4Addr::from(number).to_string()
}
