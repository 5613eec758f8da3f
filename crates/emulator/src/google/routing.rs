//! Chooses the service of a request from its path and method.

use http::Method;

use super::endpoint::GoogleEndpoint;
use super::exchange_request::ExchangeApi;
use super::metadata::percent_decoded;

/// The service in a path, with its service account.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GoogleRoute {
    Exchange(ExchangeApi),
    GenerateAccessToken(String),
    GenerateIdToken(String),
    Keys,
    TokenInfo,
    Metadata,
}

impl GoogleRoute {
    pub(super) fn of(method: &Method, path: &str) -> Self {
        let post = method == Method::POST;
        match path {
            "/v1/token" if post => Self::Exchange(ExchangeApi::Sts),
            "/v1/identitybindingtoken" if post => Self::Exchange(ExchangeApi::IdentityBindingToken),
            "/oauth2/v3/certs" => Self::Keys,
            "/tokeninfo" | "/oauth2/v3/tokeninfo" => Self::TokenInfo,
            _ if post => Self::impersonation(path).unwrap_or(Self::Metadata),
            _ => Self::Metadata,
        }
    }

    /// Parses `/v1/projects/-/serviceAccounts/EMAIL:METHOD`, with the last part percent-encoded or not.
    fn impersonation(path: &str) -> Option<Self> {
        let last = path.strip_prefix("/v1/projects/-/serviceAccounts/")?;
        let last = percent_decoded(last);
        let (account, method) = last.rsplit_once(':').filter(|(account, _)| !account.contains('/'))?;
        match method {
            "generateAccessToken" => Some(Self::GenerateAccessToken(account.to_owned())),
            "generateIdToken" => Some(Self::GenerateIdToken(account.to_owned())),
            _ => None,
        }
    }

    pub(super) fn endpoint(&self) -> GoogleEndpoint {
        match self {
            Self::Exchange(_) => GoogleEndpoint::Exchange,
            Self::GenerateAccessToken(_) => GoogleEndpoint::AccessToken,
            Self::GenerateIdToken(_) => GoogleEndpoint::IdToken,
            Self::Keys => GoogleEndpoint::Keys,
            Self::TokenInfo => GoogleEndpoint::TokenInfo,
            Self::Metadata => GoogleEndpoint::Metadata,
        }
    }
}
