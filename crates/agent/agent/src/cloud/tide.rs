//! A third cloud, for tests alone: one path, one kind of credential. It is the proof that a cloud is a room: this file and its
//! lines in the list (`cloud`) are all there is of it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use seawall_attest::FileKey;
use seawall_broker::{Broker, Exchange, ExchangeFuture, Holder, HolderSpec, Issued, Settings, Unavailable};
use seawall_config::Node;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Floor, Lease, Secret, ServiceAccount};
use seawall_http::{Frame, Refusal, RequestHead};
use serde::Serialize;
use tokio::runtime::Handle;

use super::brokered::Brokered;
use super::interface::{self, Applicant, Cloud, Tools};
use super::names::{CloudName, DialectName};
use crate::callers::Caller;
use crate::dialect::{Asked, Dialect, Step};
use crate::entitlements::{Decided, Entitlement, Entitlements};
use crate::ready::Probe;
use crate::reply::{Later, Reply, Writing, Written};
use crate::route::{self, Route};

static PASSES: Route = Route::credential(CloudName::Tide, "pass");
static ROUTES: [&Route; 1] = [&PASSES];

/// An entry in a file of pods says nothing to it.
pub(super) const FILE_KEYS: &[FileKey] = &[];

/// The section: which harbour to ask, and how it is asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Section(String);

impl Section {
    pub(crate) fn read(section: &Node<'_>) -> Self {
        Self(
            section
                .table()
                .required("harbour", "a name")
                .text("a name", |t| Some(t.into()))
                .unwrap_or_default(),
        )
    }
}

impl interface::Section for Section {
    fn must_know_pods(&self) -> bool {
        true
    }

    fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        _: Option<&dyn Cloud>,
    ) -> anyhow::Result<Arc<dyn Cloud>> {
        let floor = Floor { hard: Duration::from_secs(60), target: Duration::from_secs(120) };
        let (settings, exchange) = (Settings::of(floor, 10.0), Arc::new(self.clone()));
        Ok(Arc::new(Tide(Broker::start(settings, clock.clone(), exchange, runtime.clone()))))
    }
}

/// Whose pass it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sailor(ServiceAccount);

impl seawall_broker::Principal for Sailor {
    type Want<'a> = ();
    type Entitlement = ();

    fn of(workload: &ServiceAccount, (): &(), (): ()) -> Result<Self, Unavailable> {
        Ok(Self(workload.clone()))
    }

    fn is_for(&self, (): ()) -> bool {
        true
    }

    fn want(&self) {}

    fn workload(&self) -> &ServiceAccount {
        &self.0
    }
}

/// A credential of two strings, one of which is secret.
#[derive(Debug)]
pub(crate) struct Pass {
    harbour: String,
    mark: Secret<String>,
}

impl Exchange for Section {
    const CLOUD: &'static str = "tide";
    type Principal = Sailor;
    type Credential = Pass;

    fn issue<'a>(&'a self, sailor: &'a Sailor, subject: &'a dyn SubjectTokens) -> ExchangeFuture<'a, Pass> {
        Box::pin(async move {
            let token = subject.subject_token(&self.0).await?;
            let mark = Secret::new(format!("{}+{}", sailor.0, token.expose()));
            let credential = Pass { harbour: self.0.clone(), mark };
            Ok(Issued::new(credential, Duration::from_secs(3600)))
        })
    }
}

/// The cloud at work.
#[derive(Debug)]
struct Tide(Broker<Section>);

/// What a pod may have: passes of its own.
type Own = Arc<Holder<Section>>;

impl Cloud for Tide {
    fn routes(&self) -> &'static [&'static Route] {
        &ROUTES
    }

    fn entitle(&self, applicant: &Applicant<'_>, _: &Entitlements) -> Option<Arc<dyn Entitlement>> {
        let (pod, subject) = (applicant.pod.clone(), (applicant.subject)());
        Some(Arc::new(self.0.holder(HolderSpec { pod, entitlement: (), subject })))
    }

    fn dialect(&self, _: DialectName, _: &Tools) -> Rc<dyn Dialect> {
        Rc::new(Self(self.0.clone()))
    }

    fn probe(&self, _: DialectName) -> Probe {
        Probe { method: "PUT", target: "/tide/", headers: "Tide: low\r\n", answer_has: "tide: high" }
    }

    fn broker(&self) -> Option<&dyn Brokered> {
        Some(&self.0)
    }
}

impl Dialect for Tide {
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
        let answered = |route, status| Step::Answered { route, status };
        let own = match caller {
            Caller::Unsettled => return Step::NotYet,
            Caller::Probe => return answered(&route::PROBE, say(asked.frame, 200, &[], out)),
            Caller::Pod(pod) if asked.head.target == "/tide/pass" => Some(pod.entitlements()),
            _ => None,
        };
        match own.as_ref().map_or(Decided::Off, |own| own.of::<Own>(CloudName::Tide)) {
            Decided::Is(own) => pass(own, asked, out),
            Decided::NotYet => Step::NotYet,
            Decided::Off => answered(&route::REFUSED, say(asked.frame, 404, &[b"adrift"], out)),
        }
    }

    fn refuse(&self, refusal: &Refusal, frame: &Frame<'_>, _: u64, out: &mut Vec<u8>) {
        say(frame, refusal.status, &[refusal.code.as_bytes()], out);
    }
}

fn pass(own: &Own, asked: Asked<'_, '_, '_>, out: &mut Vec<u8>) -> Step {
    if let Some(lease) = own.held((), asked.now) {
        return Step::Answered { route: &PASSES, status: say_pass(Some(&lease), asked.frame, out) };
    }
    let own = own.clone();
    let landed = async move { Box::new(own.lease(()).await.ok()) as Box<dyn Reply> };
    Step::Later(Later::new(&PASSES, false, landed))
}

impl Reply for Option<Arc<Lease<Pass>>> {
    fn write(self: Box<Self>, writing: &Writing<'_>, out: &mut Vec<u8>) -> Written {
        Written::whole(say_pass((*self).as_deref(), writing.frame, out))
    }
}

fn say_pass(lease: Option<&Lease<Pass>>, frame: &Frame<'_>, out: &mut Vec<u8>) -> u16 {
    let Some(Lease { value: Pass { harbour, mark }, .. }) = lease else { return say(frame, 503, &[], out) };
    say(frame, 200, &[harbour.as_bytes(), b" ", mark.expose().as_bytes()], out)
}

/// Writes an answer, and gives its status.
fn say(frame: &Frame<'_>, status: u16, body: &[&[u8]], out: &mut Vec<u8>) -> u16 {
    frame.begin(out, status, if status == 200 { b"Tide: high\r\n" } else { b"Tide: low\r\n" });
    frame.end(out, body);
    status
}
