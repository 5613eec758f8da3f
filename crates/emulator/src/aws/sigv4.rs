//! Checks AWS signatures of version 4 in the `Authorization` header.
//!
//! The code follows docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html and is tested with AWS's published
//! examples. It does not use the broker's signing library, so that the two do not share a mistake. Presigned URLs and chunked bodies are
//! not supported, because no emulated service needs them.

use std::borrow::Cow;
use std::fmt::Write as _;

use aws_lc_rs::{digest, hmac};
use http::HeaderMap;
use http::request::Parts;

/// The largest difference between a request's time and the clock (STS: five minutes).
const SKEW: u64 = 5 * 60;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The reason why a signature is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("Request is missing Authentication Token")]
    Missing,
    #[error(
        "The Authorization header requires Credential, SignedHeaders and Signature, and the request requires X-Amz-Date"
    )]
    Incomplete,
    #[error("The security token included in the request is invalid.")]
    UnknownKey,
    #[error("The security token included in the request is expired")]
    ExpiredSessionToken,
    #[error("Credential should be scoped to the service that is called")]
    Scope,
    #[error("The signature has expired or is not valid yet: check the clock")]
    Time,
    #[error("The request signature we calculated does not match the signature you provided.")]
    Mismatch,
}

/// The parsed `Authorization` header, which is not trusted before [`SigV4Header::check`].
#[derive(Debug)]
pub(super) struct SigV4Header<'r> {
    pub(super) access_key_id: &'r str,
    day: &'r str,
    region: &'r str,
    service: &'r str,
    headers: Vec<&'r str>,
    signature: &'r str,
    /// The `X-Amz-Date` header.
    time: &'r str,
}

impl<'r> SigV4Header<'r> {
    pub(super) fn read(headers: &'r HeaderMap) -> Result<Self, SignatureError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let stated = text("authorization")
            .and_then(|all| all.strip_prefix(ALGORITHM))
            .ok_or(SignatureError::Missing)?;
        let part = |name: &str| {
            let mut parts = stated.split(',').map(str::trim);
            parts.find_map(|part| part.strip_prefix(name)).ok_or(SignatureError::Incomplete)
        };
        let mut scope = part("Credential=")?.split('/');
        let (Some(access_key_id), Some(day), Some(region), Some(service), Some("aws4_request"), None) =
            (scope.next(), scope.next(), scope.next(), scope.next(), scope.next(), scope.next())
        else {
            return Err(SignatureError::Incomplete);
        };
        Ok(Self {
            access_key_id,
            day,
            region,
            service,
            headers: part("SignedHeaders=")?.split(';').collect(),
            signature: part("Signature=")?,
            time: text("x-amz-date").ok_or(SignatureError::Incomplete)?,
        })
    }

    /// Checks that the holder of `secret` signed this request for `service` at about `now`.
    pub(super) fn check(
        &self,
        service: &str,
        request: &Parts,
        body: &[u8],
        secret: &str,
        now: u64,
    ) -> Result<(), SignatureError> {
        if self.service != service {
            return Err(SignatureError::Scope);
        }
        // These headers must be signed, because they decide the service, the time and the caller.
        let needed = ["host", "x-amz-date", "x-amz-security-token"];
        let is_left_out = |name: &&str| request.headers.contains_key(*name) && !self.headers.contains(name);
        if !self.headers.contains(&"host") || needed.iter().any(is_left_out) {
            return Err(SignatureError::Incomplete);
        }
        let at = seconds(self.time)
            .filter(|_| self.time.starts_with(self.day))
            .ok_or(SignatureError::Incomplete)?;
        if at.abs_diff(now) > SKEW {
            return Err(SignatureError::Time);
        }
        let given = unhex(self.signature).ok_or(SignatureError::Mismatch)?;
        hmac::verify(&self.key(secret), self.to_sign(request, body).as_bytes(), &given)
            .map_err(|_| SignatureError::Mismatch)
    }

    fn to_sign(&self, request: &Parts, body: &[u8]) -> String {
        let canonical = hashed(self.canonical(request, body).as_bytes());
        let scope = format!("{}/{}/{}/aws4_request", self.day, self.region, self.service);
        format!("{ALGORITHM}\n{}\n{scope}\n{canonical}", self.time)
    }

    fn canonical(&self, request: &Parts, body: &[u8]) -> String {
        let mut text = format!("{}\n", request.method);
        text.push_str(&encoded(request.uri.path().as_bytes(), b"/"));
        let _ = writeln!(text, "\n{}", canonical_query(request.uri.query().unwrap_or_default()));
        for name in &self.headers {
            let values = request.headers.get_all(*name).iter();
            let values: Vec<_> = values.map(|value| one_spaced(value.as_bytes())).collect();
            let _ = writeln!(text, "{name}:{}", values.join(","));
        }
        let _ = write!(text, "\n{}\n{}", self.headers.join(";"), hashed(body));
        text
    }

