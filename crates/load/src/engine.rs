//! The engine in one place: a [`RunPlan`] starts a [`LoadTrial`], and the trial ends with a [`RunOutcome`].

pub use crate::load_session::{LoadSession, TrialStartError, start_single_trial};
pub use crate::plan::{
    DEFAULT_LATE_SEND_TIME_AFTER_END, Http2Options, InFlightLimit, LoadSpec, MIN_INTERVAL, ResultsOutput,
    RunPlan, SessionSetup, TransportOptions,
};
pub use crate::run_outcome::{RunOutcome, UnfinishedRequests};
pub use crate::stats_collector::NextIntervalResult;
pub use crate::trial::LoadTrial;
