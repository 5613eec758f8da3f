//! The status of a gRPC response: which responses have one, and the names of its codes.
//!
//! Source: `grpc/grpc`, `doc/PROTOCOL-HTTP2.md` (where the status stands) and `doc/statuscodes.md` (codes and names).

use crate::request_failure_reason::WrongAnswer;

/// The name of each code, from 0 on.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Returns the name of a code, if it has one.
pub(crate) fn status_name(code: u8) -> Option<&'static str> {
    NAMES.get(usize::from(code)).copied()
}

/// True if a content type is that of gRPC itself. gRPC-Web has its status in the body and is excluded.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let start = content_type.get(..TYPE.len()).is_some_and(|start| start.eq_ignore_ascii_case(TYPE));
    start && matches!(content_type.get(TYPE.len()), None | Some(b'+' | b';' | b' '))
}

/// Returns the mistake in a gRPC response that ended with this `grpc-status`, as an error.
pub(crate) fn verdict(status: Option<&[u8]>) -> Result<(), WrongAnswer> {
    let text = status.ok_or(WrongAnswer::NoGrpcStatus)?;
    let code = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<u8>().ok());
    match code.filter(|code| status_name(*code).is_some()) {
        Some(0) => Ok(()),
        Some(code) => Err(WrongAnswer::Grpc(code)),
        None => Err(WrongAnswer::UnknownGrpcStatus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_told_from_grpc_web_and_from_everything_else() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grp", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), expected, "{content_type}");
        }
    }

    #[test]
    fn a_status_that_grpc_does_not_know_or_that_is_missing_is_wrong() {
        assert_eq!(verdict(Some(b"0")), Ok(()));
        assert_eq!(verdict(Some(b"14")), Err(WrongAnswer::Grpc(14)));
        assert_eq!(verdict(Some(b"17")), Err(WrongAnswer::UnknownGrpcStatus));
        assert_eq!(verdict(Some(b"99999999999")), Err(WrongAnswer::UnknownGrpcStatus));
        assert_eq!(verdict(Some(b"\xff")), Err(WrongAnswer::UnknownGrpcStatus));
        assert_eq!(verdict(None), Err(WrongAnswer::NoGrpcStatus));
    }
}
