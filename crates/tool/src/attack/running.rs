//! A run that has begun, wherever its senders are: what the attack needs of it to show, steer, write down and judge it.

use seawall_lab::carry::{Carriage, Carried};
use seawall_lab::objective::Objectives;
use seawall_load::control::Control;
use seawall_load::interval::Interval;

use super::pods::{Pods, Row};

/// A run under way. Dropping it ends it.
pub(crate) trait Running {
    /// The hand on it.
    fn steer(&self) -> Control;

    /// When its first instant is, in nanoseconds since the Unix epoch.
    fn began_unix_ns(&self) -> i64;

    /// What is known of its pods while it goes on; nothing where there are none.
    fn pods(&self) -> Pods {
        Pods::default()
    }

    /// Sees it to its end, news by news.
    fn watch(&mut self, each: &mut dyn FnMut(News<'_>));

    /// What it came to, judged.
    fn finish(self: Box<Self>, objectives: Option<&Objectives>) -> Finished;
}

/// What is new of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum News<'a> {
    /// What was measured next.
    Measured(&'a Interval),
    /// Something of its pods that somebody should know at once.
    Pods,
}

/// A run that is over.
pub(crate) struct Finished {
    /// What it came to.
    pub(crate) carried: Carried,
    /// What each pod came to; none where there are no pods.
    pub(crate) pods: Vec<Row>,
    /// What pods could not do of what they were to do, in words.
    pub(crate) mistakes: Vec<String>,
}

impl Running for Carriage<'_> {
    fn steer(&self) -> Control {
        Carriage::steer(self)
    }

    fn began_unix_ns(&self) -> i64 {
        Carriage::began_unix_ns(self)
    }

    fn watch(&mut self, each: &mut dyn FnMut(News<'_>)) {
        Carriage::watch(self, &mut |interval: &Interval| each(News::Measured(interval)));
    }

    fn finish(self: Box<Self>, objectives: Option<&Objectives>) -> Finished {
        Finished { carried: Carriage::finish(*self, objectives), pods: Vec::new(), mistakes: Vec::new() }
    }
}
