//! What a room is to the list of clouds, which alone speaks to it: its section, and the cloud at work.

use std::any::Any;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use seawall_core::cloud::DialectName;
use seawall_core::events::Complainer;
use seawall_core::facts::Selection;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Facts, Floor, Pod};
use seawall_server::handler::Dialect;
use seawall_server::route::Route;
use seawall_server::upstream::long_polls::LongPolls;
use seawall_server::upstream::permits::Places;
use tokio::runtime::Handle;

use super::broker_stats::Brokered;
use super::entitlements::{Entitlement, Entitlements};
use super::sdk_profile::Clients;
use crate::clouds::pod::PodCaller;
use crate::observe::readiness::Probe;

/// Whether something is the same as something else of its own type.
pub(crate) trait Same {
    /// Whether `other` is of this type, and equal.
    fn is_same(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + 'static> Same for T {
    fn is_same(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A cloud's section of the configuration, checked.
pub(crate) trait Section: Any + Same {
    /// The annotations that it wants to know.
    fn selection(&self) -> Selection {
        Selection::default()
    }

    /// Whether pods get credentials of their own, so that each must be known.
    fn must_know_pods(&self) -> bool;

    /// Whether it names a file that is written while the agent serves.
    fn writes_a_file(&self) -> bool {
        false
    }

    /// The cloud at work; what it does in the background runs on `runtime`. Asks nobody. `before` is the same cloud by another section, if
    /// it is at work: what the sections do not say differently is taken over from it, with what is held and counted.
    ///
    /// # Errors
    /// A file that the section names cannot be read or used.
    fn start(
        &self,
        clock: &Clock,
        runtime: &Handle,
        before: Option<&dyn Cloud>,
    ) -> anyhow::Result<Arc<dyn Cloud>>;
}

/// A cloud at work: one for the process.
pub(crate) trait Cloud: Any + Debug + Send + Sync {
    /// What is asked of it, by kind.
    fn routes(&self) -> &'static [&'static Route];

    /// What a pod may have, which had `before`; nothing while it is not known what decides that. Leases stay where what decides
    /// it is the same and they come in the way in which this cloud asks for them.
    fn entitle(&self, applicant: &Applicant<'_>, before: &Entitlements) -> Option<Arc<dyn Entitlement>>;

    /// One of its dialects, on one traffic thread.
    fn dialect(&self, name: DialectName, tools: &Tools) -> Rc<dyn Dialect<PodCaller>>;

    /// Clients that fetch its credentials, by what they call themselves.
    fn clients(&self) -> Clients {
        Clients::default()
    }

    /// How readiness asks for that.
    fn probe(&self, name: DialectName) -> Probe;

    /// What gives its credentials, if it gives some.
    fn broker(&self) -> Option<&dyn Brokered>;

    /// What an operator should see though the agent serves, beside what every broker says.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Registers what it counts beside what every broker does.
    fn register(&self, _registry: &mut Registry) {}

    /// The floor of credentials that may end with the Kubernetes token that they were exchanged for.
    fn floor_of_exchanged(&self) -> Option<Floor> {
        None
    }
}

/// A pod that is to be given what it may have.
pub(crate) struct Applicant<'a> {
    pub(crate) pod: &'a Pod,
    /// What is told of it, as far as [`Section::selection`] asks.
    pub(crate) facts: &'a Facts,
    /// Its Kubernetes tokens.
    pub(crate) subject: &'a dyn Fn() -> Arc<dyn SubjectTokens>,
    /// Told when it is refused something.
    pub(crate) complainer: Complainer,
    /// Whether what it will ask for first is to be fetched before it asks.
    pub(crate) ahead: bool,
}

/// What a dialect on a traffic thread is made with.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) long_polls: LongPolls,
    /// Places at real metadata servers, which all threads share.
    pub(crate) places: Arc<Places>,
    /// Idle connections that a thread keeps to one of them.
    pub(crate) idle: usize,
}
