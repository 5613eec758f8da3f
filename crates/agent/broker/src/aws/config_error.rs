//! Errors of the AWS configuration. An error states which value is wrong, but not from where the agent read the value.

use crate::https;

/// The error for an unusable AWS configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsConfigError {
    /// The configuration of STS or EKS Auth is invalid.
    #[error(transparent)]
    Upstream(#[from] https::UpstreamConfigError),
    /// The URL of the metadata service is invalid.
    #[error(
        "{0}: expected the URL of the instance's metadata service, such as http://169.254.169.254, or an http URL of a loopback address"
    )]
    MetadataUrl(String),
}
