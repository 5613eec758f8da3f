//! `--expect` of `attack`, `find` and `isolate`: what a response must be like to be good.

use std::sync::Arc;

use seawall_load::expectation::{Expectation, ExpectationSet};

/// The conditions, as typed. Pods get them as they were typed, too.
#[derive(Debug, clap::Args)]
pub(crate) struct ExpectationArgs {
    /// Condition on each response, else it is an error (wrong-answer); may repeat. One of status=200,204 or 2xx;
    /// header:NAME=VALUE or ~TEXT (contains); body~TEXT, body!~TEXT (does not contain), body=~REGEX; json:/POINTER=VALUE;
    /// length=N, <N, <=N, >N or >=N. =~ and json: take bodies up to 1 MiB
    #[arg(long, value_name = "CONDITION")]
    expect: Vec<Expectation>,
}

impl ExpectationArgs {
    /// The conditions that are tested on the responses to every target.
    pub(crate) fn conditions(&self) -> Option<Arc<ExpectationSet>> {
        ExpectationSet::new(self.expect.clone())
    }
}
