//! The services behind the routes: the exchange, both kinds of impersonation, the published keys, and token information.
//!
//! Each service reads its request, gets a decision from `sts` or `credentials` and a token from the state, and writes the response.

use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::exchange_request::{ExchangeApi, ExchangeRequest};
use super::reply::{self, EmulatorReply, oauth_error};
use super::state::GoogleState;
use super::token::EmulatedAccessToken;
use super::{iam_credentials, sts};

pub(super) async fn handle_exchange(
    state: &GoogleState,
    api: ExchangeApi,
    request: Request<Incoming>,
) -> EmulatorReply {
    if !reply::has_content_type(&request, api.content_type()) {
        return sts::GoogleStsRefusal::ContentType(api.content_type()).reply();
    }
    let body = match reply::read_body(request).await {
        Ok(body) => body,
        Err(unread) => return unread.reply(),
    };
    let granted = ExchangeRequest::parse(api, &body)
        .and_then(|wanted| sts::decide_exchange(&wanted, &state.providers, state.unix_seconds()));
    match granted {
        Ok(granted) => federated(state, granted),
        Err(refused) => refused.reply(),
    }
}

fn federated(state: &GoogleState, granted: sts::GrantedExchange) -> EmulatorReply {
    state.exchange_counts.increment(granted.subject.clone());
    let lifetime = state.settings().max_token_lifetime;
    let token = EmulatedAccessToken {
        sub: granted.subject,
        account: None,
        scopes: granted.scopes,
        exp: state.expiry_after(lifetime),
        n: 0,
        principal: Some(granted.principal),
    };
    let body = json!({"access_token": state.issue(token), "issued_token_type": sts::ACCESS_TOKEN_TYPE,
                      "token_type": "Bearer", "expires_in": lifetime.as_secs()});
    reply::json_reply(StatusCode::OK, &body)
}

pub(super) async fn handle_generate_access_token(
    state: &GoogleState,
    account: &str,
    request: Request<Incoming>,
) -> EmulatorReply {
    let caller = caller(state, &request);
    let body = match reply::read_body(request).await {
        Ok(body) => body,
        Err(unread) => return unread.reply(),
    };
    impersonate(state, account, caller, &body).unwrap_or_else(|refused| refused.reply())
}

fn impersonate(
    state: &GoogleState,
    account: &str,
    caller: Option<EmulatedAccessToken>,
    body: &[u8],
) -> Result<EmulatorReply, iam_credentials::IamCredentialsRefusal> {
    let caller = iam_credentials::check_token_scopes(caller)?;
    let policy = state.settings();
    let wanted: iam_credentials::AccessTokenRequest = iam_credentials::parse_body(body)?;
    let (scopes, lifetime) =
        wanted.authorize(&caller, account, &policy.impersonation, state.allows_long_token_lifetimes)?;
    state.impersonation_counts.increment((caller.sub.clone(), account.to_owned()));
    let lifetime = lifetime.min(policy.max_token_lifetime);
    let token = state.issue_service_account_token(caller.sub, account, scopes, lifetime);
    let end = jiff::Timestamp::try_from(state.clock.wall_time() + lifetime).unwrap_or(jiff::Timestamp::MAX);
    let body = json!({"accessToken": token, "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
    Ok(reply::json_reply(StatusCode::OK, &body))
}

pub(super) async fn handle_generate_id_token(
    state: &GoogleState,
    account: &str,
    request: Request<Incoming>,
) -> EmulatorReply {
    let caller = caller(state, &request);
    let body = match reply::read_body(request).await {
        Ok(body) => body,
        Err(unread) => return unread.reply(),
    };
    match identify(state, account, caller, &body) {
        Ok(claims) => match state.sign_claims(&claims).await {
            Ok(token) => reply::json_reply(StatusCode::OK, &json!({ "token": token })),
            Err(_) => reply::server_error_reply(StatusCode::INTERNAL_SERVER_ERROR),
        },
        Err(refused) => refused.reply(),
    }
}

/// Returns the claims of the identity token, if the caller may have it.
fn identify(
    state: &GoogleState,
    account: &str,
    caller: Option<EmulatedAccessToken>,
    body: &[u8],
) -> Result<Value, iam_credentials::IamCredentialsRefusal> {
    let caller = iam_credentials::check_token_scopes(caller)?;
    let policy = state.settings();
    let wanted: iam_credentials::IdTokenRequest = iam_credentials::parse_body(body)?;
    wanted.authorize(&caller, account, &policy.impersonation)?;
    state.impersonation_counts.increment((caller.sub.clone(), account.to_owned()));
    Ok(wanted.claims(account, state.unix_seconds(), policy.max_token_lifetime))
}

pub(super) async fn published_keys_reply(state: &GoogleState) -> EmulatorReply {
    match state.identity_signing_key().await {
        Ok(key) => reply::json_reply(StatusCode::OK, &key.jwks()),
        Err(_) => reply::server_error_reply(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

/// Returns the response of `oauth2.googleapis.com/tokeninfo` about an access token, with its owner.
pub(super) fn token_info_reply(state: &GoogleState, query: &str) -> EmulatorReply {
    let given = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "access_token");
    let Some(token) = given.and_then(|(_, token)| state.read_access_token(&token)) else {
        return oauth_error(
            StatusCode::BAD_REQUEST,
            "invalid_token",
            "the emulator did not issue this token, or the token has expired",
        );
    };
    let mut info = json!({
        "azp": iam_credentials::service_account_unique_id(token.account.as_ref().unwrap_or(&token.sub)),
        "scope": token.scopes.join(" "),
        // Google writes both numbers as strings.
        "exp": token.exp.to_string(),
        "expires_in": token.exp.saturating_sub(state.unix_seconds()).to_string(),
        "kubernetes_subject": token.sub,
    });
    if let Some(email) = &token.account {
        info["email"] = email.as_str().into();
        info["email_verified"] = "true".into();
    }
    if let Some(principal) = token.principal {
        info["sub"] = principal.into();
    }
    reply::json_reply(StatusCode::OK, &info)
}

/// Returns the caller from the `Authorization` header.
fn caller(state: &GoogleState, request: &Request<Incoming>) -> Option<EmulatedAccessToken> {
    let header = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("Bearer") { state.read_access_token(token.trim()) } else { None }
}
