//! How readiness asks a dialect. Said by each cloud, asked by `observe`.

/// How a dialect is asked whether it answers: for something that is no secret, as a library would.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessRequest {
    /// The method.
    pub method: &'static str,
    /// The path.
    pub target: &'static str,
    /// Header lines, each with its end.
    pub headers: &'static str,
    /// What a good answer's head has, in lower case.
    pub expected_header: &'static str,
}
