//! The node's own keys, which sign calls. The keys come from the configuration, a file, or the instance's role.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use seawall_core::Secret;
use seawall_core::file;

use super::credential::AwsCredential;
use crate::failure::{ExchangeError, ExchangeFault};

/// A key pair that signs calls.
#[derive(Debug)]
pub struct AwsAccessKeys {
    /// The key id. It begins with `AKIA` for a user, and with `ASIA` for a session.
    pub access_key_id: Box<str>,
    /// The secret key that signs requests.
    pub secret_access_key: Secret<String>,
    /// The session token, if the keys belong to a session. Requests contain the token in addition to the signature.
    pub session_token: Option<Secret<String>>,
}

impl AwsAccessKeys {
    /// True if the keys belong to a role's session. If the agent assumes a role with a session's keys, AWS limits the new session
    /// to one hour.
    pub(super) fn are_session_keys(&self) -> bool {
        self.session_token.is_some()
    }

    pub(super) fn from_credential(credential: &AwsCredential) -> Self {
        Self {
            access_key_id: credential.access_key_id().into(),
            secret_access_key: Secret::new(credential.secret_access_key().to_owned()),
            session_token: Some(Secret::new(credential.session_token().to_owned())),
        }
    }
}

/// The source of the node's keys.
#[derive(Clone, Debug)]
pub enum NodeKeySource {
    /// Keys that the caller already has. Only tests use this source.
    Static(Arc<AwsAccessKeys>),
    /// An AWS credentials file (`~/.aws/credentials`).
    /// The agent reads the file again for each call, so a tool that renews the file need not notify the agent.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The section of the file. AWS's default section is `default`.
        profile: String,
    },
    /// The role of the instance. The role's keys come from the metadata service (version 2 only).
    Instance {
        /// The URL of the metadata service: `http://169.254.169.254`, or an address that bypasses the agent's own listener.
        url: String,
    },
}

/// Compares sources. Two [`NodeKeySource::Static`] sources are equal only if they share one allocation, because this code does
/// not compare secret values.
impl PartialEq for NodeKeySource {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Instance { url: one }, Self::Instance { url: other }) => one == other,
            (Self::File { path: one, profile: own }, Self::File { path: other, profile }) => {
                one == other && own == profile
            }
            (Self::Static(one), Self::Static(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for NodeKeySource {}

/// The maximum size of a credentials file, in bytes.
const LARGEST: usize = 64 * 1024;

const STEP: &str = "node's keys";

/// Reads a profile from a credentials file.
pub(super) fn read_profile(path: &Path, profile: &str) -> Result<AwsAccessKeys, ExchangeError> {
    let failed = |what: &dyn std::fmt::Display| {
        ExchangeError::new(ExchangeFault::ExchangeRejected, STEP, format_args!("{}: {what}", path.display()))
    };
    let text = file::read_text(path, LARGEST).map_err(|error| failed(&error))?;
    parse(text.expose(), profile)
        .ok_or_else(|| failed(&format_args!("[{profile}] lacks aws_access_key_id or aws_secret_access_key")))
}

/// Parses AWS's file format: sections in brackets, `name = value`, and comments with `#` or `;`
/// (docs.aws.amazon.com/sdkref/latest/guide/file-format.html).
fn parse(text: &str, profile: &str) -> Option<AwsAccessKeys> {
    let (mut id, mut secret, mut token) = (None, None, None);
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_ours = section.split(']').next().map(str::trim) == Some(profile);
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_ours && !line.starts_with(['#', ';']))
        else {
            continue;
        };
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    let secret_of = |text: &str| Secret::new(text.to_owned());
    Some(AwsAccessKeys {
        access_key_id: id?.into(),
        secret_access_key: secret_of(secret?),
        session_token: token.map(secret_of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# aws_access_key_id = no\n[other]\naws_access_key_id=AKIAOTHER\naws_secret_access_key=o\n\
                        [ node ] ; ours\n aws_access_key_id = AKIANODE\naws_secret_access_key = s3c=ret\nregion = x\n\
                        [session]\naws_access_key_id=ASIA\naws_secret_access_key=s\naws_session_token=t0ken==\n[half]\naws_access_key_id=x\n";

    #[test]
    fn a_profile_is_read_by_its_name_and_no_other() {
        let node = parse(FILE, "node").unwrap();
        assert_eq!((&*node.access_key_id, &**node.secret_access_key.expose()), ("AKIANODE", "s3c=ret"));
        assert!(!node.are_session_keys() && parse(FILE, "session").unwrap().are_session_keys());
        assert!(
            parse(FILE, "half").is_none() && parse(FILE, "none").is_none() && parse("", "default").is_none()
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?}", NodeKeySource::Static(Arc::new(parse(FILE, "node").unwrap())));
        assert!(!text.contains("s3c"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read_profile(Path::new("/no/such/file"), "default").unwrap_err();
        assert_eq!(error.fault, ExchangeFault::ExchangeRejected);
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
