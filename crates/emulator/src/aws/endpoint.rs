//! What can be asked of the emulator, as faults and counts tell it apart.

/// What a request asks for. Faults and counts are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AwsEndpoint {
    /// STS: `AssumeRoleWithWebIdentity`.
    WebIdentity,
    /// STS: `AssumeRole`.
    AssumeRole,
    /// STS: `GetCallerIdentity`, and what STS does not know.
    CallerIdentity,
    /// EKS Auth: `AssumeRoleForPodIdentity`.
    PodIdentity,
    /// The instance's metadata service.
    Metadata,
}

impl AwsEndpoint {
    /// Every endpoint.
    pub const ALL: [Self; 5] =
        [Self::WebIdentity, Self::AssumeRole, Self::CallerIdentity, Self::PodIdentity, Self::Metadata];

    /// Those that [`set_faults`](super::AwsEmulator::set_faults) breaks. Not the one at which a checker asks for the truth.
    pub const FAULTY: [Self; 4] = [Self::WebIdentity, Self::AssumeRole, Self::PodIdentity, Self::Metadata];

    /// Its name in flags and in `/emulator/counts`.
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
