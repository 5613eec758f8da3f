//! Writes credentials as JSON, in the formats of the metadata service and of the container endpoint. The code uses no
//! serializer and avoids copies, because nearly every response contains credentials.

use super::time::Iso8601Time;
use seawall_http::ResponseContext;

/// Credentials to write. Their texts contain no character that needs an escape in JSON. The broker checks the texts when it
/// receives the credentials.
///
/// The type has no `Debug`, because two of its members are secrets.
#[derive(Clone, Copy)]
pub struct CredentialsDocument<'a> {
    /// The public id of the access key.
    pub access_key_id: &'a str,
    /// The secret key.
    pub secret_access_key: &'a str,
    /// The session token, of any length.
    pub session_token: &'a str,
    /// The time when the credentials expire.
    ///
    /// The document always contains this time. Without the time, the SDKs for Go and Ruby would fetch credentials for each
    /// call, and most other clients would fail.
    pub expiration: Iso8601Time,
    /// The time when the credentials were issued.
    pub last_updated: Iso8601Time,
    /// The account of the role: twelve digits.
    pub account_id: Option<&'a str>,
    /// The role's ARN. Only the container endpoint writes this ARN.
    pub role_arn: Option<&'a str>,
}

/// The format of the credentials document, which depends on the directory of the requested path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// The format in `security-credentials`, without the account.
    WithoutAccount,
    /// The format in `security-credentials-extended`, with the account.
    WithAccount,
}

impl CredentialsDocument<'_> {
    /// Ends the response head and writes the metadata service's document.
    ///
    /// The lines are the same as in the real document, because shell scripts parse them.
    pub(super) fn write_imds_document(
        &self,
        out: &mut Vec<u8>,
        frame: &ResponseContext<'_>,
        shape: DocumentFormat,
    ) {
        const UPDATED: &[u8] = b"{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : \"";
        const ID: &[u8] = b"\",\n  \"Type\" : \"AWS-HMAC\",\n  \"AccessKeyId\" : \"";
        const SECRET: &[u8] = b"\",\n  \"SecretAccessKey\" : \"";
        const TOKEN: &[u8] = b"\",\n  \"Token\" : \"";
        const END: &[u8] = b"\",\n  \"Expiration\" : \"";
        const ACCOUNT: &[u8] = b"\",\n  \"AccountId\" : \"";
        const AFTER: &[u8] = b"\"\n}";
        const FIXED: usize = UPDATED.len() + ID.len() + SECRET.len() + TOKEN.len() + END.len() + AFTER.len();
        let account = self.account_id.filter(|_| shape == DocumentFormat::WithAccount);
        let dates = self.last_updated.as_bytes().len() + self.expiration.as_bytes().len();
        let texts = self.access_key_id.len() + self.secret_access_key.len() + self.session_token.len();
        let length = FIXED + dates + texts + account.map_or(0, |account| ACCOUNT.len() + account.len());
        frame.end_with_writer(out, length, |out| {
            out.extend_from_slice(UPDATED);
            out.extend_from_slice(self.last_updated.as_bytes());
            out.extend_from_slice(ID);
            out.extend_from_slice(self.access_key_id.as_bytes());
            out.extend_from_slice(SECRET);
            out.extend_from_slice(self.secret_access_key.as_bytes());
            out.extend_from_slice(TOKEN);
            out.extend_from_slice(self.session_token.as_bytes());
            out.extend_from_slice(END);
            out.extend_from_slice(self.expiration.as_bytes());
            if let Some(account) = account {
                out.extend_from_slice(ACCOUNT);
                out.extend_from_slice(account.as_bytes());
            }
            out.extend_from_slice(AFTER);
        });
    }

    /// Ends the response head and writes the container endpoint's document.
    pub(super) fn write_container_document(&self, out: &mut Vec<u8>, frame: &ResponseContext<'_>) {
        let [before_account, account] = optional("\",\"AccountId\":\"", self.account_id);
        let [before_role, role] = optional("\",\"RoleArn\":\"", self.role_arn);
        frame.end_with_body(
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

/// Returns an optional member as two parts: the text before its value, and the value.
fn optional<'a>(before: &'a str, value: Option<&'a str>) -> [&'a [u8]; 2] {
    value.map_or([b"", b""], |value| [before.as_bytes(), value.as_bytes()])
}
