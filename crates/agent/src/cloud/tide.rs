//! A third cloud, for tests alone: one path, one kind of credential. It is the proof that a cloud is a room: this file and its
//! lines in the list (`cloud`) are all there is of it.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_broker::{
    Account, Broker, Exchange, ExchangeFuture, Holder, HolderSpec, Issued, Settings, Unavailable,
};
use seawall_cloud::{Frame, Refusal};
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Floor, Lease, Moment, ServiceAccount};
use seawall_document::Node;
use seawall_wire::RequestHead;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::Applicant;
use super::brokered::{self, Figures, Source};
use super::names::CloudName;
use crate::callers::Caller;
use crate::dialect::{Asked, Dialect, Step};
use crate::entitlements::{Decided, Entitlement};
use crate::ready::Probe;
use crate::reply::{Later, Reply, Writing, Written};
use crate::route::{self, Route};

const PATH: &str = "/tide/pass";

static PASSES: Route = Route::credential(CloudName::Tide, "pass");
pub(super) static ROUTES: [&Route; 1] = [&PASSES];

pub(super) const PROBE: Probe =
    Probe { method: "PUT", target: "/tide/", headers: "Tide: low\r\n", answer_has: "tide: high" };

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Section {
    pub(crate) harbour: String,
}

impl Section {
    pub(crate) fn read(section: &Node<'_>) -> Self {
        let harbour =
            section.table().required("harbour", "a harbour").text("a harbour", |t| Some(t.to_owned()));
        Self { harbour: harbour.unwrap_or_default() }
    }
}

/// Whose pass it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sailor(ServiceAccount);

impl fmt::Display for Sailor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl seawall_broker::Principal for Sailor {
    type Want<'a> = ();
    type Entitlement = ();

    fn of(workload: &ServiceAccount, (): &(), (): ()) -> Result<Self, Unavailable> {
        Ok(Self(workload.clone()))
    }

    fn is_for(&self, (): ()) -> bool {
        true
    }

    fn workload(&self) -> &ServiceAccount {
        &self.0
    }

    fn account(&self) -> Account {
        Account::Itself(self.0.clone())
    }

    fn least_life(&self, floor: Floor) -> Duration {
        floor.hard
    }

    fn shared_for(&self, _: Duration) -> Option<Duration> {
        None
    }
}

/// A credential of two strings.
#[derive(Debug)]
pub(crate) struct Pass {
    harbour: String,
    mark: String,
}

#[derive(Debug)]
pub(crate) struct Harbour(String);

impl Exchange for Harbour {
    type Principal = Sailor;
    type Credential = Pass;

    fn issue<'a>(&'a self, sailor: &'a Sailor, subject: &'a dyn SubjectTokens) -> ExchangeFuture<'a, Pass> {
        Box::pin(async move {
            let token = subject.subject_token(&self.0).await?;
            let mark = format!("{sailor}+{}", token.expose());
            Ok(Issued {
                credential: Pass { harbour: self.0.clone(), mark },
                lifetime: Duration::from_secs(3600),
            })
        })
    }
}

/// The cloud at work.
#[derive(Debug)]
pub(super) struct Tide(Broker<Harbour>);

/// What a pod may have: passes of its own.
type Own = Arc<Holder<Harbour>>;

impl Tide {
    pub(super) fn start(section: &Section, clock: &Clock, runtime: &Handle) -> Self {
        let floor = Floor { hard: Duration::from_secs(60), target: Duration::from_secs(120) };
        let exchange = Arc::new(Harbour(section.harbour.clone()));
        Self(Broker::start(Settings::of(floor, 10.0), clock.clone(), exchange, runtime.clone()))
    }

    pub(super) fn entitle(&self, applicant: &Applicant<'_>) -> Arc<dyn Entitlement> {
        let pod = applicant.pod.clone();
        Arc::new(self.0.holder(HolderSpec { pod, entitlement: (), subject: (applicant.subject)() }))
    }

    pub(super) fn figures(&self, clock: &Clock) -> Source {
        let (broker, clock) = (self.0.clone(), clock.clone());
        Box::new(move || Figures::of("tide", &broker, &clock))
    }

    pub(super) fn dialect(&self) -> Rc<dyn Dialect> {
        Rc::new(TideDialect)
    }
}

impl Entitlement for Own {
    fn describe(&self, now: Moment) -> Value {
        let principals = self.principals();
        json!({ "principals": principals.iter().map(|view| brokered::describe(view, now)).collect::<Vec<_>>() })
    }
}

#[derive(Debug)]
struct TideDialect;

impl Dialect for TideDialect {
    fn cloud(&self) -> CloudName {
        CloudName::Tide
    }

    fn claims(&self, path: &str) -> bool {
        path.starts_with("/tide/")
    }

    /// It asks with PUT, and its connections go on.
    fn goes_on_after(&self, method: &str) -> bool {
        method == "PUT"
    }

    fn patience(&self, _: &RequestHead<'_, '_>) -> Duration {
        Duration::from_millis(100)
    }

    fn answer(&self, caller: &Caller, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        match caller {
            Caller::Pod(pod) if asked.head.target == PATH => {
                match pod.entitlements().of::<Own>(CloudName::Tide) {
                    Decided::Is(own) => pass(own, asked, out),
                    Decided::NotYet => Step::NotYet,
                    Decided::Off => self.refused(asked, out),
                }
            }
            Caller::Unsettled => Step::NotYet,
            Caller::Probe => {
                asked.frame.begin(out, 200, b"Tide: high\r\n");
                asked.frame.end(out, &[]);
                Step::Answered { route: &route::PROBE, status: 200 }
            }
            _ => self.refused(asked, out),
        }
    }

    fn refuse(&self, refusal: &Refusal, frame: &Frame<'_>, _: u64, out: &mut Vec<u8>) {
        frame.begin(out, refusal.status, b"Tide: low\r\n");
        frame.end(out, &[refusal.code.as_bytes()]);
    }
}

impl TideDialect {
    fn refused(&self, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
        let refusal = Refusal::new(404, "adrift", "There is no pass for this.");
        self.refuse(&refusal, asked.frame, asked.request, out);
        Step::Answered { route: &route::REFUSED, status: 404 }
    }
}

fn pass(own: &Own, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
    if let Some(lease) = own.held((), asked.now) {
        write(&lease, asked.frame, out);
        return Step::Answered { route: &PASSES, status: 200 };
    }
    let own = own.clone();
    Step::Later(Later::new(&PASSES, false, async move {
        Box::new(Landed(own.lease(()).await.ok())) as Box<dyn Reply>
    }))
}

struct Landed(Option<Arc<Lease<Pass>>>);

impl Reply for Landed {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        let Some(lease) = self.0 else {
            writing.frame.begin(out, 503, b"Tide: low\r\n");
            writing.frame.end(out, &[]);
            return Written::whole(503);
        };
        write(&lease, writing.frame, out);
        Written::whole(200)
    }
}

fn write(lease: &Lease<Pass>, frame: &Frame<'_>, out: &mut Vec<u8>) {
    let Pass { harbour, mark } = &lease.value;
    frame.begin(out, 200, b"Tide: high\r\n");
    frame.end(out, &[harbour.as_bytes(), b" ", mark.as_bytes()]);
}
