//! The forms of the clouds' names for roles, accounts and identities. A text of another form is not shown.
//!
//! A server that gives every path the same response may send a token instead of a name. The form alone cannot exclude this, because a
//! role's name may look like a token. So the check also compares the text with the received secrets ([`super::secret_redaction`]).

/// Returns whether the text can be a role of AWS (`RoleName`, "IAM API Reference: CreateRole"). Dots alone would form another
/// path of the server.
pub(super) fn is_role_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_letter) && !text.bytes().all(|byte| byte == b'.')
}

/// Returns whether the text can be an account of AWS.
pub(super) fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the text can be the ARN of a role or of a role's session ("IAM User Guide: IAM identifiers"). Each part of a
/// path must be a valid role name.
pub(super) fn is_role_arn(text: &str) -> bool {
    let parts: Vec<_> = text.splitn(6, ':').collect();
    let [arn, partition, service, "", account, resource] = parts[..] else { return false };
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    let is_partition =
        partition.starts_with("aws") && partition.len() <= 20 && partition.bytes().all(is_word);
    let path = match service {
        "iam" => resource.strip_prefix("role/"),
        "sts" => resource.strip_prefix("assumed-role/"),
        _ => None,
    };
    let is_path = path.is_some_and(|path| path.len() <= 512 && path.split('/').all(is_role_name));
    arn == "arn" && is_partition && is_account_id(account) && is_path
}

/// Returns whether the text can be the address of a Google service account ("IAM: service account types"), possibly with a
/// domain's project. The name of a workload identity pool also matches (GKE's Workload Identity Federation), which pods without
/// an account have.
pub(super) fn is_service_account_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let is_name = |name: &str| name.len() <= 253 && name.split('.').all(is_label);
    match text.split_once('@') {
        Some((name, domain)) => is_label(name) && is_name(domain) && domain.ends_with(".gserviceaccount.com"),
        // The text is PROJECT or DOMAIN:PROJECT.
        None => text.strip_suffix(".svc.id.goog").is_some_and(|project| {
            project
                .split_once(':')
                .map_or(is_name(project), |(domain, name)| is_name(domain) && is_label(name))
        }),
    }
}

/// Returns whether the text can be a client of Azure: a UUID with dashes (RFC 9562 section 4).
pub(super) fn is_client_id(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_form_that_its_cloud_documents_and_nothing_else_is_one() {
        let long = "a".repeat(65);
        type Form = fn(&str) -> bool;
        let cases: [(Form, &[&str], &[&str]); 5] = [
            (
                is_role_name,
                &["shop", "a+b=c,d.e@f-g_h", &long[1..]],
                &["", ".", "..", "a/b", "a b", "a\u{1b}", &long],
            ),
            (is_account_id, &["123456789012"], &["", "12345678901", "1234567890123", "12345678901a"]),
            (
                is_role_arn,
                &[
                    "arn:aws:iam::123456789012:role/shop",
                    "arn:aws-us-gov:iam::123456789012:role/a/b/shop",
                    "arn:aws-cn:sts::123456789012:assumed-role/shop/i-0123",
                ],
                &[
                    "",
                    "arn:",
                    "arn:eyJhbGciOiJub25lIn0",
                    "arn:aws:iam::123456789012:user/shop",
                    "arn:aws:iam::eyJ:role/shop",
                    "arn:eyJ:iam::123456789012:role/shop",
                    "arn:aws:iam:eyJ:123456789012:role/shop",
                    "arn:aws:iam::123456789012:role/",
                    "arn:aws:iam::123456789012:role/../x",
                    "arn:aws:iam::123456789012:role/a b",
                ],
            ),
            (
                is_service_account_name,
                &[
                    "shop@reef.iam.gserviceaccount.com",
                    "123-compute@developer.gserviceaccount.com",
                    "reef@appspot.gserviceaccount.com",
                    "shop@reef.example.com.iam.gserviceaccount.com",
                    "reef.svc.id.goog",
                    "example.com:reef.svc.id.goog",
                ],
                &[
                    "",
                    "ya29.token@foo.com",
                    "ya29.token@reef.iam.gserviceaccount.com",
                    "shop@gserviceaccount.com",
                    "Shop@reef.iam.gserviceaccount.com",
                    "shop@reef.iam.gserviceaccount.com.foo",
                    ".svc.id.goog",
                    "ya29_A.svc.id.goog",
                ],
            ),
            (
                is_client_id,
                &["11111111-2222-3333-4444-55555555aAfF"],
                &["", "11-22", "11111111222233334444555555555555", "1111111g-2222-3333-4444-555555555555"],
            ),
        ];
        for (is_name, names, others) in cases {
            assert_eq!(names.iter().find(|name| !is_name(name)), None);
            assert_eq!(others.iter().find(|other| is_name(other)), None);
        }
    }
}
