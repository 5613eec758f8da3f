//! `--expect` of `attack`, `find` and `isolate`: what a response must be like to be good.

use std::sync::Arc;

use seawall_load::expectation::{Expectation, ExpectationSet};

/// The conditions, as typed. Pods get them as they were typed, too.
#[derive(Debug, clap::Args)]
pub(crate) struct ExpectationArgs {
    /// Condition on each response, such as status=200 or body~ok; repeatable;
    /// see seawall help conditions
    #[arg(long, value_name = "CONDITION")]
    expect: Vec<Expectation>,
}

impl ExpectationArgs {
    /// The conditions that are tested on the responses to every target.
    pub(crate) fn expectation_set(&self) -> Option<Arc<ExpectationSet>> {
        ExpectationSet::new(self.expect.clone())
    }
}