    fn key(&self, secret: &str) -> hmac::Key {
        let sha = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
        let mut key = sha(format!("AWS4{secret}").as_bytes());
        for part in [self.day, self.region, self.service, "aws4_request"] {
            key = sha(hmac::sign(&key, part.as_bytes()).as_ref());
        }
        key
    }
}

/// Returns the canonical query, sorted by name and then by value. A name without `=` has an empty value.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (encoded(name.as_bytes(), b""), encoded(value.as_bytes(), b"")))
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Percent-encodes all bytes except RFC 3986's unreserved characters and `kept`. An encoded path is encoded again, as every service except
/// S3 requires.
fn encoded(text: &[u8], kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || kept.contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Trims the value and joins inner whitespace to one space.
fn one_spaced(value: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(value);
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn hashed(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (digits.len() == 64).then(|| digits.chunks(2).map(byte).collect())?
}

/// Parses `YYYYMMDD'T'HHMMSS'Z'` to seconds since 1970.
fn seconds(time: &str) -> Option<u64> {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    let at = parsed.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    u64::try_from(at.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    /// The time of AWS's examples: 2015-08-30T12:36:00Z.
    const THEN: u64 = 1_440_938_160;

    fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let base = Request::builder().method(method).uri(target).header("x-amz-date", "20150830T123600Z");
        let all = headers.iter().fold(base, |request, (name, value)| request.header(*name, *value));
        all.body(()).unwrap().into_parts().0
    }

    fn check(service: &str, parts: &Parts, body: &[u8]) -> Result<(), SignatureError> {
        let claimed = SigV4Header::read(&parts.headers)?;
        assert_eq!(claimed.access_key_id, "AKIDEXAMPLE");
        claimed.check(service, parts, body, SECRET, THEN)
    }

    fn authorization(service: &str, headers: &str, signature: &str) -> String {
        format!(
            "{ALGORITHM} Credential=AKIDEXAMPLE/20150830/us-east-1/{service}/aws4_request, \
             SignedHeaders={headers}, Signature={signature}"
        )
    }

    /// The example of the IAM User Guide, and three of the Signature Version 4 test suite: `get-vanilla`,
    /// `get-vanilla-query-order-key-case` and `post-x-www-form-urlencoded`.
    #[test]
    fn the_signatures_that_aws_published_verify() {
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        let list = authorization(
            "iam",
            "content-type;host;x-amz-date",
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        );
        let list = request(
            "GET",
            "/?Action=ListUsers&Version=2010-05-08",
            &[("host", "iam.amazonaws.com"), ("content-type", form), ("authorization", &list)],
        );
        assert_eq!(check("iam", &list, b""), Ok(()));
        for (method, target, kind, signed, body, signature) in [
            (
                "GET",
                "/",
                None,
                "host;x-amz-date",
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "GET",
                "/?Param2=value2&Param1=value1",
                None,
                "host;x-amz-date",
                "",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "POST",
                "/",
                Some("application/x-www-form-urlencoded"),
                "content-type;host;x-amz-date",
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let header = authorization("service", signed, signature);
            let mut headers = vec![("host", "example.amazonaws.com"), ("authorization", &*header)];
            headers.extend(kind.map(|kind| ("content-type", kind)));
            let parts = request(method, target, &headers);
            assert_eq!(check("service", &parts, body.as_bytes()), Ok(()), "{target}");
            assert_eq!(check("service", &parts, b"other"), Err(SignatureError::Mismatch));
            assert_eq!(check("sts", &parts, body.as_bytes()), Err(SignatureError::Scope));
        }
    }

    #[test]
    fn what_is_not_signed_in_full_is_refused() {
        let good = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        let with = |signed: &str, more: &[(&str, &str)]| {
            let header = authorization("service", signed, good);
            let mut headers = vec![("host", "example.amazonaws.com"), ("authorization", &*header)];
            headers.extend(more);
            request("GET", "/", &headers)
        };
        assert_eq!(check("service", &with("x-amz-date", &[]), b""), Err(SignatureError::Incomplete));
        let token = with("host;x-amz-date", &[("x-amz-security-token", "stolen")]);
        assert_eq!(check("service", &token, b""), Err(SignatureError::Incomplete));
        let parts = with("host;x-amz-date", &[]);
        let late =
            SigV4Header::read(&parts.headers).unwrap().check("service", &parts, b"", SECRET, THEN + SKEW + 1);
        assert_eq!(late, Err(SignatureError::Time));
        let none = request("GET", "/", &[("authorization", "Bearer x")]);
        assert_eq!(SigV4Header::read(&none.headers).unwrap_err(), SignatureError::Missing);
        let half = request("GET", "/", &[("authorization", "AWS4-HMAC-SHA256 Credential=a/b, Signature=c")]);
        assert_eq!(SigV4Header::read(&half.headers).unwrap_err(), SignatureError::Incomplete);
    }
}
