//! The renewal times of AWS's credentials, and the sustainable calls per second of AWS's services.

use std::time::Duration;

use seawall_core::Floor;

use crate::settings::BrokerSettings;

/// The floor: 16 minutes, aiming at 25. Java's SDK of version 1 and botocore refresh on every call below 15 minutes, and fail there
/// while renewals fail. With 25 minutes left, an outage of nine minutes stays invisible. Measured with the clients themselves: at
/// 60-minute sessions renewed with 25 minutes left, each family asks once or twice an hour.
pub const FLOOR: Floor = Floor { hard: Duration::from_secs(16 * 60), target: Duration::from_secs(25 * 60) };

/// A broker's numbers for AWS. STS stands 600 calls a second of one account in one region
/// (docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html): a full node (110 pods) starts within some seconds and
/// leaves room for some twenty others that start with it; what is too many is found out by being throttled.
pub const SETTINGS: BrokerSettings = BrokerSettings::of(FLOOR, 32.0);
