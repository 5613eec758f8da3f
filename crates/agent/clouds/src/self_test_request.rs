//! The request by which the readiness check tests a dialect. Each cloud defines the request, and the crate `observe` sends the
//! request.

/// A readiness request to a dialect. A successful response contains no credentials.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessRequest {
    /// The HTTP method.
    pub method: &'static str,
    /// The request path.
    pub target: &'static str,
    /// Header lines, each with its line end.
    pub headers: &'static str,
    /// A lower-case text that the head of a successful response contains.
    pub expected_header: &'static str,
}
