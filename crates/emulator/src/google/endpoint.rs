//! What can be asked of the emulator, as faults and counts tell it apart.

/// What a request asks for. Faults and counts are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GoogleEndpoint {
    /// `POST /v1/token`: a Kubernetes token for a federated access token.
    Exchange,
    /// `POST …:generateAccessToken`.
    AccessToken,
    /// `POST …:generateIdToken`.
    IdToken,
    /// `GET /oauth2/v3/certs`: the keys of the identity tokens.
    Keys,
    /// `GET /tokeninfo`: whose an access token is.
    TokenInfo,
    /// The metadata server.
    Metadata,
}

impl GoogleEndpoint {
    /// Every endpoint.
    pub const ALL: [Self; 6] =
        [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Keys, Self::TokenInfo, Self::Metadata];

    /// Those that [`set_faults`](super::GoogleEmulator::set_faults) breaks. Not the two at which a checker asks for the truth.
    pub const FAULTY: [Self; 4] = [Self::Exchange, Self::AccessToken, Self::IdToken, Self::Metadata];

    /// Its name in flags and in `/emulator/counts`.
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
