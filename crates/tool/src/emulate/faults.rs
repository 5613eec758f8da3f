//! The flags of what goes wrong, for every cloud; where it does is each cloud's own flag.

use std::time::Duration;

use seawall_emulator::faults::{ExcessAction, Faults, Throttle};

use super::parse;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Faults")]
pub(super) struct FaultArgs {
    /// Delay of every response
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse::parse_duration)]
    latency: Duration,
    /// Additional random delay of every response, uniform from 0 to this duration
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse::parse_duration)]
    jitter: Duration,
    /// Share of requests that fail
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::parse_share)]
    error_rate: f64,
    /// Status of failed requests
    #[arg(long, value_name = "STATUS", default_value_t = 500, value_parser = clap::value_parser!(u16).range(400..600))]
    error_status: u16,
    /// Send failed requests an HTML page instead of JSON
    #[arg(long)]
    html_errors: bool,
    /// Share of requests that never get a response
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::parse_share)]
    hang_rate: f64,
    /// Share of requests whose connection is closed without a response
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::parse_share)]
    close_rate: f64,
    /// Share of requests answered with half of the JSON
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse::parse_share)]
    garbage_rate: f64,
    /// Limit of requests per second for each endpoint
    #[arg(long, value_name = "RATE[:BURST]", value_parser = parse::parse_throttle)]
    throttle: Option<Throttle>,
    /// What happens to requests above the limit
    #[arg(long, value_enum, default_value_t = ExcessPolicy::Refuse, requires = "throttle")]
    above: ExcessPolicy,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ExcessPolicy {
    /// Respond 429 with Retry-After
    Refuse,
    /// Queue the request; the latency can grow without limit
    Queue,
    /// Never respond
    Hang,
}

impl FaultArgs {
    pub(super) fn to_faults(&self) -> Faults {
        let excess = match self.above {
            ExcessPolicy::Refuse => ExcessAction::Refuse,
            ExcessPolicy::Queue => ExcessAction::Queue,
            ExcessPolicy::Hang => ExcessAction::Hang,
        };
        Faults {
            latency: self.latency,
            jitter: self.jitter,
            error_rate: self.error_rate,
            error_status: Some(self.error_status),
            html_errors: self.html_errors,
            hang_rate: self.hang_rate,
            close_rate: self.close_rate,
            truncated_body_rate: self.garbage_rate,
            throttle: self.throttle.map(|throttle| Throttle { excess, ..throttle }),
        }
    }
}
