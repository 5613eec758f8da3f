//! The endpoints of the emulator, which faults and counts tell apart.

/// The endpoint of a request. Faults and counts are kept per endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AwsEndpoint {
    /// STS: `AssumeRoleWithWebIdentity`.
    WebIdentity,
    /// STS: `AssumeRole`.
    AssumeRole,
    /// STS: `GetCallerIdentity`, and unknown actions.
    CallerIdentity,
    /// EKS Auth: `AssumeRoleForPodIdentity`.
    PodIdentity,
    /// The instance metadata service.
    Metadata,
}

impl AwsEndpoint {
    /// Every endpoint.
    pub const ALL: [Self; 5] =
        [Self::WebIdentity, Self::AssumeRole, Self::CallerIdentity, Self::PodIdentity, Self::Metadata];

    /// The endpoints that [`set_faults`](super::AwsEmulator::set_faults) breaks. `GetCallerIdentity` always works, because tests use it to
    /// check credentials.
    pub const FAULT_INJECTABLE: [Self; 4] =
        [Self::WebIdentity, Self::AssumeRole, Self::PodIdentity, Self::Metadata];

    /// Returns the name in flags and in `/emulator/counts`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WebIdentity => "web-identity",
            Self::AssumeRole => "assume-role",
            Self::CallerIdentity => "caller-identity",
            Self::PodIdentity => "pod-identity",
            Self::Metadata => "metadata",
        }
    }
}
