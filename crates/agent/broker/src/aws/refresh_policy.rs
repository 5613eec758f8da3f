//! The renewal times of AWS credentials, and the sustainable rate of calls to AWS's services.

use std::time::Duration;

use seawall_core::LifetimeFloor;

use crate::settings::BrokerSettings;

/// The floor is a remaining lifetime of 16 minutes, and renewal starts when 25 minutes are left.
/// If less than 15 minutes are left, version 1 of the Java SDK and botocore refresh on every call. While the refresh fails, these
/// calls fail, too. Because renewal starts at 25 minutes, an outage of nine minutes has no effect. In measurements with sessions
/// of 60 minutes, each family of clients fetched credentials once or twice per hour.
pub const LIFETIME_FLOOR: LifetimeFloor =
    LifetimeFloor { min_remaining: Duration::from_secs(16 * 60), renew_below: Duration::from_secs(25 * 60) };

/// The settings of the broker for AWS. At 32 call chains per second, a full node (110 pods) gets its credentials within a few
/// seconds.
/// STS allows 600 calls per second for one account in one region
/// (docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html). So about eighteen nodes can start at the same time. If
/// the rate is too high, AWS throttles the calls and the limiter reduces the rate.
pub const BROKER_SETTINGS: BrokerSettings = BrokerSettings::for_cloud(LIFETIME_FLOOR, 32.0);
