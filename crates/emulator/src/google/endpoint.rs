//! The endpoints of the emulator, which faults and counts tell apart.

/// The endpoint of a request. Faults and counts are kept per endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GoogleEndpoint {
    /// `POST /v1/token` and `POST /v1/identitybindingtoken`: exchange a Kubernetes token for a federated access token.
    Exchange,
    /// `POST …:generateAccessToken`.
    AccessToken,
    /// `POST …:generateIdToken`.
    IdToken,
    /// `GET /oauth2/v3/certs`: the keys of the identity tokens.
    Keys,
    /// `GET /tokeninfo`: names the owner of an access token.
    TokenInfo,
    /// The metadata server.
    Metadata,
}

impl GoogleEndpoint {
    /// Every endpoint.
    pub const ALL: [Self; 6] =
        [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Keys, Self::TokenInfo, Self::Metadata];

    /// The endpoints that [`set_faults`](super::GoogleEmulator::set_faults) breaks. The other two always work, because tests use them to
    /// check tokens.
    pub const FAULT_INJECTABLE: [Self; 4] =
        [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Metadata];

    /// Returns the name in flags and in `/emulator/counts`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::AccessToken => "access-token",
            Self::IdToken => "id-token",
            Self::Keys => "keys",
            Self::TokenInfo => "tokeninfo",
            Self::Metadata => "metadata",
        }
    }
}
