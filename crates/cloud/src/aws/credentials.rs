//! Credentials as both endpoints write them: JSON, written by hand and without a copy, because nearly every answer is one.

use super::time::Stamp;
use crate::Frame;

/// Credentials about to be written. No text in it holds a character that JSON escapes; the broker saw to that when it got them.
///
/// Without `Debug`: two of its members are secrets.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// Names the key; no secret.
    pub access_key_id: &'a str,
    /// The key.
    pub secret_access_key: &'a str,
    /// The session token; of any length.
    pub session_token: &'a str,
    /// When they end. Always written: without it most clients fail, and those for Go and Ruby fetch for each call.
    pub expiration: Stamp,
    /// When they were issued.
    pub last_updated: Stamp,
    /// The account whose role it is: twelve digits.
    pub account_id: Option<&'a str>,
    /// The role's ARN; the container endpoint's alone.
    pub role_arn: Option<&'a str>,
}

/// Which of the two directories of the metadata service a document comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `security-credentials`.
    Plain,
    /// `security-credentials-extended`: with the account.
    Extended,
}

impl Credentials<'_> {
    /// Ends the head of an answer and writes the document of the metadata service, laid out as the real one lays it out: shell
    /// scripts read it by lines.
    pub(super) fn write_document(&self, out: &mut Vec<u8>, frame: &Frame<'_>, shape: Shape) {
        let account = self.account_id.filter(|_| shape == Shape::Extended);
        let [before, account] = optional("\",\n  \"AccountId\" : \"", account);
        frame.end(
            out,
            &[
                b"{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : \"",
                self.last_updated.as_bytes(),
                b"\",\n  \"Type\" : \"AWS-HMAC\",\n  \"AccessKeyId\" : \"",
                self.access_key_id.as_bytes(),
                b"\",\n  \"SecretAccessKey\" : \"",
                self.secret_access_key.as_bytes(),
                b"\",\n  \"Token\" : \"",
                self.session_token.as_bytes(),
                b"\",\n  \"Expiration\" : \"",
                self.expiration.as_bytes(),
                before,
                account,
                b"\"\n}",
            ],
        );
    }

    /// Ends the head of an answer and writes the document of the container endpoint.
    pub(super) fn write_container(&self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        let [before_account, account] = optional("\",\"AccountId\":\"", self.account_id);
        let [before_role, role] = optional("\",\"RoleArn\":\"", self.role_arn);
        frame.end(
            out,
            &[
                b"{\"AccessKeyId\":\"",
                self.access_key_id.as_bytes(),
                b"\",\"SecretAccessKey\":\"",
                self.secret_access_key.as_bytes(),
                b"\",\"Token\":\"",
                self.session_token.as_bytes(),
                b"\",\"Expiration\":\"",
                self.expiration.as_bytes(),
                before_account,
                account,
                before_role,
                role,
                b"\"}",
            ],
        );
    }
}

/// A member that may be absent: what stands before its value, and the value.
fn optional<'a>(before: &'a str, value: Option<&'a str>) -> [&'a [u8]; 2] {
    value.map_or([b"", b""], |value| [before.as_bytes(), value.as_bytes()])
}
