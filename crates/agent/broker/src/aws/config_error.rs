//! Errors of the AWS configuration. They tell what is wrong, not where it was read.

use crate::https;

/// The error of an AWS configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsConfigError {
    /// STS or EKS Auth.
    #[error(transparent)]
    Upstream(#[from] https::UpstreamConfigError),
    /// The metadata service.
    #[error(
        "{0}: expected the instance's metadata service, such as http://169.254.169.254, or http to a loopback address"
    )]
    Metadata(String),
}
