//! The request of a token exchange: the two APIs that take it, and its members.
//!
//! This module knows no provider and no token. `sts` decides about the request.
//!
//! Formats: RFC 8693 section 2.1 for the form. Google documents no reference of the JSON API; its members are those of existing
//! clients. secrets-store-csi-driver-provider-gcp `auth/auth.go` names them as the form does (`grant_type`), and istio
//! `security/pkg/nodeagent/plugin/providers/google/stsclient/stsclient.go` names them in camel case (`grantType`). An API of
//! protocol buffers takes both (protobuf.dev, "ProtoJSON Format", field names).

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::sts::GoogleStsRefusal;
use crate::reply::FORM;

/// The API of a token exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeApi {
    /// A form at `/v1/token`.
    Sts,
    /// JSON at `/v1/identitybindingtoken`, for GKE's own pools.
    IdentityBindingToken,
}

impl ExchangeApi {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Sts => FORM,
            Self::IdentityBindingToken => "application/json",
        }
    }
}

/// A member that an exchange can have.
struct Member {
    name: &'static str,
    camel_case: &'static str,
}

const MEMBERS: [Member; 7] = [
    Member { name: "grant_type", camel_case: "grantType" },
    Member { name: "audience", camel_case: "audience" },
    Member { name: "scope", camel_case: "scope" },
    Member { name: "requested_token_type", camel_case: "requestedTokenType" },
    Member { name: "subject_token_type", camel_case: "subjectTokenType" },
    Member { name: "subject_token", camel_case: "subjectToken" },
    Member { name: "options", camel_case: "options" },
];

/// The request of an exchange. Each member occurs at most once.
pub(super) struct ExchangeRequest {
    pub(super) api: ExchangeApi,
    members: Vec<(&'static str, String)>,
}

impl ExchangeRequest {
    /// Parses the body of a request.
    ///
    /// # Errors
    /// A member occurs twice. In JSON also: the body is not an object, a member is unknown, or a member is not a text.
    pub(super) fn parse(api: ExchangeApi, body: &[u8]) -> Result<Self, GoogleStsRefusal> {
        let mut request = Self { api, members: Vec::new() };
        match api {
            ExchangeApi::Sts => request.add_form(body)?,
            ExchangeApi::IdentityBindingToken => request.add_json(body)?,
        }
        Ok(request)
    }

    /// Adds the members of a form. Unknown members are ignored, as RFC 6749 section 3.2 requires.
    fn add_form(&mut self, body: &[u8]) -> Result<(), GoogleStsRefusal> {
        for (name, value) in url::form_urlencoded::parse(body) {
            if let Some(member) = MEMBERS.iter().find(|member| member.name == name) {
                self.add(member, value.into_owned())?;
            }
        }
        Ok(())
    }

    /// Adds the members of a JSON object. Unknown members are refused, as Google's JSON APIs do.
    fn add_json(&mut self, body: &[u8]) -> Result<(), GoogleStsRefusal> {
        let JsonMembers(members) = serde_json::from_slice(body).map_err(|_| GoogleStsRefusal::NotJson)?;
        for (name, value) in members {
            let member = MEMBERS.iter().find(|member| member.name == name || member.camel_case == name);
            let member = member.ok_or(GoogleStsRefusal::UnknownMember)?;
            let Value::String(text) = value else { return Err(GoogleStsRefusal::NotText(member.name)) };
            self.add(member, text)?;
        }
        Ok(())
    }

    fn add(&mut self, member: &Member, value: String) -> Result<(), GoogleStsRefusal> {
        if self.members.iter().any(|(seen, _)| *seen == member.name) {
            return Err(GoogleStsRefusal::Repeated(member.name));
        }
        self.members.push((member.name, value));
        Ok(())
    }

    /// Returns a required member. An empty member counts as missing (RFC 6749 section 3.2).
    pub(super) fn required(&self, name: &'static str) -> Result<&str, GoogleStsRefusal> {
        self.optional(name).ok_or(GoogleStsRefusal::Missing(name))
    }

    pub(super) fn optional(&self, name: &str) -> Option<&str> {
        let is_meant = |(known, value): &&(&str, String)| *known == name && !value.is_empty();
        self.members.iter().find(is_meant).map(|(_, value)| value.as_str())
    }
}

/// The members of a JSON object in their order. A map would hide a member that occurs twice.
struct JsonMembers(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for JsonMembers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = JsonMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonMembers, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(JsonMembers(members))
            }
        }
        from.deserialize_map(Members)
    }
}
