//! The list of clouds: the one place beside a cloud's own room that knows which there are.
//!
//! A room has the cloud's section of the configuration ([`Sections`]), what a pod is entitled to ([`Entitlement`]), its dialect
//! on a traffic thread, what it counts and shows, and how its readiness is asked. Everything else in the agent goes through
//! the functions here, each of which names every cloud once.

mod brokered;
pub(crate) mod google;
pub(crate) mod names;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod tide;

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use seawall_attest::FileKey;
use seawall_core::facts::Selection;
use seawall_core::pod::SubjectTokens;
use seawall_core::{Clock, Facts, Floor, Pod};
use seawall_document::Table;
use serde::Serialize;
use tokio::runtime::Handle;

use crate::complain::Complainer;
use crate::dialect::{Dialect, Dialects};
use crate::entitlements::{Decided, Entitlement, Entitlements};
use crate::long_polls::LongPolls;
use crate::places::Places;
use crate::ready::Probe;
use crate::route::Route;
use names::CloudName;

/// The clouds' sections of the configuration; those that are not there are off.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sections {
    pub(crate) google: Option<google::Section>,
    #[cfg(test)]
    pub(crate) tide: Option<tide::Section>,
}

impl Sections {
    /// Reads all of them. `listen` is where the agent listens itself.
    pub(crate) fn read(root: &Table<'_>, base: &Path, listen: &[SocketAddr]) -> Self {
        let google = root.key("google");
        #[cfg(test)]
        let tide = root.key("tide");
        Self {
            google: google.is_present().then(|| google::Section::read(&google, base, listen)),
            #[cfg(test)]
            tide: tide.is_present().then(|| tide::Section::read(&tide)),
        }
    }

    /// Those that are on.
    pub(crate) fn names(&self) -> Vec<CloudName> {
        let is_on = |name: &CloudName| match name {
            CloudName::Google => self.google.is_some(),
            #[cfg(test)]
            CloudName::Tide => self.tide.is_some(),
        };
        CloudName::ALL.iter().copied().filter(is_on).collect()
    }

    /// The annotations that they want to know.
    pub(crate) fn selections(&self) -> Vec<Selection> {
        self.google.iter().map(|_| google::SELECTION).collect()
    }

    /// What an entry in a file of pods may say, whichever are on: a file is checked as a whole.
    pub(crate) fn file_keys() -> Vec<FileKey> {
        google::FILE_KEYS.to_vec()
    }

    /// Whether some cloud gives pods credentials of their own.
    pub(crate) fn must_know_pods(&self) -> bool {
        let each_must = [
            self.google.as_ref().is_some_and(google::Section::must_know_pods),
            #[cfg(test)]
            self.tide.is_some(),
        ];
        each_must.contains(&true)
    }
}

/// The clouds at work: one for the process.
#[derive(Debug)]
pub(crate) struct Clouds {
    google: Option<google::Google>,
    #[cfg(test)]
    tide: Option<tide::Tide>,
}

/// A pod that is to be given what it may have.
pub(crate) struct Applicant<'a> {
    pub(crate) pod: &'a Pod,
    /// What is told of it, as far as [`Sections::selections`] asks.
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

impl Clouds {
    /// All that are on; what they do in the background runs on `runtime`. Asks nobody.
    ///
    /// # Errors
    /// A file that a section names cannot be read or used.
    pub(crate) fn start(sections: &Sections, clock: &Clock, runtime: &Handle) -> anyhow::Result<Self> {
        let google = sections.google.as_ref();
        Ok(Self {
            google: google.map(|section| google::Google::start(section, clock, runtime)).transpose()?,
            #[cfg(test)]
            tide: sections.tide.as_ref().map(|section| tide::Tide::start(section, clock, runtime)),
        })
    }

    /// What a pod may have of each. What it had before stays where what decides it is the same: its leases with it.
    pub(crate) fn entitle(&self, applicant: &Applicant<'_>, before: &Entitlements) -> Entitlements {
        Entitlements::of_each(|cloud| match cloud {
            CloudName::Google => decided(self.google.as_ref(), |google| google.entitle(applicant, before)),
            #[cfg(test)]
            CloudName::Tide => decided(self.tide.as_ref(), |tide| Some(tide.entitle(applicant))),
        })
    }

    /// The dialects of each listener, on one thread; nothing if one has none that is on. A dialect is made once, however many
    /// listeners speak it: what it keeps open to a real metadata server is the thread's.
    pub(crate) fn speak(&self, listeners: &[Vec<CloudName>], tools: &Tools) -> Option<Vec<Dialects>> {
        let all: Vec<_> = CloudName::ALL.iter().map(|name| (*name, self.dialect(*name, tools))).collect();
        let made = |name: &CloudName| all.iter().find(|(known, _)| known == name)?.1.clone();
        listeners.iter().map(|names| Dialects::new(names.iter().filter_map(made))).collect()
    }

    fn dialect(&self, name: CloudName, tools: &Tools) -> Option<Rc<dyn Dialect>> {
        match name {
            CloudName::Google => self.google.as_ref().map(|google| google.dialect(tools)),
            #[cfg(test)]
            CloudName::Tide => self.tide.as_ref().map(|tide| tide.dialect()),
        }
    }

    /// How readiness asks for each of these dialects.
    pub(crate) fn probes(names: &[CloudName]) -> Vec<Probe> {
        let probe = |name: &CloudName| match name {
            CloudName::Google => google::PROBE,
            #[cfg(test)]
            CloudName::Tide => tide::PROBE,
        };
        names.iter().map(probe).collect()
    }

    /// What is asked of them, by kind.
    pub(crate) fn routes(&self) -> Vec<&'static Route> {
        let each: [(bool, &[&Route]); _] = [
            (self.google.is_some(), &google::ROUTES),
            #[cfg(test)]
            (self.tide.is_some(), &tide::ROUTES),
        ];
        each.into_iter().filter(|(is_on, _)| *is_on).flat_map(|(_, routes)| routes.iter().copied()).collect()
    }

    /// Registers what they count.
    pub(crate) fn register(&self, registry: &mut Registry, clock: &Clock) {
        let sources = [
            self.google.as_ref().and_then(|google| google.figures(clock)),
            #[cfg(test)]
            self.tide.as_ref().map(|tide| tide.figures(clock)),
        ];
        let collector = brokered::BrokerCollector(sources.into_iter().flatten().collect());
        registry.register_collector(Box::new(collector));
    }

    /// What an operator should see though the agent serves.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.google.as_ref().map(google::Google::remarks).unwrap_or_default()
    }

    /// The floors of those whose credentials may end with the Kubernetes token that they were exchanged for.
    pub(crate) fn floors_of_exchanged(&self) -> Vec<Floor> {
        self.google.iter().filter_map(google::Google::floor).collect()
    }

    /// Whether all that was issued so far could be kept above its floor; nothing where no cloud gives credentials.
    pub(crate) fn is_above_floor(&self) -> Option<bool> {
        self.google.as_ref().and_then(google::Google::is_above_floor)
    }
}

fn decided<C>(
    cloud: Option<&C>,
    decide: impl FnOnce(&C) -> Option<Arc<dyn Entitlement>>,
) -> Decided<Arc<dyn Entitlement>> {
    cloud.map_or(Decided::Off, |cloud| decide(cloud).map_or(Decided::NotYet, Decided::Is))
}
